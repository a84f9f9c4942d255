"""The tests that only tests/long runs."""

from collections.abc import Iterable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop import test_trace, test_transactions
from tests.long.client_memory import RSS_MIB, faults
from tests.long.client_soak import growth
from tests.long.interop import LongLoader
from tests.long.task_kills import Kill, Runs
from tests.long.task_workers import Note


class LongInteropTests(SynchronousTestCase):
    """The tests that `python -m tests.long.interop` finds."""

    def test_finds_long_methods(self) -> None:
        """It finds the long methods, and none that other runs have."""
        for module in (test_trace, test_transactions):
            suite = LongLoader().loadModule(module)
            names = [test.id().rpartition(".")[2] for test in _cases(suite)]
            self.assertEqual(len(names), 3)
            self.assertEqual([name for name in names if not name.startswith("long_")], [])


class ClientTests(SynchronousTestCase):
    """The verdicts of the client's long runs."""

    def test_a_figure_that_grows_is_named(self) -> None:
        """A figure grows if it exceeds the maximum of the first quarter by more than a tenth."""
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


class TaskTests(SynchronousTestCase):
    """How the long run of killed workers judges."""

    def runs(self, *notes: tuple[str, int, int, int, float]) -> Runs:
        """Judge two tasks; worker 1 is killed at 10 s, and process 7 of worker 2 at 20 s."""
        return Runs([Note(*each) for each in notes], 2, [Kill(1, 10.0), Kill(2, 20.0, pid=7)])

    def test_a_task_without_an_end_is_lost(self) -> None:
        """Also one that never began."""
        self.assertEqual(self.runs(("begin", 0, 1, 5, 9.0)).lost, [0, 1])

    def test_a_run_that_was_cut_explains_the_next_one(self) -> None:
        """A kill cuts a run when it ends all processes of a worker, or the process of the run."""
        runs = self.runs(
            ("begin", 0, 1, 5, 9.9), ("begin", 0, 2, 6, 11.0), ("end", 0, 2, 6, 11.1),
            ("begin", 1, 2, 7, 19.9), ("begin", 1, 2, 6, 20.5), ("end", 1, 2, 6, 20.6))
        self.assertEqual((runs.lost, runs.repeated, runs.cut_count, runs.unexplained),
                         ([], [0, 1], 2, []))

    def test_an_end_just_before_a_kill_explains_the_next_run(self) -> None:
        """The worker may have died before the broker had the acknowledgement."""
        runs = self.runs(
            ("begin", 0, 1, 5, 9.5), ("end", 0, 1, 5, 9.75),
            ("begin", 0, 2, 6, 11.0), ("end", 0, 2, 6, 11.1))
        self.assertEqual((runs.repeated, runs.late_s, runs.unexplained), ([0], [0.25], []))

    def test_any_other_repetition_is_unexplained(self) -> None:
        """Such as one long after its end, or one in a process that was not killed."""
        runs = self.runs(
            ("begin", 0, 1, 5, 5.0), ("end", 0, 1, 5, 5.1),
            ("begin", 0, 2, 6, 11.0), ("end", 0, 2, 6, 11.1),
            ("begin", 1, 2, 6, 19.9), ("end", 1, 2, 6, 19.95),
            ("begin", 1, 2, 8, 20.5), ("end", 1, 2, 8, 20.6))
        self.assertEqual(runs.unexplained, [0, 1])


def _cases(suite: Iterable[Any]) -> list[SynchronousTestCase]:
    """Return the tests of a nested suite."""
    cases: list[SynchronousTestCase] = []
    for each in suite:
        cases += [each] if isinstance(each, SynchronousTestCase) else _cases(each)
    return cases
