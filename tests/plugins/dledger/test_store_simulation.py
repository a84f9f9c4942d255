"""Groups whose members work on brokers' stores keep the rules, and planted bugs are found."""

from __future__ import annotations

from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.draw import drawn
from tests.plugins.dledger.planted import STORE_PLANTED
from tests.plugins.dledger.store_simulation import StoreDisk, StoreSimulation
from tests.raft.simulation.planted import find_bug, is_noticed
from tests.raft.simulation.world import InvariantBroken
from twistmq.broker.testing.power_loss import PowerCut
from twistmq.raft.durability import Durability

#: The seeds of a whole run, and seeds in which planted bugs show.
SEEDS = range(60)
BUG_SEEDS = range(200, 260)


class StoreSimulationTests(SynchronousTestCase):
    """``StoreSimulation``: ``python -m tests.long.dledger_store`` runs many seeds."""

    def test_no_seed_finds_anything(self) -> None:
        """No rule is broken, and processes end in the middle of changes of their disks."""
        cuts = acknowledged = 0
        for seed in drawn(SEEDS):
            simulation = StoreSimulation(seed)
            simulation.run()
            cuts += simulation.cut_count
            acknowledged += simulation.ghosts.counts["acknowledged"]
        # Periodic work of a store logs the end of its process as any other failure.
        self.flushLoggedErrors(PowerCut)
        self.assertGreater(cuts, 0)
        self.assertGreater(acknowledged, 0)

    def found(self) -> str:
        """The rule that one of the seeds breaks."""
        for seed in BUG_SEEDS:
            try:
                StoreSimulation(seed).run()
            except InvariantBroken as broken:
                self.flushLoggedErrors(PowerCut)
                return broken.rule
        return ""

    def test_planted_bugs_are_found_by_their_rules(self) -> None:
        """A quarter of the bugs that take few seeds, or that a test of another module notices."""
        for bug in drawn(bug for bug in STORE_PLANTED if bug.is_quick or bug.noticed_by):
            if bug.noticed_by:
                self.assertTrue(is_noticed(bug), msg=bug.name)
                continue
            found = find_bug(bug)
            self.flushLoggedErrors()
            assert found is not None, f"{bug.name}: {bug.text}"
            self.assertIn(found[1].partition(":")[0], bug.rules, msg=f"{bug.name}: {found}")

    def test_acknowledgements_before_the_sync_are_found(self) -> None:
        """Entries that count before they are synced are lost with the power."""
        with patch.object(Durability, "durable_index",
                          property(lambda self: self._log.end_index)):
            self.assertIn(self.found(), ("I5", "I6", "I8", "I9", "I12", "I21"))

    def test_a_sync_that_syncs_nothing_is_found(self) -> None:
        """The log of a store lacks what its member believes to be durable."""
        with patch.object(StoreDisk, "sync_log", lambda self: None):
            self.assertEqual(self.found(), "I7")
