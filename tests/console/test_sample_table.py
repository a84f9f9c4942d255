"""Samples for charts."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.console.case import ConsoleCase
from twistmq.console.sample_table import (
    SAMPLES_MAX,
    SERIES_MAX,
    SampleTable,
    line_chart,
    rate_chart,
)


class SampleTests(SynchronousTestCase):
    """Series of numbers."""

    def setUp(self) -> None:
        self.now_ms = 1_000_000
        self.table = SampleTable(lambda: self.now_ms)

    def add(self, at_ms: int, *values: float) -> None:
        """Add a sample of one series."""
        self.now_ms = at_ms
        self.table.add(("group", "g"), *values)

    def test_values_and_rates(self) -> None:
        """A rate is the change of a counter per second; a counter that goes back has none."""
        for at, values in enumerate(((10, 3), (35, 5), (35, 7), (2, 9))):
            self.add(1_000_000 + 5_000 * at, *values)
        samples = self.table.samples_of(("group", "g"))
        chart = line_chart("Lag", samples, lag=1)
        self.assertEqual(chart.times, [1_000_000, 1_005_000, 1_010_000, 1_015_000])
        self.assertEqual((chart.series, chart.latest), ({"lag": [3, 5, 7, 9]}, {"lag": 9}))
        self.assertEqual(rate_chart("Rate", samples, stored=0, consumed=1).series, {
            "stored": [None, 5.0, 0.0, None], "consumed": [None, 0.4, 0.4, 0.4]})
        self.assertEqual(rate_chart("Rate", [], stored=0).series, {"stored": []})

    def test_samples_are_few(self) -> None:
        """Several browsers on one page count once, and old samples and series are dropped."""
        for at in range(4):
            self.add(1_000_000 + 900 * at, at)
        self.assertEqual([values for _, values in self.table.samples_of(("group", "g"))],
                         [(0,), (3,)])
        for at in range(SAMPLES_MAX + 10):
            self.add(2_000_000 + 5_000 * at, at)
        samples = self.table.samples_of(("group", "g"))
        self.assertEqual((len(samples), samples[0][1]), (SAMPLES_MAX, (10,)))
        for at in range(SERIES_MAX):
            self.table.add(("topic", str(at)), 1)
        self.assertEqual(self.table.samples_of(("group", "g")), [])
        self.assertEqual(len(self.table.samples_of(("topic", "0"))), 1)

    def test_a_clock_that_is_set_back(self) -> None:
        """The series begins again, since its times would not be in order."""
        self.add(2_000_000, 1)
        self.add(1_000_000, 2)
        self.assertEqual(self.table.samples_of(("group", "g")), [(1_000_000, (2,))])


class ChartTests(ConsoleCase):
    """Charts of pages."""

    def test_pages_with_charts(self) -> None:
        """Each look at a page adds a sample, which the JSON form has too."""
        self.browser.log_in()
        self.topic("orders")
        self.send("orders")
        self.commit("billing", "orders", 0, 0)
        for path, expected in (
                ("/", {"rate": {"in", "out"}, "lag": {"lag"}}),
                ("/topics/orders", {"rate": {"stored"}, "lag": {"lag"}}),
                ("/groups/billing", {"rate": {"stored", "consumed"}, "lag": {"lag"}})):
            charts = json.loads(self.browser.json(path).text)["charts"]
            self.assertEqual({name: set(chart["series"]) for name, chart in charts.items()},
                             expected, msg=path)
            self.assertEqual({len(chart["times"]) for chart in charts.values()}, {1}, msg=path)
            html = self.browser.get(path).text
            self.assertIn("uPlot.iife.min.js?v=", html)
            self.assertEqual(html.count("data-chart="), len(expected))
        self.assertNotIn("uPlot", self.browser.get("/topics").text)
