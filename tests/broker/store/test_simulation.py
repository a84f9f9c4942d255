"""The store against its model for a number of seeds; tests/long/simulation.py runs more."""

from __future__ import annotations

import gc

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.testing.simulation import Simulation, SimulationFailed
from twistmq.broker.testing.store_model import ModelBroken

#: About ten seconds of them.
SEEDS = range(600)


class SimulationTests(SynchronousTestCase):
    """The class Simulation."""

    def tearDown(self) -> None:
        """Ignore the errors that the store logs about a failing disk."""
        gc.collect()
        self.flushLoggedErrors()

    def test_no_seed_finds_anything(self) -> None:
        """No seed finds a fault; the text of a fault has the command that repeats it."""
        for seed in SEEDS:
            Simulation(seed).run()

    def test_the_same_seed_does_the_same(self) -> None:
        """A seed does the same always, and another seed another thing."""
        steps = []
        for seed in (5, 5, 6):
            simulation = Simulation(seed)
            simulation.run()
            steps.append(simulation.steps)
        self.assertEqual(steps[0], steps[1])
        self.assertNotEqual(steps[0], steps[2])

    def test_everything_happens(self) -> None:
        """Every part of the simulation is used."""
        missing = {"send [", "a job is done", "a job fails", "STOP", "KILL", "POWER_LOSS",
                   "the process dies in it", "the process dies while it starts", "not clean",
                   "the disk is full", "input/output error", "it cannot start", "retention",
                   "store from 0 to", "are refused", "a sync below",
                   "the wall clock jumps by -3600000"}
        for seed in range(200):
            simulation = Simulation(seed)
            simulation.run()
            done = "\n".join(simulation.steps)
            missing = {text for text in missing if text not in done}
            if not missing:
                break
        self.assertEqual(missing, set())

    def test_all_kinds_of_queues(self) -> None:
        """Plain, batch and light queues get messages, and survive kills and losses of power."""
        sizes, light, kept = set(), 0, set()
        for seed in range(100):
            simulation = Simulation(seed)
            simulation.run()
            for sent in simulation.model.given.values():
                sizes |= {end - first for first, end in sent.offsets.values()}
                light = max(light, len(sent.offsets) - 1)
            if any(step in simulation.steps for step in ("KILL", "POWER_LOSS")):
                kept |= {queue[0] for sent in simulation.model.log for queue in sent.offsets}
        self.assertEqual((sizes, light), ({1, 2, 7}, 3))
        self.assertLessEqual({"orders", "parts", "%LMQ%a", "%LMQ%b", "%LMQ%группа"}, kept)

    def test_files_are_removed(self) -> None:
        """Retention deletes files."""
        begins = set()
        for seed in range(100):
            simulation = Simulation(seed)
            simulation.run()
            begins.add(simulation.model.min_offset)
        self.assertGreater(len(begins), 3)

    def test_a_failure_says_which_seed(self) -> None:
        """A failure has the seed, its steps, and the command that repeats it."""
        self.patch(MessageStore, "look_message", lambda store, place: None)
        with self.assertRaises(SimulationFailed) as caught:
            for seed in range(9):
                Simulation(seed).run()
        text = str(caught.exception)
        self.assertIsInstance(caught.exception.__cause__, ModelBroken)
        self.assertIn("  1  store from 0 to 0\n", text)
        self.assertRegex(text, r"^seed \d+: ModelBroken: ")
        self.assertRegex(text, r"replay it: python -m tests\.long\.simulation --seed \d+$")
