"""Each result of a vote and its condition, in DLedger's order."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import LoneMember
from twistmq.raft.actions import Answer, Role
from twistmq.raft.events import HardStateSaved, StorageFailed
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import VoteRequest, VoteResponse, VoteResult


class VoterTests(SynchronousTestCase):
    """A voter in the term 5 whose log ends with the entry 3 of the term 4."""

    def _member(self, voted_for: str = "") -> LoneMember:
        return LoneMember(terms=(1, 1, 4, 4), state=HardState(5, voted_for, joined=True))

    def _result(self, member: LoneMember, term: int, end_index: int, end_term: int,
                candidate: str = "a") -> tuple[VoteResult, int]:
        response = member.vote(term, candidate=candidate, end_index=end_index, end_term=end_term)
        assert response is not None
        return response.result, response.term

    def test_strangers(self) -> None:
        """Neither an unknown candidate nor the voter itself gets a vote."""
        self.assertEqual(self._result(self._member(), 9, 9, 9, "z"),
                         (VoteResult.REJECT_UNKNOWN_LEADER, 5))
        self.assertEqual(self._result(self._member(), 9, 9, 9, "b"),
                         (VoteResult.REJECT_UNEXPECTED_LEADER, 5))

    def test_the_candidate_is_the_sender(self) -> None:
        """A member cannot stand for another one."""
        member = self._member()
        answers = member.ask(VoteRequest("g", "c", "b", 9, "a", 9, 9))
        self.assertEqual([answer.result for answer in answers if isinstance(answer, VoteResponse)],
                         [VoteResult.REJECT_UNKNOWN_LEADER])

    def test_shorter_logs(self) -> None:
        """The logs are compared before the terms, and the term is not adopted."""
        self.assertEqual(self._result(self._member(), 9, 99, 3),
                         (VoteResult.REJECT_EXPIRED_LEDGER_TERM, 5))
        self.assertEqual(self._result(self._member(), 9, 2, 4),
                         (VoteResult.REJECT_SMALL_LEDGER_END_INDEX, 5))

    def test_terms(self) -> None:
        """An old term is refused, and a new one is adopted with the vote."""
        self.assertEqual(self._result(self._member(), 4, 3, 4),
                         (VoteResult.REJECT_EXPIRED_VOTE_TERM, 5))
        member = self._member("c")
        self.assertEqual(self._result(member, 6, 3, 4), (VoteResult.ACCEPT, 6))
        self.assertEqual(member.member.hard_state, HardState(6, "a", joined=True))

    def test_a_vote_of_the_term_is_given_once(self) -> None:
        """A vote for the same candidate is confirmed."""
        self.assertEqual(self._result(self._member(), 5, 3, 4), (VoteResult.ACCEPT, 5))
        self.assertEqual(self._result(self._member("a"), 5, 3, 4), (VoteResult.ACCEPT, 5))
        self.assertEqual(self._result(self._member("c"), 5, 3, 4),
                         (VoteResult.REJECT_ALREADY_VOTED, 5))

    def test_a_follower_tells_of_its_leader(self) -> None:
        """Therefore the candidate does not raise its term."""
        member = self._member()
        member.heartbeat(5, "c")
        self.assertEqual(self._result(member, 5, 3, 4), (VoteResult.REJECT_ALREADY_HAS_LEADER, 5))

    def test_a_leader_tells_of_itself(self) -> None:
        """It does so until a suitable candidate of a higher term deposes it."""
        member = LoneMember(state=HardState(5, "", joined=True)).elect()
        term = member.member.term
        self.assertEqual(self._result(member, term, 9, 9)[0],
                         VoteResult.REJECT_ALREADY_HAS_LEADER)
        self.assertEqual(self._result(member, term + 1, 9, 9)[0], VoteResult.ACCEPT)
        self.assertIs(member.member.role, Role.CANDIDATE)

    def test_the_answer_leaves_when_the_vote_is_durable(self) -> None:
        """The answer is not sent before."""
        member = self._member()
        member.holds_disk = True
        self.assertIsNone(member.vote(5, end_index=3, end_term=4))
        member.tell(HardStateSaved(1))
        self.assertIs(member.find(Answer)[-1].response.result, VoteResult.ACCEPT)

    def test_a_failed_disk_grants_no_vote(self) -> None:
        """The answer is not a valid one."""
        member = self._member()
        member.tell(StorageFailed("EIO"))
        self.assertEqual(self._result(member, 9, 9, 9), (VoteResult.UNKNOWN, 5))
