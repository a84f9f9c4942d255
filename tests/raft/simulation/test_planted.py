"""The simulation finds the bugs that are planted into the core."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from tests.draw import drawn
from tests.raft.simulation.planted import PLANTED, find_bug, is_noticed
from twistmq.raft.outbox import Outbox

#: Seeds until a bug that is called quick is found, at most. Most are found in the first ten.
QUICK_SEEDS_MAX = 400


class PlantedTests(SynchronousTestCase):
    """``PLANTED``: ``python -m tests.long.dledger_core --planted`` looks for all of them."""

    def test_each_quick_bug_is_found_by_its_rules(self) -> None:
        """A quarter of the bugs that take few seeds; the first rule that is broken is theirs."""
        for bug in drawn(bug for bug in PLANTED if bug.is_quick):
            found = find_bug(replace(bug, seeds_max=QUICK_SEEDS_MAX))
            self.assertIsNotNone(found, msg=f"{bug.name}: {bug.text}")
            assert found is not None
            self.assertIn(found[1].partition(":")[0], bug.rules, msg=f"{bug.name}: {found}")

    def test_other_bugs_are_noticed_by_their_tests(self) -> None:
        """Each test fails with its bug, and only then."""
        for bug in PLANTED:
            if bug.noticed_by:
                self.assertTrue(is_noticed(bug), msg=bug.name)

    def test_a_bug_is_gone_afterwards(self) -> None:
        """The core is whole again after the search."""
        add_message = Outbox.add_message
        find_bug(replace(PLANTED[0], seeds_max=1))
        self.assertIs(Outbox.add_message, add_message)
