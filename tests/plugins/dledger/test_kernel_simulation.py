"""Three whole brokers of a group keep the rules under faults, and planted bugs are found."""

from __future__ import annotations

from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.draw import drawn
from tests.plugins.dledger.kernel_simulation import KernelSimulation
from tests.plugins.dledger.planted import KERNEL_PLANTED
from tests.raft.simulation.planted import find_bug, is_noticed
from tests.raft.simulation.world import InvariantBroken
from twistmq.broker.store.message_store import MessageStore
from twistmq.plugins.dledger.commit_stage import CommitStage
from twistmq.plugins.pop.check_point import CheckPoint

#: The seeds of a whole run, and seeds in which a planted bug shows.
SEEDS = range(12)
BUG_SEEDS = range(100, 130)
#: Seeds in which a leader is lost with the check point of a pop. In the first one, an earlier pop
#: of the message was acknowledged, and in the second one, the message still waits in the retry
#: topic.
LOST_POP_SEEDS = (541, 737)


class KernelSimulationTests(SynchronousTestCase):
    """``KernelSimulation``: ``python -m tests.long.dledger_kernels`` runs many seeds."""

    def test_no_seed_finds_anything(self) -> None:
        """No rule is broken, and the seeds do something."""
        for seed in drawn(SEEDS):
            simulation = KernelSimulation(seed)
            simulation.run()
            self.assertGreater(simulation.counts.elections, 0, msg=f"seed {seed}")
            self.assertGreater(simulation.counts.acknowledged, 0, msg=f"seed {seed}")

    def test_check_points_that_are_lost_with_their_leader(self) -> None:
        """A pop whose check point is lost counts for nothing, and no message is missing."""
        for seed in drawn(LOST_POP_SEEDS):
            KernelSimulation(seed).run()

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

    def test_the_same_seed_does_the_same(self) -> None:
        """A seed does the same always, and another seed another thing."""
        steps = []
        for seed in (3, 3, 4):
            simulation = KernelSimulation(seed)
            simulation.run()
            steps.append((simulation.steps, simulation.counts, simulation.group.now_ms()))
        self.assertEqual(steps[0], steps[1])
        self.assertNotEqual(steps[0], steps[2])

    def _rules_of(self, target: object, name: str, bug: object) -> list[str]:
        """Return the rule that the first seed breaks with a planted bug."""
        with patch.object(target, name, bug):
            for seed in BUG_SEEDS:
                try:
                    KernelSimulation(seed).run()
                except InvariantBroken as broken:
                    return [broken.rule]
        return []

    def test_progress_that_is_only_flushed_is_found(self) -> None:
        """Deliveries that only the leader has count as done, and are lost with it."""
        rules = self._rules_of(MessageStore, "settled_offset", property(
            lambda store: store.commit_log.flushed_offset))
        self.assertIn(rules, (["H9"], ["I14"]))

    def test_acknowledgements_without_agreement_are_found(self) -> None:
        """A message that only its leader has is acknowledged, and lost."""
        rules = self._rules_of(CommitStage, "begin", lambda stage, offset: stage._notify())
        self.assertIn(rules, (["H1"], ["H2"], ["H9"], ["I14"]))

    def test_popped_messages_that_do_not_come_again_are_found(self) -> None:
        """A check point brings only the first of its messages again."""
        open_offsets = CheckPoint.open_offsets
        self.assertEqual(self._rules_of(
            CheckPoint, "open_offsets", lambda point: open_offsets(point)[:1]), ["H9"])
