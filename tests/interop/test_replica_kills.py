"""Pairs of ours and Apache's whose brokers are killed; tests/long/replication.py does more."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase
from tests.interop.replica_kills import Outcome, kill_master, kill_slave

KILLS = 2


class KillTests(JavaTestCase):
    """A SYNC_MASTER and its slave, one of each kind, with 5.3.3."""

    def check(self, outcome: Outcome) -> None:
        self.assertEqual(outcome.problems, [])
        self.assertEqual(outcome.rounds, KILLS)

    def test_kills_of_our_master(self) -> None:
        """Apache's slave has all acknowledged messages."""
        self.check(kill_master(self.folder, "C", KILLS))

    def test_kills_of_our_slave(self) -> None:
        """When it returns, it has all of Apache's master's messages, and sends wait
        for it again.
        """
        self.check(kill_slave(self.folder, "B", KILLS))


class OldKillTests(JavaTestCase):
    """The same with 4.9.4."""

    version = "4.9.4"

    def test_kills_of_our_slave(self) -> None:
        """When it returns, it has all of Apache's master's messages, and sends wait
        for it again.
        """
        outcome = kill_slave(self.folder, "D", KILLS)
        self.assertEqual((outcome.problems, outcome.rounds), ([], KILLS))
