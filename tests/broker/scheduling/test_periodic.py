"""What a periodic task is; how it runs is in edge."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.scheduling.periodic import PeriodicTask


class PeriodicTaskTests(SynchronousTestCase):
    """A row."""

    def test_same_fields_are_two_tasks(self) -> None:
        """Two tasks are never one: a plugin may register the same row twice and both run."""
        def run(now_ms: int) -> None:
            pass

        first, second = (PeriodicTask("task", 0, 1, run) for _ in range(2))
        self.assertEqual(len({first, second}), 2)
