"""A pair that loses its power, a bounded number of seeds: tests/long has more."""

from __future__ import annotations

import gc

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.simulation import PairFailed, PairSimulation

#: About ten seconds of them.
SEEDS = range(40)


class SimulationTests(SynchronousTestCase):
    """PairSimulation."""

    def tearDown(self) -> None:
        """What a store logs of its end is no failure of the test."""
        gc.collect()
        self.flushLoggedErrors()

    def test_no_seed_finds_anything(self) -> None:
        """No seed finds anything, and no kind of step is left out."""
        missing = {"master loses its power", "slave loses its power", "master is killed",
                   "slave is killed", "a process dies in it", "dies while it starts",
                   "acknowledged: ", "the connection is lost"}
        for seed in SEEDS:
            simulation = PairSimulation(seed)
            simulation.run()
            done = "\n".join(simulation.steps)
            missing = {text for text in missing if text not in done}
        self.assertEqual(missing, set())

    def test_the_same_seed_does_the_same(self) -> None:
        """A seed does the same always, and another seed another thing."""
        steps = []
        for seed in (5, 5, 6):
            simulation = PairSimulation(seed)
            simulation.run()
            steps.append(simulation.steps)
        self.assertEqual(steps[0], steps[1])
        self.assertNotEqual(steps[0], steps[2])

    def found(self, **settings: str) -> str:
        """What the seeds find with settings that promise less."""
        with self.assertRaises(PairFailed) as caught:
            for seed in SEEDS:
                PairSimulation(seed, {
                    name.replace("__", "."): value for name, value in settings.items()}).run()
        return str(caught.exception)

    def test_a_slave_that_reports_what_is_in_memory(self) -> None:
        """It loses messages that were acknowledged; the text says how to see it again."""
        text = self.found(ha__report_flushed="false")
        self.assertIn("slave lost the message at", text)
        self.assertRegex(text, r"tests\.long\.replication_simulation --seed \d+$")

    def test_stores_that_flush_later(self) -> None:
        """A master does, too."""
        self.assertIn("lost the message at", self.found(flushDiskType="ASYNC_FLUSH"))
