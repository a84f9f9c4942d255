"""The transferee's part in a transfer of the lead."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import LoneMember, entries_of
from twistmq.raft.actions import Answer, Role
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import (
    PushType,
    ResponseCode,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)


class TakingTests(SynchronousTestCase):
    """A follower of ``a`` in the term 5 with three entries."""

    def setUp(self) -> None:
        """Make the follower."""
        self.member = LoneMember(terms=(5, 5, 5), state=HardState(5, "a", joined=True))
        self.member.push(PushType.COMPARE, 5, self.member.log.entries[-1])

    def answers(self) -> list[ResponseCode]:
        """Return the answers to transfer requests so far."""
        return [answer.response.code for answer in self.member.find(Answer)
                if isinstance(answer.response, TransferResponse)]

    def test_it_stands_at_once_with_all_entries(self) -> None:
        """It stands in a new term, and answers when it leads."""
        self.assertEqual(self.member.take_lead(5, 2), [])
        asks = self.member.asks(VoteRequest)
        self.assertEqual([ask.request.term for ask in asks], [6, 6])
        self.member.answer(asks[0], VoteResponse(term=6, result=VoteResult.ACCEPT))
        self.assertIs(self.member.member.role, Role.LEADER)
        self.assertEqual(self.answers(), [ResponseCode.SUCCESS])

    def test_it_waits_for_entries(self) -> None:
        """It waits for a second at most."""
        self.member.take_lead(5, 3)
        self.assertEqual(self.member.asks(VoteRequest), [])
        self.member.push(PushType.APPEND, 5, *entries_of(5, first=3))
        self.assertEqual(len(self.member.asks(VoteRequest)), 2)

    def test_entries_that_do_not_come(self) -> None:
        """The leader gets a failure."""
        self.member.take_lead(5, 3)
        self.member.wait(1000)
        self.assertEqual(self.answers(), [ResponseCode.TAKE_LEADERSHIP_FAILED])
        self.assertIs(self.member.member.role, Role.FOLLOWER)

    def test_it_tries_again_with_short_waits(self) -> None:
        """It tries again until its time is over."""
        self.member.take_lead(5, 2)
        for ask in self.member.asks(VoteRequest):
            self.member.answer(ask, VoteResponse(term=6, result=VoteResult.REJECT_ALREADY_VOTED))
        self.member.wait(100)
        self.assertEqual([ask.request.term for ask in self.member.asks(VoteRequest)],
                         [6, 6, 7, 7])
        self.member.wait(2900)
        self.assertEqual(self.answers(), [ResponseCode.TAKE_LEADERSHIP_FAILED])

    def test_another_leader(self) -> None:
        """Another leader ends the takeover, before or while the member stands."""
        for take_index in (2, 9):
            self.setUp()
            self.member.take_lead(5, take_index)
            self.member.heartbeat(7, "c")
            self.assertEqual(self.answers(), [ResponseCode.EXPIRED_TERM], take_index)

    def test_wishes_that_are_refused(self) -> None:
        """A request of another term or leader, one to a member that does not follow, and a second
        one are refused.
        """
        for term, leader, expected in ((4, "a", ResponseCode.INCONSISTENT_TERM),
                                       (5, "c", ResponseCode.INCONSISTENT_LEADER)):
            [answer] = self.member.take_lead(term, 2, leader)
            self.assertIs(answer.code, expected)
        self.member.take_lead(5, 9)
        [answer] = self.member.take_lead(5, 2)
        self.assertIs(answer.code, ResponseCode.TAKE_LEADERSHIP_FAILED)
        [answer] = LoneMember(state=HardState(5, "", joined=True)).take_lead(5, -1)
        self.assertIs(answer.code, ResponseCode.NOT_FOLLOWER)

    def test_a_member_that_has_not_joined_does_not_lead(self) -> None:
        """The member may lack committed entries."""
        member = LoneMember()
        member.heartbeat(5)
        [answer] = member.take_lead(5, -1)
        self.assertIs(answer.code, ResponseCode.TAKE_LEADERSHIP_FAILED)
