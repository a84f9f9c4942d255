"""The tests that only tests/long runs."""

from collections.abc import Iterable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop import test_trace, test_transactions
from tests.long.client_memory import RSS_MIB, faults
from tests.long.client_soak import growth
from tests.long.interop import LongLoader


class LongInteropTests(SynchronousTestCase):
    """What `python -m tests.long.interop` finds."""

    def test_finds_long_methods(self) -> None:
        """Those, and none that every run has."""
        for module in (test_trace, test_transactions):
            suite = LongLoader().loadModule(module)
            names = [test.id().rpartition(".")[2] for test in _cases(suite)]
            self.assertEqual(len(names), 3)
            self.assertEqual([name for name in names if not name.startswith("long_")], [])


class ClientTests(SynchronousTestCase):
    """How the long runs of the client judge."""

    def test_a_figure_that_grows_is_named(self) -> None:
        """When it is more than a tenth above the highest of the first quarter."""
        even = [{"rss_mib": 40.0 + number % 3, "tasks": 10.0 + number % 9, "waiting": number * 9.0}
                for number in range(12)]
        self.assertEqual(growth(even), [])
        for name in ("rss_mib", "tasks"):
            rising = [{**each, name: each[name] + 3 * number} for number, each in enumerate(even)]
            [found] = growth(rising)
            self.assertTrue(found.startswith(f"{name} grew from "), msg=found)

    def test_a_bound_that_is_broken_is_named(self) -> None:
        """The memory of the process, each bound of a queue, and how often queues are pulled."""
        good = {"rss_mib": RSS_MIB, "count_max": 1032.0, "bytes_max": 1.0, "span_max": 2032.0}
        self.assertEqual(faults(good, 40, 2), [])
        self.assertEqual(faults(good, 41, 2), ["41 pulls a second of 2 queues"])
        for name in ("rss_mib", "count_max", "span_max"):
            [found] = faults({**good, name: good[name] + 1}, 0, 2)
            self.assertTrue(found.startswith(f"{name} is "), msg=found)


def _cases(suite: Iterable[Any]) -> list[SynchronousTestCase]:
    """The tests of a suite of suites."""
    cases: list[SynchronousTestCase] = []
    for each in suite:
        cases += [each] if isinstance(each, SynchronousTestCase) else _cases(each)
    return cases
