"""A small group is explored, and the exploration finds bugs that are planted into the core."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.exploration.explorer import CASES, Explorer
from tests.raft.simulation.planted import PLANTED, planted
from tests.raft.simulation.world import InvariantBroken

#: Bugs that a small case shows: the name of the bug, the case, and the rules that may find it.
BUGS = (("M2", "vote", ("I2",)), ("M50", "vote", ("I6",)))
#: The number of states in which these bugs are found, and the number in a part of a case.
STATES_MAX = 5_000
PART = 3_000


class ExplorerTests(SynchronousTestCase):
    """``Explorer``: ``python -m tests.long.dledger_exhaustive`` explores all cases."""

    def test_every_order_of_the_events_of_an_election(self) -> None:
        """No rule is broken, and the member that asks for votes leads in some states."""
        explorer = Explorer(CASES["vote"]).run()
        self.assertTrue(explorer.is_whole)
        self.assertGreater(explorer.count, 500)
        self.assertEqual((explorer.highest_term, explorer.most_committed), (1, 1))

    def test_it_is_the_same_each_time(self) -> None:
        """Two explorations meet equally many states."""
        first, second = (Explorer(CASES["entry"], PART).run() for _ in range(2))
        self.assertEqual((first.events, first.node_count), (second.events, second.node_count))
        self.assertFalse(first.is_whole)

    def test_planted_bugs_are_found(self) -> None:
        """Each breaks one of its rules, and the events up to there are told."""
        bugs = {bug.name: bug for bug in PLANTED}
        for name, case, rules in BUGS:
            explorer = Explorer(CASES[case], STATES_MAX)
            with planted(bugs[name]):
                error = self.assertRaises(InvariantBroken, explorer.run)
            self.assertIn(error.rule, rules, msg=f"{name}: {error}")
            self.assertTrue(1 <= len(explorer.steps) <= explorer.depth + 1, msg=explorer.steps)
