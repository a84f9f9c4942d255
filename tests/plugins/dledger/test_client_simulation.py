"""Clients of a group keep their promises under faults, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.draw import drawn
from tests.plugins.dledger.client_simulation import ClientGroupSimulation
from tests.raft.simulation.world import InvariantBroken
from twistmq.client.core.connection.routes import Route, Routes
from twistmq.plugins.dledger.commit_stage import CommitStage
from twistmq.plugins.replica import kernel_tables

#: The seeds of a whole run, and the number of seeds in which a planted bug has to show.
SEEDS = range(4)
BUG_SEED_COUNT = 40


class ClientSimulationTests(SynchronousTestCase):
    """``ClientGroupSimulation``: ``python -m tests.long.dledger_clients`` runs many seeds."""

    def test_no_seed_finds_anything(self) -> None:
        """No rule is broken, and each seed handles messages."""
        for seed in drawn(SEEDS):
            simulation = ClientGroupSimulation(seed)
            simulation.run()
            self.assertGreater(simulation.counts.handled, 0, msg=f"seed {seed}")

    def test_the_same_seed_does_the_same(self) -> None:
        """A seed does the same always, and another seed another thing."""
        steps = []
        for seed in (3, 3, 4):
            simulation = ClientGroupSimulation(seed)
            simulation.run()
            steps.append((simulation.steps, simulation.counts, simulation.cluster.now_ms))
        self.assertEqual(steps[0], steps[1])
        self.assertNotEqual(steps[0], steps[2])


class PlantedBugTests(SynchronousTestCase):
    """Each bug is found by its rules."""

    def assert_found(self, target: object, name: str, bug: Callable[..., Any], first: int,
                     *rules: str) -> None:
        """Check that some seed breaks one of the rules while a part of the product is replaced.

        :param first: the first seed, from which the bug is near.
        """
        with patch.object(target, name, bug):
            for seed in range(first, first + BUG_SEED_COUNT):
                try:
                    ClientGroupSimulation(seed).run()
                except InvariantBroken as broken:
                    self.assertIn(broken.rule, rules, msg=f"seed {seed}: {broken}")
                    return
        self.fail("no seed finds it")

    def test_acknowledgements_without_agreement(self) -> None:
        """A message that only its leader has is acknowledged, and lost."""
        self.assert_found(CommitStage, "begin", lambda stage, offset: stage._notify(),
                          1003, "H1", "H2", "H10")

    def test_a_client_that_does_not_look_for_the_new_leader(self) -> None:
        """A client keeps the first route of a topic."""
        ask = Routes._ask

        async def ask_once(routes: Routes, topic: str) -> Route:
            route = routes.cached_route(topic)
            return await ask(routes, topic) if route is None else route

        self.assert_found(Routes, "_ask", ask_once, 1000, "H10", "H11")

    def test_offsets_that_followers_do_not_copy(self) -> None:
        """The commits of a group end with the leader."""
        self.assert_found(kernel_tables, "offsets_of", lambda *_: {}, 1015, "H10")
