"""Three whole brokers of a group keep the rules under faults, and planted bugs are found."""

from __future__ import annotations

from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.draw import drawn
from tests.plugins.dledger.kernel_simulation import KernelSimulation
from tests.plugins.dledger.planted import KERNEL_PLANTED
from tests.raft.simulation.planted import find_bug, is_noticed
from tests.raft.simulation.world import InvariantBroken
from twistmq.plugins.dledger.commit_stage import CommitStage

#: The seeds of a whole run, and seeds in which a planted bug shows.
SEEDS = range(12)
BUG_SEEDS = range(100, 130)


class KernelSimulationTests(SynchronousTestCase):
    """``KernelSimulation``: ``python -m tests.long.dledger_kernels`` runs many seeds."""

    def test_no_seed_finds_anything(self) -> None:
        """No rule is broken, and the seeds do something."""
        kills = acknowledged = 0
        for seed in drawn(SEEDS):
            simulation = KernelSimulation(seed)
            simulation.run()
            kills += simulation.counts.kills + simulation.counts.cuts
            acknowledged += simulation.counts.acknowledged
        self.assertGreater(kills, 0)
        self.assertGreater(acknowledged, 0)

    def test_planted_bugs_are_found_by_their_rules(self) -> None:
        """A quarter of the bugs that take few seeds, or that a test of another module notices."""
        for bug in drawn(bug for bug in KERNEL_PLANTED if bug.is_quick or bug.noticed_by):
            if bug.noticed_by:
                self.assertTrue(is_noticed(bug), msg=bug.name)
                continue
            found = find_bug(bug)
            self.flushLoggedErrors()
            assert found is not None, f"{bug.name}: {bug.text}"
            self.assertIn(found[1].partition(":")[0], bug.rules, msg=f"{bug.name}: {found}")

    def test_acknowledgements_without_agreement_are_found(self) -> None:
        """A message that only its leader has is acknowledged, and lost."""
        rules = []
        with patch.object(CommitStage, "begin", lambda self, offset: self._notify()):
            for seed in BUG_SEEDS:
                try:
                    KernelSimulation(seed).run()
                except InvariantBroken as broken:
                    rules.append(broken.rule)
                    break
        self.assertIn(rules, (["H1"], ["H2"]))
