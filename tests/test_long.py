"""The tests that only tests/long runs."""

from collections.abc import Iterable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop import test_trace, test_transactions
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


def _cases(suite: Iterable[Any]) -> list[SynchronousTestCase]:
    """The tests of a suite of suites."""
    cases: list[SynchronousTestCase] = []
    for each in suite:
        cases += [each] if isinstance(each, SynchronousTestCase) else _cases(each)
    return cases
