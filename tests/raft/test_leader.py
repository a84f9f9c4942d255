"""A leader: its barrier, its commits, its refusals, and the reasons to step down."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import LoneMember
from twistmq.raft.actions import (
    Ask,
    Committed,
    Complained,
    FlushLog,
    LeadEstablished,
    Proposed,
    Refused,
    Role,
    RoleChanged,
)
from twistmq.raft.events import Appended, Flushed, Propose, StorageFailed
from twistmq.raft.hard_state import HardState
from twistmq.raft.log import LogError, LogRejected
from twistmq.raft.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResponseCode,
)


class LeaderTests(SynchronousTestCase):
    """A leader in the term 6 with three entries of the term 5, whose barrier is the entry 3."""

    def leading(self, **settings: object) -> LoneMember:
        """Make the leader."""
        return LoneMember(terms=(5, 5, 5), state=HardState(5, "a", joined=True),
                          **settings).elect()

    def established(self, **settings: object) -> LoneMember:
        """Let ``a`` have the barrier."""
        leader = self.leading(**settings)
        leader.acknowledge()
        self.assertTrue(leader.member.is_established)
        return leader

    def answer_heartbeats(self, leader: LoneMember, response: HeartbeatResponse | None,
                          peers: str = "ac") -> None:
        """Answer the last heartbeats."""
        for peer in peers:
            leader.answer(leader.asks(HeartbeatRequest, peer)[-1], response)

    def codes(self, leader: LoneMember) -> list[ResponseCode]:
        """Return the codes of all refusals."""
        return [refused.code for refused in leader.find(Refused)]

    def test_entries_of_earlier_terms_are_committed_with_the_barrier_only(self) -> None:
        """The copies of a majority are not enough."""
        leader = self.leading()
        self.assertEqual(leader.log.entries[3].term, 6)
        leader.acknowledge(code=ResponseCode.INCONSISTENT_STATE, end=2)
        leader.acknowledge(end=2)
        self.assertEqual(leader.find(Committed), [])
        leader.acknowledge()
        self.assertEqual(leader.find(Committed), [Committed(3)])
        self.assertEqual(leader.find(LeadEstablished), [LeadEstablished(6, 3)])

    def test_nothing_is_accepted_before_the_barrier_is_committed(self) -> None:
        """Afterwards entries are accepted."""
        leader = self.leading()
        leader.tell(Propose(1, (b"x",)))
        self.assertEqual(leader.find(Refused), [Refused(1, ResponseCode.LEADER_NOT_READY)])
        self.assertFalse(leader.member.is_appendable)
        leader.acknowledge()
        self.assertTrue(leader.member.is_appendable)
        leader.tell(Propose(2, (b"x", b"y")))
        self.assertEqual(leader.find(Proposed), [Proposed(2, 6, 4, 5)])

    def test_others_refuse_all_proposals(self) -> None:
        """Other members do not lead."""
        member = LoneMember(state=HardState(5, "a", joined=True))
        member.tell(Propose(1, (b"x",)))
        self.assertEqual(self.codes(member), [ResponseCode.NOT_LEADER])

    def test_entries_that_the_driver_has_appended(self) -> None:
        """The entries are synced and pushed at once."""
        leader = self.established()
        leader.log.extend(6, [b"x"])
        actions = leader.tell(Appended())
        self.assertEqual([action.request.entries[0].body for action in actions
                          if isinstance(action, Ask) and action.peer == "a"], [b"x"])
        leader.acknowledge()
        self.assertEqual(leader.member.committed_index, 4)

    def test_entries_wait_for_a_majority_and_for_the_own_disk(self) -> None:
        """An entry that the leader itself may lose is not committed."""
        leader = self.established()
        leader.holds_disk = True
        leader.tell(Propose(1, (b"x",)))
        leader.acknowledge("a")
        leader.answer(leader.asks(PushRequest, "c")[-1], PushResponse(
            ResponseCode.INCONSISTENT_STATE, 6, "", 3, 1, 0, 3))
        self.assertEqual(leader.member.committed_index, 3)
        leader.tell(Flushed(leader.find(FlushLog)[-1].number))
        self.assertEqual(leader.member.committed_index, 4)

    def test_too_many_waiting_entries(self) -> None:
        """Further entries are refused, but a single large batch is not."""
        leader = self.established(pending_entries_max=3)
        leader.tell(Propose(1, (b"x",) * 5))
        leader.tell(Propose(2, (b"y",)))
        self.assertEqual(self.codes(leader), [ResponseCode.LEADER_PENDING_FULL])
        leader.acknowledge()
        leader.tell(Propose(3, (b"y",)))
        self.assertEqual(len(leader.find(Proposed)), 2)

    def test_proposals_without_sense(self) -> None:
        """The cases are an empty proposal, and one that the log refuses."""
        leader = self.established()
        leader.tell(Propose(1, ()))

        def refuse(term: int, bodies: object) -> None:
            raise LogRejected("too large")
        self.patch(leader.log, "extend", refuse)
        leader.tell(Propose(2, (b"x",)))
        self.assertEqual(self.codes(leader), [ResponseCode.UNEXPECTED_ARGUMENT] * 2)

    def test_heartbeats(self) -> None:
        """They are sent every two seconds, and at once after the election."""
        leader = self.leading()
        self.assertEqual(len(leader.asks(HeartbeatRequest, "a")), 1)
        self.answer_heartbeats(leader, HeartbeatResponse())
        leader.wait(1999)
        self.assertEqual(len(leader.asks(HeartbeatRequest, "a")), 1)
        leader.wait(1)
        self.assertEqual(len(leader.asks(HeartbeatRequest, "a")), 2)

    def test_a_leader_that_no_majority_hears_steps_down(self) -> None:
        """It steps down after three intervals; the answer of one peer of two is enough to stay."""
        leader = self.leading()
        for _ in range(10):
            self.answer_heartbeats(leader, HeartbeatResponse(), "a")
            leader.wait(2000)
        self.assertIs(leader.member.role, Role.LEADER)
        leader.wait(4000)
        self.assertIs(leader.member.role, Role.LEADER)
        leader.wait(1)
        self.assertIs(leader.member.role, Role.CANDIDATE)
        self.assertIs(leader.find(RoleChanged)[-1].role, Role.CANDIDATE)

    def test_refusals_do_not_keep_a_leader(self) -> None:
        """Failed calls do not keep it either."""
        for response in (HeartbeatResponse(ResponseCode.INCONSISTENT_LEADER, 6), None):
            leader = self.leading()
            for _ in range(4):
                self.answer_heartbeats(leader, response)
                leader.wait(2000)
            self.assertIs(leader.member.role, Role.CANDIDATE, response)

    def test_a_higher_term_ends_the_lead(self) -> None:
        """This holds even while a majority follows: otherwise that member could never return."""
        leader = self.leading()
        self.answer_heartbeats(leader, HeartbeatResponse(ResponseCode.EXPIRED_TERM, 9), "c")
        self.assertEqual((leader.member.role, leader.member.term), (Role.CANDIDATE, 9))
        self.assertFalse(leader.member.is_appendable)

    def test_a_follower_that_is_about_to_reach_the_term(self) -> None:
        """The leader asks it again soon."""
        leader = self.leading()
        self.answer_heartbeats(leader, HeartbeatResponse(ResponseCode.TERM_NOT_READY, 6), "a")
        leader.wait(50)
        self.assertEqual(len(leader.asks(HeartbeatRequest, "a")), 2)

    def test_refused_heartbeats_are_told_once(self) -> None:
        """There is one line for each change."""
        leader = self.leading()
        for code in (ResponseCode.UNKNOWN_GROUP, ResponseCode.UNKNOWN_GROUP,
                     ResponseCode.UNKNOWN_MEMBER):
            self.answer_heartbeats(leader, HeartbeatResponse(code, 6), "c")
            leader.acknowledge("a")
            leader.wait(2000)
        self.assertEqual([complaint.peer for complaint in leader.find(Complained)], ["c", "c"])

    def test_a_failing_log_ends_the_lead(self) -> None:
        """It ends at the barrier, at a proposal, or when a read fails."""
        def fail(*arguments: object) -> None:
            raise LogError("no space left")
        for method in ("extend", "read"):
            leader = self.established()
            self.patch(leader.log, method, fail)
            leader.tell(Propose(1, (b"x",)))
            self.assertIs(leader.member.role, Role.CANDIDATE, method)
        self.assertEqual(self.codes(leader), [])
        member = LoneMember(state=HardState(5, "a", joined=True))
        self.patch(member.log, "append_barrier", fail)
        self.assertRaisesRegex(AssertionError, "does not lead", member.elect)

    def test_a_failed_sync_ends_the_lead(self) -> None:
        """It ends in the same turn, and the sync commits no entry."""
        leader = self.established()
        leader.tell(StorageFailed("EIO"))
        self.assertIs(leader.member.role, Role.CANDIDATE)
        self.assertFalse(leader.member.is_appendable)

    def test_answers_to_an_ended_lead_are_ignored(self) -> None:
        """A deposed leader does not commit the entry."""
        leader = self.established()
        leader.tell(Propose(1, (b"x",)))
        leader.vote(9)
        leader.acknowledge()
        self.assertEqual(leader.member.committed_index, 3)
        self.assertEqual(leader.member.term, 9)

    def test_a_push_carries_the_committed_index(self) -> None:
        """Followers learn it with the next push."""
        leader = self.established()
        leader.tell(Propose(1, (b"x",)))
        push = leader.pushes()[-1]
        self.assertEqual((push.type, push.commit_index), (PushType.APPEND, 3))
