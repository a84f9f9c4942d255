"""Benchmarks begin to count when no side gets faster any more."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.bench.warm_up import are_close, warm_up

BENCH = Path(__file__).resolve().parent / "bench"


def side_of(costs: Iterator[float]) -> Callable[[], dict[str, float]]:
    """Return a side whose rounds have these costs."""
    return lambda: {"us": next(costs)}


class WarmUpTests(SynchronousTestCase):
    """The function warm_up()."""

    def warm(self, rounds_max: int = 20, **sides: list[float]) -> tuple[bool, list[str]]:
        """Warm up sides with these costs; :returns: whether they are warm, and the output.

        The last cost goes on.
        """
        def costs_of(costs: list[float]) -> Iterator[float]:
            yield from costs
            while True:
                yield costs[-1]

        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            is_warm = warm_up("pull", {name: side_of(costs_of(costs))
                                       for name, costs in sides.items()}, rounds_max)
        return is_warm, said.getvalue().splitlines()

    def test_it_goes_on_until_the_slower_side_is_warm(self) -> None:
        """Ours is warm after two rounds, and continues until Apache's is warm."""
        is_warm, said = self.warm(ours=[5.0, 5.1], Apache=[25.9, 14.0, 9.0, 6.4, 6.0])
        self.assertTrue(is_warm)
        self.assertEqual(said[0], "warm-up pull, round 1: ours us 5.00; Apache us 25.90")
        self.assertEqual(said[-1], "warm-up pull: warm after 5 rounds")
        self.assertEqual(len(said), 6)

    def test_a_tenth_is_too_much(self) -> None:
        """The difference has to be less than a tenth of the larger figure."""
        self.assertFalse(are_close({"us": 10.0}, {"us": 9.0}))
        self.assertTrue(are_close({"us": 10.0}, {"us": 9.1}))
        self.assertFalse(are_close({"us": 9.0}, {"us": 10.0}))
        self.assertTrue(are_close({"us": 0.0}, {"us": 0.0}))

    def test_each_figure_counts(self) -> None:
        """A load of several kinds of requests is warm when all of them are."""
        self.assertFalse(are_close({"send": 5.0, "pull": 25.0}, {"send": 5.0, "pull": 12.0}))

    def test_a_side_that_stays_cold_is_named(self) -> None:
        """The benchmark continues, and its output names the side."""
        is_warm, said = self.warm(3, ours=[5.0], Apache=[40.0, 20.0, 10.0])
        self.assertFalse(is_warm)
        self.assertEqual(said[-1], "warm-up pull: NOT WARM after 3 rounds: Apache")

    def test_every_benchmark_with_a_peer_warms_it_up(self) -> None:
        """All benchmarks that start Apache's or Kafka's broker do so.

        crash_bench times the start of a process, which is cold by its nature.
        """
        with_peer = {path.name for path in BENCH.iterdir() if path.is_file()
                     and path.suffix in ("", ".py")
                     and any(word in path.read_text() for word in ("Apache(", "Peer(", "kafka("))}
        warms = re.compile("from warm_up import .*warm_up|from wire_loads import load|"
                           "from load_process import .*medians_in_turn")
        cold = {name for name in with_peer if not warms.search((BENCH / name).read_text())}
        self.assertEqual(cold, {"crash_bench.py", "bench_servers.py"})
