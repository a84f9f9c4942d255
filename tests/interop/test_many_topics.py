"""A short form of the starts and stops with many topics, in every run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.long.many_topics import ManyTopics, Times

TOPICS = 300
SECONDS = 60.0


class ManyTopicsTests(SynchronousTestCase):
    """A broker of some topics, stopped and killed."""

    def test_messages_are_there(self) -> None:
        """Each topic has its messages after each start, and all times are reported."""
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        said: list[str] = []
        problems = ManyTopics(Path(folder.name), TOPICS, SECONDS, SECONDS, said.append).run()
        self.assertEqual(problems, [])
        self.assertEqual([line for line in said if "CPU" not in line], [f"{TOPICS} topics"])
        self.assertEqual(len(said), 9)

    def test_only_the_time_limit_is_a_problem(self) -> None:
        """Nothing else is a fault."""
        times = Times(lambda line: None)
        times.add("quick", 1.0, 9.0, 1.0)
        times.add("slow", 1.5, 0.5, 1.0)
        self.assertEqual(times.problems, ["slow: 1.5 s, 1 s are allowed"])
