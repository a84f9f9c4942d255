"""Pairs that lose their power, for a limited number of seeds; tests/long has more."""

from __future__ import annotations

import gc

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.simulation import PairFailed, PairSimulation

#: About ten seconds of them.
SEEDS = range(40)


class SimulationTests(SynchronousTestCase):
    """The class ``PairSimulation``."""

    def tearDown(self) -> None:
        """Ignore the errors that a store logs at its end."""
        gc.collect()
        self.flushLoggedErrors()

    def test_no_seed_finds_anything(self) -> None:
        """No seed finds a fault, and every kind of step occurs."""
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
        """Return the faults that seeds find with settings that promise less."""
        with self.assertRaises(PairFailed) as caught:
            for seed in SEEDS:
                PairSimulation(seed, {
                    name.replace("__", "."): value for name, value in settings.items()}).run()
        return str(caught.exception)

    def test_a_slave_that_reports_what_is_in_memory(self) -> None:
        """The simulation finds lost messages; the text has the command that repeats the run."""
        text = self.found(ha__report_flushed="false")
        self.assertIn("slave lost the message at", text)
        self.assertRegex(text, r"tests\.long\.replication_simulation --seed \d+$")

    def test_stores_that_flush_later(self) -> None:
        """With ASYNC_FLUSH the simulation finds lost messages as well."""
        self.assertIn("lost the message at", self.found(flushDiskType="ASYNC_FLUSH"))
