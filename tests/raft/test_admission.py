"""A member without a hard state grants no vote before it knows that it may."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import LoneMember, entries_of
from twistmq.raft.events import CallFailed, Flushed
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import (
    PushType,
    ResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)

REFUSED = VoteResult.REJECT_EXPIRED_VOTE_TERM


class JoiningTests(SynchronousTestCase):
    """The member ``b`` of three members, with an empty disk."""

    def _tell_terms(self, member: LoneMember, **terms: int) -> None:
        for peer, term in terms.items():
            member.answer(member.asks(VoteRequest, peer)[-1],
                          VoteResponse(term=term, result=REFUSED))

    def test_it_asks_for_the_terms_until_all_have_answered(self) -> None:
        """No vote is granted in the term of its inquiry."""
        member = LoneMember()
        self.assertEqual([ask.request for ask in member.asks(VoteRequest)],
                         [VoteRequest("g", "b", peer, -1, "b") for peer in "ac"])
        self._tell_terms(member, a=3)
        member.wait(1500)
        self.assertEqual([ask.peer for ask in member.asks(VoteRequest)], ["a", "c"])
        member.tell(CallFailed(member.asks(VoteRequest, "c")[-1].call))
        member.wait(300)
        self.assertEqual([ask.peer for ask in member.asks(VoteRequest)], ["a", "c", "c"])

    def test_it_asks_a_peer_that_starts_at_once(self) -> None:
        """The peer's own inquiry shows that it can be reached now; one call at a time is enough."""
        member = LoneMember()
        first = member.asks(VoteRequest, "c")
        member.tell(CallFailed(first[-1].call))
        member.vote(-1, candidate="c")
        self.assertEqual(len(member.asks(VoteRequest, "c")), 2)
        member.vote(-1, candidate="c")
        self.assertEqual(len(member.asks(VoteRequest, "c")), 2)
        self._tell_terms(member, a=0, c=0)
        self.assertTrue(member.member.has_joined)
        member.vote(-1, candidate="c")
        self.assertEqual(len(member.asks(VoteRequest, "c")), 2)

    def test_a_new_group(self) -> None:
        """All members are in the term 0, so there has never been a leader; the term 0 itself is not
        led.
        """
        member = LoneMember()
        self._tell_terms(member, a=0)
        self.assertFalse(member.member.has_joined)
        self._tell_terms(member, c=0)
        self.assertEqual(member.member.hard_state, HardState(0, "b", joined=True))

    def test_a_group_that_is_led_in_its_term_0(self) -> None:
        """Members of Apache's may do that: a peer has entries, so the group is not new."""
        member = LoneMember()
        self._tell_terms(member, a=0)
        member.answer(member.asks(VoteRequest, "c")[-1], VoteResponse(
            term=0, result=VoteResult.REJECT_EXPIRED_LEDGER_TERM))
        self.assertFalse(member.member.has_joined)

    def test_a_wiped_member_grants_no_vote_and_does_not_stand(self) -> None:
        """This holds for every candidate and for any time."""
        member = LoneMember()
        self._tell_terms(member, a=3, c=2)
        self.assertEqual(member.member.hard_state, HardState(3, "", joined=False))
        response = member.vote(9)
        assert response is not None
        self.assertIs(response.result, VoteResult.UNKNOWN)
        member.wait(60_000)
        self.assertEqual({ask.request.term for ask in member.asks(VoteRequest)}, {-1})

    def test_it_acknowledges_nothing_before_it_knows_the_terms(self) -> None:
        """The member may have voted for the leader of a later term."""
        member = LoneMember()
        entry = entries_of(3)[0]
        [answer] = member.push(PushType.TRUNCATE, 3, entry)
        self.assertIs(answer.code, ResponseCode.LEADER_NOT_READY)
        self.assertEqual(member.log.end_index, -1)
        self._tell_terms(member, a=3, c=5)
        [answer] = member.push(PushType.TRUNCATE, 3, entry)
        self.assertIs(answer.code, ResponseCode.EXPIRED_TERM)

    def _caught_up(self, member: LoneMember, commit: int) -> None:
        """Follow ``a`` in the term 3, with its entries of the terms 2, 2 and 3."""
        entries = entries_of(2, 2, 3)
        self._tell_terms(member, a=3, c=3)
        member.push(PushType.COMPARE, 3, entries[2], commit=commit)
        member.push(PushType.TRUNCATE, 3, entries[0], commit=commit)
        member.push(PushType.APPEND, 3, *entries[1:], commit=commit)

    def test_it_joins_with_all_committed_entries_of_an_established_leader(self) -> None:
        """From then on it votes, but not in the current term."""
        member = LoneMember()
        self._caught_up(member, 2)
        self.assertEqual(member.member.hard_state, HardState(3, "a", joined=True))
        response = member.vote(4)
        assert response is not None
        self.assertIs(response.result, VoteResult.ACCEPT)

    def test_it_does_not_join_by_what_a_new_leader_knows(self) -> None:
        """Before its own barrier is committed, that leader may know too low a committed index."""
        member = LoneMember()
        self._caught_up(member, 1)
        self.assertFalse(member.member.has_joined)
        member.push(PushType.COMMIT, 3, commit=2)
        self.assertTrue(member.member.has_joined)

    def test_it_does_not_join_before_the_end_that_the_leader_had(self) -> None:
        """A leader of Apache's may lead its term again, and know less than it did."""
        member = LoneMember()
        entries = entries_of(3, 3, 3)
        self._tell_terms(member, a=3, c=3)
        member.push(PushType.COMPARE, 3, entries[2], commit=0)
        member.push(PushType.TRUNCATE, 3, entries[0], commit=0)
        member.push(PushType.APPEND, 3, *entries[1:], commit=1)
        self.assertFalse(member.member.has_joined)
        member.push(PushType.COMMIT, 3, commit=2)
        self.assertTrue(member.member.has_joined)

    def test_it_insists_on_a_comparison(self) -> None:
        """Otherwise it does not know how far the log of the leader goes."""
        member = LoneMember()
        entry = entries_of(3)[0]
        self._tell_terms(member, a=3, c=3)
        for kind in (PushType.TRUNCATE, PushType.APPEND):
            [answer] = member.push(kind, 3, entry)
            self.assertIs(answer.code, ResponseCode.INCONSISTENT_STATE)
        self.assertEqual(member.log.end_index, -1)

    def test_it_joins_when_the_entries_are_durable(self) -> None:
        """A loss of power could remove the entries again."""
        member = LoneMember()
        self._tell_terms(member, a=3, c=3)
        member.push(PushType.COMPARE, 3, entries_of(3)[0], commit=-1)
        member.push(PushType.TRUNCATE, 3, entries_of(3)[0], commit=-1)
        member.holds_disk = True
        member.push(PushType.APPEND, 3, *entries_of(3, first=1), commit=1)
        self.assertFalse(member.member.has_joined)
        member.tell(Flushed(2))
        self.assertTrue(member.member.has_joined)

    def test_a_log_that_has_lost_committed_entries(self) -> None:
        """Such a member counts as wiped, and this is on the disk before it answers anything."""
        member = LoneMember(terms=(1, 1), state=HardState(4, "a", joined=True), committed=5)
        self.assertEqual(member.member.hard_state, HardState(4, "a", joined=False))
        self.assertEqual(member.member.committed_index, 1)

    def test_a_log_without_a_hard_state(self) -> None:
        """Its term is at least the term of its last entry, and its vote in that term is unknown."""
        member = LoneMember(terms=(1, 6))
        self.assertEqual(member.member.hard_state, HardState(6, "", joined=False))

    def test_answers_without_a_term_do_not_count(self) -> None:
        """The member ignores such an answer."""
        member = LoneMember()
        self._tell_terms(member, a=-1, c=0)
        self.assertFalse(member.member.has_joined)
