"""One page of metrics and one of health, joined from those of several brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import NOT_DONE_YET
from twisted.web.test.requesthelper import DummyRequest

from twistmq.broker.observe.supervisor_pages import PageAnswer
from twistmq.plugins.metrics import joined_pages as joined_pages_module
from twistmq.plugins.metrics.joined_pages import (
    JoinedMetrics,
    join_health,
    join_metrics,
    joined_pages,
)
from twistmq.plugins.metrics.pages import MadePage

PAGE = """\
# HELP rocketmq_messages_in_total Messages.
# TYPE rocketmq_messages_in_total counter
rocketmq_messages_in_total{{node_id="{name}",topic="t"}} {count}
# HELP twistmq_dispatch_seconds How long.
# TYPE twistmq_dispatch_seconds histogram
twistmq_dispatch_seconds_bucket{{le="1.0"}} 2.0
twistmq_dispatch_seconds_bucket{{le="+Inf"}} 3.0
twistmq_dispatch_seconds_count 3.0
twistmq_dispatch_seconds_sum 4.5
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 12.0
"""


def page(name: str, count: float) -> PageAnswer:
    """Return the metrics page of a broker."""
    return PageAnswer(200, PAGE.format(name=name, count=count).encode())


def health(status: int, *reasons: str) -> PageAnswer:
    """Return the health page of a broker."""
    return PageAnswer(status, json.dumps({
        "status": "broken" if reasons else "ok", "broker": "b", "reasons": reasons,
        "checks": {"store": "ok"}}).encode())


class JoinedMetricsTests(SynchronousTestCase):
    """The page /metrics."""

    def test_each_family_is_there_once_with_the_samples_of_all(self) -> None:
        """A family has one type and all samples; those without the name of a broker get it."""
        made = join_metrics({"b-0": page("b-0", 1.0), "b-1": page("b-1", 5.0)})
        self.assertEqual((made.status, made.text.decode()), (200, """\
# HELP rocketmq_messages_in_total Messages.
# TYPE rocketmq_messages_in_total counter
rocketmq_messages_in_total{node_id="b-0",topic="t"} 1.0
rocketmq_messages_in_total{node_id="b-1",topic="t"} 5.0
# HELP twistmq_dispatch_seconds How long.
# TYPE twistmq_dispatch_seconds histogram
twistmq_dispatch_seconds_bucket{le="1.0",node_id="b-0"} 2.0
twistmq_dispatch_seconds_bucket{le="+Inf",node_id="b-0"} 3.0
twistmq_dispatch_seconds_count{node_id="b-0"} 3.0
twistmq_dispatch_seconds_sum{node_id="b-0"} 4.5
twistmq_dispatch_seconds_bucket{le="1.0",node_id="b-1"} 2.0
twistmq_dispatch_seconds_bucket{le="+Inf",node_id="b-1"} 3.0
twistmq_dispatch_seconds_count{node_id="b-1"} 3.0
twistmq_dispatch_seconds_sum{node_id="b-1"} 4.5
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds{node_id="b-0"} 12.0
process_open_fds{node_id="b-1"} 12.0
"""))

    def test_members_of_a_group_are_told_apart(self) -> None:
        """They have one broker name, and Prometheus takes one sample of equal labels only."""
        made = join_metrics({"b-0": page("b", 1.0), "b-1": page("b", 5.0)})
        self.assertEqual([line for line in made.text.decode().splitlines()
                          if line.startswith("rocketmq_messages_in_total{")], [
            'rocketmq_messages_in_total{node_id="b-0",topic="t"} 1.0',
            'rocketmq_messages_in_total{node_id="b-1",topic="t"} 5.0'])

    def test_a_broker_without_an_answer_is_left_out(self) -> None:
        """The metrics of the others are served; without any the status is 503."""
        gone = PageAnswer(0, b"", "Connection refused")
        made = join_metrics({"b-0": gone, "b-1": page("b-1", 5.0)})
        self.assertEqual((made.status, made.unread), (200, {}))
        self.assertNotIn(b"b-0", made.text)
        self.assertIn(b"process_open_fds{node_id=\"b-1\"} 12.0", made.text)
        self.assertEqual(join_metrics({"b-0": gone}), JoinedMetrics(503, b"", {}))

    def test_a_page_that_cannot_be_read_is_left_out(self) -> None:
        """A page whose content or end is invalid is left out, and the reason is logged."""
        for text in (b"# TYPE a counter\na_total{x=\n", b"process_open_fds 12.0\nb{ 1\n", b"\xff"):
            made = join_metrics({"b-0": PageAnswer(200, text), "b-1": page("b-1", 5.0)})
            self.assertEqual((made.status, list(made.unread)), (200, ["b-0"]))
            self.assertNotIn(b"b-0", made.text)
            self.assertIn(b"process_open_fds{node_id=\"b-1\"} 12.0", made.text)
            self.assertEqual(join_metrics({"b-0": PageAnswer(200, text)}).status, 503)

    def test_restarts_are_told(self) -> None:
        """A counter has the number of restarts of each broker."""
        text = join_metrics({}, {"b-0": 0, "b-1": 3}).text.decode()
        self.assertIn("# TYPE twistmq_broker_restarts_total counter\n"
                      'twistmq_broker_restarts_total{node_id="b-0"} 0.0\n'
                      'twistmq_broker_restarts_total{node_id="b-1"} 3.0\n', text)


class Brokers:
    """Brokers whose responses the test gives."""

    restarts: Mapping[str, int] = {"b-0": 0}

    def __init__(self) -> None:
        self.asked: list[Deferred[dict[str, PageAnswer]]] = []
        self.calls: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def ask(self, port_setting: str, path: str) -> Deferred[dict[str, PageAnswer]]:
        """Note that the brokers were asked."""
        self.asked.append(Deferred())
        return self.asked[-1]

    def on_thread(self, call: Callable[[], Any]) -> Deferred[Any]:
        """Record a call for ``run``."""
        self.calls.append((call, Deferred()))
        return self.calls[-1][1]

    def run(self) -> None:
        """Make the recorded calls."""
        for call, made in self.calls:
            made.callback(call())
        self.calls.clear()


class JoinedPagesTests(SynchronousTestCase):
    """The pages as they are served."""

    def setUp(self) -> None:
        self.brokers = Brokers()
        self.root = joined_pages(self.brokers)

    def ask(self, name: bytes = b"metrics") -> DummyRequest:
        """Request a page."""
        request = DummyRequest([name])
        request.path = b"/" + name
        self.assertEqual(self.root.children[name].render(request), NOT_DONE_YET)
        return request

    def lines_of(self, kind: type) -> list[str]:
        """Return the list to which the lines of a logger are added from now on."""
        lines: list[str] = []
        self.patch(kind, "log", Logger(observer=lambda event: lines.append(formatEvent(event))))
        return lines

    def test_requests_at_the_same_time_share_a_page(self) -> None:
        """The brokers are asked once, and their pages are joined once, outside the reactor."""
        first, second = self.ask(), self.ask()
        self.brokers.asked[0].callback({"b-0": page("b-0", 1.0)})
        third = self.ask()
        self.assertEqual((len(self.brokers.asked), len(self.brokers.calls)), (1, 1))
        self.assertEqual(first.written, [])
        self.brokers.run()
        self.assertEqual(first.responseCode, 200)
        self.assertIn(b'node_id="b-0"', b"".join(first.written))
        self.assertEqual(first.written, second.written)
        self.assertEqual(first.written, third.written)
        self.ask()
        self.assertEqual(len(self.brokers.asked), 2)

    def test_requests_for_health_share_a_page(self) -> None:
        """The brokers are asked once."""
        requests = [self.ask(b"health") for _ in range(2)]
        self.assertEqual(len(self.brokers.asked), 1)
        self.brokers.asked[0].callback({"b-0": health(200)})
        self.assertEqual([request.responseCode for request in requests], [200, 200])

    def test_a_page_that_cannot_be_read_is_one_line(self) -> None:
        """The same fault of the same broker is not logged at each scrape."""
        lines = self.lines_of(joined_pages_module._JoinedMetrics)
        for index in range(3):
            request = self.ask()
            self.brokers.asked[index].callback({"b-0": PageAnswer(200, b"a{ 1\n"),
                                                "b-1": page("b-1", 1.0)})
            self.brokers.run()
            self.assertEqual(request.responseCode, 200)
        self.assertEqual(len(lines), 1)
        self.assertIn("the metrics of the broker b-0 cannot be read: ", lines[0])

    def test_a_page_that_cannot_be_made_is_logged(self) -> None:
        """The status is 500, and the log has the reason."""
        lines = self.lines_of(MadePage)
        request = self.ask()
        self.brokers.asked[0].errback(ZeroDivisionError("none"))
        self.assertEqual((request.responseCode, lines), (500, ["there is no page /metrics: none"]))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class JoinedHealthTests(SynchronousTestCase):
    """The page /health."""

    def test_all_are_well(self) -> None:
        """The status is 200 if all brokers are healthy."""
        status, body = join_health({"b-0": health(200), "b-1": health(200)})
        found = json.loads(body)
        self.assertEqual((status, found["status"], found["reasons"]), (200, "ok", []))
        self.assertEqual(found["servers"]["b-1"]["checks"], {"store": "ok"})

    def test_one_that_is_ill_is_named(self) -> None:
        """The reasons name the broker; so does the reason of one that does not answer."""
        status, body = join_health({
            "b-0": health(200), "b-1": health(503, "store: full"),
            "b-2": PageAnswer(0, b"", "timed out"), "b-3": PageAnswer(404, b"<html>")})
        found = json.loads(body)
        self.assertEqual((status, found["status"]), (503, "broken"))
        self.assertEqual(found["reasons"], [
            "b-1: store: full", "b-2: it does not answer: timed out",
            "b-3: it does not answer: 404"])
