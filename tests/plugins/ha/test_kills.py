"""Brokers of a pair that are killed under load; ``python -m tests.long.replication`` does more."""

from __future__ import annotations

import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.replica_cuts import cut_and_promote
from tests.interop.replica_kills import Outcome, kill_master, kill_slave, restart

KILLS = 3
CUTS = 5


class KillTests(SynchronousTestCase):
    """A SYNC_MASTER and its slave, in processes of their own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def check(self, outcome: Outcome) -> None:
        self.assertEqual(outcome.problems, [])
        self.assertEqual(outcome.rounds, KILLS)
        self.assertGreater(outcome.answers[0], KILLS)

    def test_kills_of_the_master(self) -> None:
        """The slave has all that was acknowledged, once; the logs are the same after a start."""
        self.check(kill_master(self.folder, "A", KILLS))

    def test_kills_of_the_slave(self) -> None:
        """Sends are answered with 12 meanwhile, and stored; the slave has them when it is back."""
        self.check(kill_slave(self.folder, "A", KILLS))

    def test_restarts_in_any_order(self) -> None:
        """The slave first, the master first, the name server last: the logs are the same."""
        self.check(restart(self.folder, KILLS))

    def test_a_promotion_over_half_a_message(self) -> None:
        """Messages that are acknowledged afterwards survive a kill."""
        outcome = cut_and_promote(self.folder, CUTS)
        self.assertEqual(outcome.problems, [])
        self.assertGreater(outcome.halves, 0)
        self.assertGreater(outcome.acknowledged, 50 * CUTS)
