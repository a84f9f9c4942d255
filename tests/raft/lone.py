"""One member without its group; the test acts for the peers, the disk and the clock."""

from dataclasses import replace
from typing import TypeVar

from twistmq.raft.actions import Action, Answer, Ask, FlushLog, SaveHardState
from twistmq.raft.events import (
    Answered,
    Asked,
    CallFailed,
    Event,
    Flushed,
    HardStateSaved,
    Started,
    Tick,
)
from twistmq.raft.hard_state import HardState
from twistmq.raft.member import Member
from twistmq.raft.memory_log import MemoryLog
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    Response,
    ResponseCode,
    TransferRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from twistmq.raft.settings import MemberSettings

__all__ = ["LoneMember", "entries_of"]

Kind = TypeVar("Kind")


def entries_of(*terms: int, first: int = 0) -> list[Entry]:
    """Return entries with these terms."""
    return [Entry(index, term, b"%d" % index) for index, term in enumerate(terms, first)]


class LoneMember:
    """The member ``b`` of the group ``abc``; its disk works at once except with ``holds_disk``."""

    def __init__(self, *, terms: tuple[int, ...] = (), state: HardState | None = None,
                 committed: int = -1, members: str = "abc", draw: float = 0.5,
                 **settings: object) -> None:
        """Start with entries of these terms, by default as a member that has joined."""
        self.log = MemoryLog(entries_of(*terms))
        self.draw = draw
        self.now_ms = 0
        self.holds_disk = False
        #: All actions that the member has requested.
        self.actions: list[Action] = []
        self._questions = 0
        base = MemberSettings("g", "b", tuple(members))
        self.member = Member(replace(base, **settings), self.log, state, committed)
        self.tell(Started())

    # --- Events ---

    def tell(self, event: Event) -> list[Action]:
        """Pass an event, let the disk work, and return all resulting actions."""
        actions = self.member.handle_event(event, self.now_ms, self.draw)
        self.actions += actions
        if not self.holds_disk:
            for action in list(actions):
                match action:
                    case SaveHardState(number):
                        actions += self.tell(HardStateSaved(number))
                    case FlushLog(number):
                        actions += self.tell(Flushed(number))
        return actions

    def wait(self, duration_ms: int) -> list[Action]:
        """Let time pass, with all ticks, and return the actions."""
        end_ms = self.now_ms + duration_ms
        actions: list[Action] = []
        for _ in range(10_000):
            if self.member.next_tick > end_ms:
                break
            self.now_ms = max(self.now_ms, self.member.next_tick)
            actions += self.tell(Tick())
        else:
            raise AssertionError("the member wants a tick all the time")
        self.now_ms = end_ms
        return actions

    def ask(self, request: Request) -> list[Response]:
        """Send a request as a peer, and return the answers to this and earlier requests."""
        self._questions += 1
        actions = self.tell(Asked(self._questions, request))
        return [action.response for action in actions if isinstance(action, Answer)]

    def answer(self, call: Ask | int, response: Response | None) -> list[Action]:
        """Answer a request of the member; None: the request fails."""
        number = call if isinstance(call, int) else call.call
        return self.tell(CallFailed(number) if response is None else Answered(number, response))

    # --- What the member wants ---

    def find(self, kind: type[Kind]) -> list[Kind]:
        """Return all actions of a kind so far."""
        return [action for action in self.actions if isinstance(action, kind)]

    def asks(self, kind: type[Request], peer: str = "") -> list[Ask]:
        """Return all requests of a kind so far."""
        return [ask for ask in self.find(Ask)
                if isinstance(ask.request, kind) and peer in ("", ask.peer)]

    def pushes(self, peer: str = "a") -> list[PushRequest]:
        """Return all pushes to a peer so far."""
        return [ask.request for ask in self.asks(PushRequest, peer)
                if isinstance(ask.request, PushRequest)]

    # --- Requests of a peer ---

    def vote(self, term: int, *, candidate: str = "a", end_index: int = 100,
             end_term: int = 100) -> VoteResponse | None:
        """Ask for a vote and return the answer; None: there is no answer yet."""
        answers = self.ask(VoteRequest("g", candidate, "b", term, candidate, end_index, end_term))
        assert all(isinstance(answer, VoteResponse) for answer in answers)
        return answers[-1] if answers else None

    def heartbeat(self, term: int, leader: str = "a") -> Response | None:
        """Send a heartbeat and return the answer; None: there is no answer yet."""
        answers = self.ask(HeartbeatRequest("g", leader, "b", term, leader))
        return answers[-1] if answers else None

    def push(self, kind: PushType, term: int, *entries: Entry, commit: int = -1,
             leader: str = "a") -> list[PushResponse]:
        """Push as a leader and return the answers to this and earlier pushes."""
        answers = self.ask(PushRequest("g", leader, "b", term, leader, kind, commit,
                                       tuple(entries)))
        assert all(isinstance(answer, PushResponse) for answer in answers)
        return answers

    def take_lead(self, term: int, take_index: int, leader: str = "a") -> list[Response]:
        """Ask the member to take the lead and return the answers."""
        return self.ask(TransferRequest("g", leader, "b", term, leader, leader, "b", take_index))

    # --- Roles ---

    def elect(self) -> "LoneMember":
        """Make the member the leader by the votes of its peers."""
        for _ in range(10):
            self.wait(5000)
            for ask in self.asks(VoteRequest)[-2:]:
                self.answer(ask, VoteResponse(term=ask.request.term, result=VoteResult.ACCEPT))
            if self.member.role.value == "leader":
                return self
        raise AssertionError("it does not lead")

    def acknowledge(self, peer: str = "a", *, code: ResponseCode = ResponseCode.SUCCESS,
                    begin: int = 0, end: int | None = None) -> list[Action]:
        """Answer the last push to a peer, by default as if the peer had all its entries."""
        ask = self.asks(PushRequest, peer)[-1]
        request = ask.request
        assert isinstance(request, PushRequest)
        index = request.entries[0].index if request.entries else -1
        count = len(request.entries)
        return self.answer(ask, PushResponse(
            code, request.term, "b", index, count, begin,
            index + count - 1 if end is None else end))
