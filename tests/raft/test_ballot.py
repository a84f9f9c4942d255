"""The term never falls, the vote of a term is given once, and a life leads a term once."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.raft.actions import SaveHardState
from twistmq.raft.ballot import Ballot
from twistmq.raft.hard_state import HardState
from twistmq.raft.outbox import Outbox


class BallotTests(SynchronousTestCase):
    """The hard state of the member ``b``."""

    def setUp(self) -> None:
        """Begin in the term 3, with a vote for itself from an earlier life."""
        self.outbox = Outbox()
        self.ballot = Ballot("b", HardState(3, "b", joined=True), self.outbox)

    def _saves(self) -> list[HardState]:
        return [action.state for action in self.outbox.take_actions()
                if isinstance(action, SaveHardState)]

    def test_a_higher_term_has_no_vote(self) -> None:
        """The vote belongs to its term."""
        self.ballot.raise_term(4)
        self.assertEqual(self._saves(), [HardState(4, "", joined=True)])

    def test_a_lower_term_changes_nothing(self) -> None:
        """The same term changes nothing either."""
        self.ballot.raise_term(2)
        self.ballot.raise_term(3)
        self.assertEqual((self.ballot.term, self._saves()), (3, []))

    def test_a_vote_is_given_once(self) -> None:
        """A second vote in a term is a mistake of the caller."""
        self.assertRaises(AssertionError, self.ballot.vote, "a")
        self.ballot.vote("b")
        self.assertEqual(self._saves(), [])

    def test_a_vote_from_an_earlier_life_does_not_lead(self) -> None:
        """Only a vote of this life permits the member to lead, and only until the term has a
        leader.
        """
        self.assertFalse(self.ballot.is_standing)
        self.ballot.stand_in_term(4)
        self.assertTrue(self.ballot.is_standing)
        self.ballot.end_standing()
        self.assertFalse(self.ballot.is_standing)

    def test_a_vote_counts_when_it_is_saved(self) -> None:
        """Before that, the candidate itself does not count it."""
        self.ballot.stand_in_term(4)
        self.assertFalse(self.ballot.is_saved)
        self.outbox.hard_state_saved(2)
        self.assertTrue(self.ballot.is_saved)

    def test_a_member_that_joins_does_not_vote_in_the_present_term(self) -> None:
        """The member may have voted in this term before its disk was wiped."""
        ballot = Ballot("b", HardState(5), self.outbox)
        self.assertRaises(AssertionError, ballot.stand_in_term, 6)
        ballot.join()
        self.assertEqual(self._saves(), [HardState(5, "b", joined=True)])
        self.assertFalse(ballot.is_standing)

    def test_a_member_that_has_lost_entries_has_not_joined(self) -> None:
        """Its term and its vote remain."""
        self.ballot.leave()
        self.assertEqual(self._saves(), [HardState(3, "b", joined=False)])
