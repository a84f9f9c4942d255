"""A consumer group in simulations with a number of seeds; tests/long has more."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.simulation import ClientSimulation, SimulationFailed
from twistmq.client.core.consumer.delivery import Delivery

#: Half a minute of them.
SEEDS = range(50)


class SimulationTests(SynchronousTestCase):
    """The class ClientSimulation."""

    def test_no_seed_finds_anything(self) -> None:
        """No seed finds a fault, and every kind of step occurs.

        The text of a seed that does find something says how to see it again.
        """
        missing = {"joins", "leaves", "in order", "stops for", "are cut", "delays up to", "starts",
                   "broker-a is killed", "@2 is killed", "the clock of"}
        for seed in SEEDS:
            simulation = ClientSimulation(seed)
            simulation.run()
            done = "\n".join(simulation.steps)
            missing = {text for text in missing if text not in done}
        self.assertEqual(missing, set())

    def test_the_same_seed_does_the_same(self) -> None:
        """A seed does the same always, and another seed another thing."""
        steps = []
        for seed in (5, 5, 6):
            simulation = ClientSimulation(seed)
            simulation.run()
            steps.append((simulation.steps, simulation.promises.repeats,
                          simulation.cluster.now_ms))
        self.assertEqual(steps[0], steps[1])
        self.assertNotEqual(steps[0], steps[2])

    def test_a_failure_says_which_seed(self) -> None:
        """A failure has the seed, its steps, and the command that repeats it."""
        def take_nothing(delivery: Delivery[Any], most: int) -> None:
            delivery.ready_queues.clear()

        self.patch(Delivery, "take", take_nothing)
        with self.assertRaises(SimulationFailed) as caught:
            ClientSimulation(3).run()
        self.assertRegex(str(caught.exception), r"(?s)^seed 3: .* joins\n.*"
                         r"replay it: python -m tests\.long\.client_simulation --seed 3$")
