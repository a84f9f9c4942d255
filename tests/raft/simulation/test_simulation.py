"""Simulated groups under faults, a bounded number of seeds: tests/long/dledger_core.py has more."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.simulation.simulation import Simulation

#: A few seconds of them.
SEEDS = range(70)
SEEDS_OF_FIVE = range(1000, 1015)


class SimulationTests(SynchronousTestCase):
    """``Simulation``."""

    def test_no_seed_finds_anything(self) -> None:
        """No invariant is broken, and no kind of fault is left out."""
        missing = {"kill", "kill_all", "lose_power", "lose_all_power", "wipe", "stop", "cut_one",
                   "cut_off", "divide", "bridge", "lose_messages", "copy_messages", "slow_link",
                   "reorder", "skew_clock", "slow_disk", "fail_disk", "transfer", "retain", "stray",
                   "strand", "cut_transferee"}
        done = {"elections", "established", "acknowledged", "cuts"}
        for seed in SEEDS:
            simulation = Simulation(seed)
            simulation.run()
            missing -= simulation.faults.counts.keys()
            done -= simulation.ghosts.counts.keys()
        self.assertEqual((missing, done), (set(), set()))

    def test_no_seed_of_five_members_finds_anything(self) -> None:
        """A group of five stands the same faults."""
        for seed in SEEDS_OF_FIVE:
            Simulation(seed, 5).run()

    def test_a_process_that_ends_while_its_right_to_vote_is_saved(self) -> None:
        """In this seed, a member whose disk was replaced has joined only by what a kill left."""
        Simulation(49_423).run()

    def test_a_request_astray_at_the_time_of_an_election(self) -> None:
        """In these seeds, a member does what is due in the turn of a request that it refuses."""
        for seed in (118_430, 163_230):
            Simulation(seed).run()

    def test_what_a_member_got_again_before_it_joins_counts(self) -> None:
        """Its right to vote is durable only after its term has risen, to take the lead."""
        Simulation(765_579).run()

    def test_a_vote_for_the_leader_that_a_new_disk_has_followed(self) -> None:
        """The member had voted for another one with its old disk, and the leader asks again."""
        Simulation(896_159).run()

    def test_the_same_seed_does_the_same(self) -> None:
        """A seed always takes the same steps, and another seed takes other ones."""
        steps = []
        for seed in (5, 5, 6):
            simulation = Simulation(seed)
            simulation.world.steps = []
            simulation.run()
            steps.append(simulation.world.steps)
        self.assertEqual(steps[0], steps[1])
        self.assertNotEqual(steps[0], steps[2])
