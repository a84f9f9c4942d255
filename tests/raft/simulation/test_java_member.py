"""The double of Apache's member has its faults, and our members stand them."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.simulation.disk import Disk, DiskLog
from tests.raft.simulation.java_machine import MixedSimulation
from tests.raft.simulation.java_member import JavaMember
from twistmq.raft.actions import Action, Answer, Ask, Committed, Role
from twistmq.raft.events import Answered, Asked, Event, Started, Tick
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    Response,
    ResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from twistmq.raft.settings import MemberSettings

#: Seeds with one and with two members of Apache's.
SEEDS = ((range(40), 1), (range(2000, 2020), 2))


class LoneJava:
    """A member ``m`` of Apache's with the peers ``a`` and ``b``, whom a test plays."""

    def __init__(self, terms: tuple[int, ...] = (), state: HardState | None = None) -> None:
        disk = Disk()
        self.log = DiskLog(disk, lambda entry, previous: None, lambda index: None)
        for term in terms:
            self.log.extend(term, [b"x"])
        self.member = JavaMember(
            MemberSettings("g", "m", ("m", "a", "b")), self.log, state, -1)
        self.now_ms = 0
        self.actions: list[Action] = []
        self._questions = 0
        self.tell(Started())

    def tell(self, event: Event) -> list[Action]:
        """Pass an event."""
        actions = self.member.handle_event(event, self.now_ms, 0.5)
        self.actions += actions
        return actions

    def pass_time(self, duration_ms: int) -> None:
        """Let its threads work for a time."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.member.next_tick)
            self.tell(Tick())

    def ask(self, request: Request) -> Response | None:
        """Send a request and return the response, if there is one at once."""
        self._questions += 1
        answers = [action for action in self.tell(Asked(self._questions, request))
                   if isinstance(action, Answer)]
        return answers[0].response if answers else None

    def answer(self, kind: type[Request], response: Response, peers: str = "ab") -> None:
        """Answer the requests of a kind that were sent to some peers and have no answer yet."""
        asked = [action for action in self.actions if isinstance(action, Ask)
                 and isinstance(action.request, kind) and action.peer in peers]
        self.actions = [action for action in self.actions if action not in asked]
        for action in asked:
            self.tell(Answered(action.call, response))

    def lead(self) -> None:
        """Let it win its first election."""
        self.pass_time(400)
        self.answer(VoteRequest, VoteResponse(
            term=self.member.term, result=VoteResult.ACCEPT))
        self.tell(Tick())
        assert self.member.role is Role.LEADER, self.member.role


class FaultTests(SynchronousTestCase):
    """The faults of the table in ``java_member.py``."""

    def test_a_candidate_asks_again_in_its_term_after_a_restart(self) -> None:
        """J1: it has voted for itself in an earlier life, and may have led."""
        java = LoneJava((3,), HardState(3, "m", joined=True))
        java.lead()
        self.assertEqual(java.member.term, 3)

    def test_a_leader_commits_entries_of_older_terms(self) -> None:
        """J2: a peer has the entry of term 1, and no entry of term 4 is written."""
        java = LoneJava((1,), HardState(4, "", joined=True))
        java.lead()
        java.pass_time(1)
        java.answer(PushRequest, PushResponse(term=4, index=0, count=1, begin_index=0,
                                              end_index=0), "a")
        java.pass_time(1100)
        self.assertIn(Committed(0), java.actions)
        self.assertEqual([entry.term for entry in java.log.disk.entries], [1])

    def test_a_higher_term_is_ignored_with_a_majority(self) -> None:
        """J3: the peer that is in the higher term stays away for ever."""
        java = LoneJava((1,), HardState(4, "", joined=True))
        java.lead()
        for _ in range(10):
            java.answer(HeartbeatRequest, HeartbeatResponse(), "a")
            java.answer(HeartbeatRequest, HeartbeatResponse(
                ResponseCode.EXPIRED_TERM, term=9), "b")
            java.pass_time(2000)
        self.assertEqual((java.member.role, java.member.term), (Role.LEADER, 4))

    def push(self, java: LoneJava, kind: PushType, term: int, entry: Entry) -> Response | None:
        """Push as the leader ``a``."""
        return java.ask(PushRequest("g", "a", "m", term, "a", kind, -1, (entry,)))

    def test_a_repeated_push_is_kept_and_answered_413(self) -> None:
        """J4: for ever, because the entry is there already."""
        java = LoneJava((1,), HardState(1, "a", joined=True))
        java.ask(HeartbeatRequest("g", "a", "m", 1, "a"))
        entry = java.log.entry_at(0)
        self.assertIsNone(self.push(java, PushType.APPEND, 1, entry))
        for _ in range(3):
            java.pass_time(1000)
            response = self.push(java, PushType.APPEND, 1, entry)
            assert response is not None
            self.assertIs(response.code, ResponseCode.REPEATED_PUSH)

    def test_comparisons_are_answered_in_any_term(self) -> None:
        """J7: also those of a leader that it does not follow."""
        java = LoneJava((1,), HardState(1, "a", joined=True))
        java.ask(HeartbeatRequest("g", "a", "m", 1, "a"))
        response = self.push(java, PushType.COMPARE, 8, java.log.entry_at(0))
        assert response is not None
        self.assertIs(response.code, ResponseCode.SUCCESS)


class MixedTests(SynchronousTestCase):
    """``MixedSimulation``: ``python -m tests.long.dledger_core --java 1`` runs many seeds."""

    def test_our_members_keep_the_rules_beside_apaches(self) -> None:
        """In groups with one and with two members of Apache's."""
        missing = {"kill", "stop", "cut_one", "cut_off", "lose_messages", "transfer", "wipe"}
        led = set()
        for seeds, java_count in SEEDS:
            for seed in seeds:
                simulation = MixedSimulation(seed, java_count)
                simulation.run()
                missing -= simulation.faults.counts.keys()
                led |= {simulation.machines[name].is_java
                        for name, _ in simulation.ghosts.leaders.values()}
        self.assertEqual((missing, led), (set(), {False, True}))
