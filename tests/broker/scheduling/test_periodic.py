"""The row of a periodic task; its execution is in edge."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.scheduling.periodic import PeriodicTask


class PeriodicTaskTests(SynchronousTestCase):
    """The row of a task."""

    def test_same_fields_are_two_tasks(self) -> None:
        """Two tasks are never equal, so a plugin may register the same row twice."""
        def run(now_ms: int) -> None:
            pass

        first, second = (PeriodicTask("task", 0, 1, run) for _ in range(2))
        self.assertEqual(len({first, second}), 2)
