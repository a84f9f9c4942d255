"""A short form of the long kill test, in every run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.long.kill import kill_often

KILLS = 4


class KillTests(SynchronousTestCase):
    """A broker that is killed in mid-send and started again."""

    def test_sync_flush(self) -> None:
        """Each acknowledged message is there once, whole, at its offset."""
        self.kill("SYNC_FLUSH")

    def test_async_flush(self) -> None:
        """A kill is not a loss of power, so nothing is lost without a sync."""
        self.kill("ASYNC_FLUSH")

    def kill(self, flush: str) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        check = kill_often(Path(folder.name), KILLS, flush, 7)
        self.assertEqual(check.problems, [])
        self.assertGreater(sum(map(len, check.acknowledged)), 0)
        self.assertGreaterEqual(check.found, sum(map(len, check.acknowledged)))
