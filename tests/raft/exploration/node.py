"""One member of an explored group, with its disk, as a pure function of its events.

An exploration meets the same member with the same event very often, in groups that differ
elsewhere. ``Nodes`` therefore handles each pair of a node and an event once, and numbers the nodes
that it meets. Two nodes are the same one if all of their values are equal; times count from the
present.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tests.raft.simulation.disk import Disk, DiskLog
from tests.raft.simulation.world import InvariantBroken
from twistmq.raft.actions import (
    Action,
    Answer,
    Ask,
    Committed,
    FlushLog,
    LeadEstablished,
    Role,
    SaveHardState,
)
from twistmq.raft.events import Asked, Event, Flushed, HardStateSaved, Started, Tick
from twistmq.raft.hard_state import HardState
from twistmq.raft.member import Member
from twistmq.raft.messages import (
    Entry,
    PushRequest,
    PushType,
    Request,
    Response,
    ResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from twistmq.raft.settings import MemberSettings

__all__ = ["Facts", "Node", "Nodes", "Output", "Step"]

#: All events of a member have this draw; the clocks of the members are independent anyway.
_DRAW: Final = 0.5
#: Times that are longer ago than this have the same effects.
_LONG_AGO_MS: Final = -20_000
#: Types whose objects are values that never change.
_VALUES: Final = (
    str, bytes, bool, float, Enum, MemberSettings, Entry, HardState, Request, Response)


@dataclass(frozen=True, slots=True)
class Output:
    """A message that a node sends: a request with its call, or the response to a question."""

    #: The number of the call, or of the question.
    number: int
    peer: str
    content: Request | Response


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules of a group need to know of a node."""

    name: str
    life: int
    role: Role
    term: int
    entries: tuple[Entry, ...]
    #: The entries that survive a loss of power.
    synced: tuple[Entry, ...]
    committed_index: int
    is_established: bool
    is_appendable: bool
    #: Whether a hard state or a sync of the log is under way.
    is_saving: bool
    is_syncing: bool
    #: How many states the disk may have after a loss of power.
    crash_count: int


@dataclass(frozen=True, slots=True)
class Step:
    """The result of an event: the number of the next node, and the messages that it sends."""

    node: int
    outputs: tuple[Output, ...]


class Node:
    """A machine of the explored group. It checks the rules that concern one member alone."""

    def __init__(self, settings: MemberSettings, state: HardState, *, is_disk_slow: bool) -> None:
        self.settings = settings
        self.is_disk_slow = is_disk_slow
        self.disk = Disk()
        self.disk.hard_state = state
        self.log = DiskLog(self.disk, _ignore, _ignore)
        self.life = 0
        self.now_ms = 0
        self.committed_index = -1
        self.saving: list[tuple[int, HardState]] = []
        self.syncing: list[tuple[int, int]] = []
        self.questions: dict[int, Request] = {}
        #: The votes that were told, by term, in all lives.
        self.votes: dict[int, str] = {}
        self.member: Member
        self.outputs: list[Output] = []

    def start(self) -> None:
        """Begin a life with what is on the disk."""
        self.life += 1
        self.saving.clear()
        self.syncing.clear()
        self.questions.clear()
        self.disk.sync_all()
        self.member = Member(
            self.settings, self.log, self.disk.hard_state, self.disk.committed_index)
        self.committed_index = self.member.committed_index
        self.handle(Started())

    def crash(self, outcome: int) -> None:
        """Lose the power, and begin again with one of the states that the disk may have then."""
        states = [self.disk.hard_state, *(state for _, state in self.saving)]
        choice, which = divmod(outcome, len(states))
        self.disk.hard_state = states[which]
        self.disk.entries = self.disk._states[choice][1][:]
        self.start()

    def handle(self, event: Event) -> None:
        """Pass an event to the member, and what its disk does at once."""
        if isinstance(event, Tick):
            self.now_ms = max(self.now_ms, self.member.next_tick)
        elif isinstance(event, Asked):
            self.questions[event.question] = event.request
        events: list[Event] = [event]
        while events:
            for action in self.member.handle_event(events.pop(0), self.now_ms, _DRAW):
                events += self._carry_out(action)
            if self.member.term < self._durable_term:
                raise InvariantBroken("I3", f"the term of {self.settings.member_id} falls")

    def end_save(self) -> None:
        """The oldest hard state under way is durable."""
        number, state = self.saving.pop(0)
        self.disk.hard_state = state
        self.handle(HardStateSaved(number))

    def end_sync(self) -> None:
        """The oldest sync under way has succeeded."""
        number, log_state = self.syncing.pop(0)
        self.disk.end_sync(log_state)
        self.handle(Flushed(number))

    @property
    def _durable_term(self) -> int:
        return self.disk.hard_state.term if self.disk.hard_state is not None else 0

    def _carry_out(self, action: Action) -> Sequence[Event]:
        match action:
            case SaveHardState(number, state):
                if self.is_disk_slow:
                    self.saving.append((number, state))
                    return ()
                self.disk.hard_state = state
                return (HardStateSaved(number),)
            case FlushLog(number):
                if self.is_disk_slow:
                    self.syncing.append((number, self.disk.begin_sync()))
                    return ()
                self.disk.end_sync(self.disk.begin_sync())
                return (Flushed(number),)
            case Ask(call, peer, request):
                self._check_term(request.term, request)
                self.outputs.append(Output(call, peer, request))
            case Answer(question, response):
                request = self.questions.pop(question)
                self._check_answer(request, response)
                self.outputs.append(Output(question, request.sender, response))
            case Committed(index):
                if not self.committed_index < index <= self.log.end_index:
                    raise InvariantBroken("I6", f"{self.settings.member_id} commits {index} after "
                                                f"{self.committed_index}")
                self.committed_index = index
            case LeadEstablished(term, index):
                if self.log.term_at(index) != term or self.committed_index < index:
                    raise InvariantBroken("I12", f"{self.settings.member_id} is established at "
                                                 f"{index}, which is not its committed barrier")
        return ()

    def _check_answer(self, request: Request, response: Response) -> None:
        name = self.settings.member_id
        if isinstance(request, VoteRequest) and isinstance(response, VoteResponse):
            self._check_term(response.term, response)
            state = self.disk.hard_state
            if response.result is not VoteResult.ACCEPT:
                return
            if state is None or state.term < request.term or (
                    state.term == request.term and state.voted_for != request.leader):
                raise InvariantBroken("I2", f"{name} votes for {request.leader}, not durably")
            if self.votes.setdefault(request.term, request.leader) != request.leader:
                raise InvariantBroken("I2", f"{name} has two votes in {request.term}")
        elif (isinstance(request, PushRequest) and response.code is ResponseCode.SUCCESS
              and request.type is not PushType.COMMIT):
            entry = request.entries[-1]
            if entry not in self.disk.synced:
                raise InvariantBroken("I8", f"{name} acknowledges {entry}, not durably")

    def _check_term(self, term: int, message: object) -> None:
        if term > self._durable_term:
            raise InvariantBroken("I3", f"{self.settings.member_id} sends {message}, and its disk "
                                        f"has the term {self._durable_term}")


class Nodes:
    """All nodes that an exploration has met, by number, and the steps between them."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._stored: list[bytes] = []
        self.facts: list[Facts] = []
        self._steps: dict[tuple[int, object], Step] = {}
        self._logs: dict[tuple[Entry, ...], tuple[Entry, ...]] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, node: Node) -> Step:
        """Number a node, and take the messages that it sends.

        :raises InvariantBroken: when the node has changed what it had committed.
        """
        outputs, node.outputs = tuple(node.outputs), []
        form = _form_of(node)
        number = self._numbers.setdefault(form, len(self._stored))
        if number == len(self._stored):
            self._stored.append(pickle.dumps(node, pickle.HIGHEST_PROTOCOL))
            self.facts.append(self._facts_of(node))
        return Step(number, outputs)

    def _facts_of(self, node: Node) -> Facts:
        member, disk = node.member, node.disk
        # Equal logs are one object.
        entries, synced = (self._logs.setdefault(log, log)
                           for log in (tuple(disk.entries), tuple(disk.synced)))
        return Facts(
            node.settings.member_id, node.life, member.role, member.term, entries, synced,
            node.committed_index, member.is_established, member.is_appendable, bool(node.saving),
            bool(node.syncing), len(disk._states) * (1 + len(node.saving)))

    def take_step(self, number: int, key: object, do: Callable[[Node], None]) -> Step:
        """What a node does with an event.

        :param key: identifies the event; what it does with a node is always the same.
        :param do: passes the event to the node.
        """
        step = self._steps.get((number, key))
        if step is None:
            node: Node = pickle.loads(self._stored[number])
            do(node)
            step = self._steps[number, key] = self.add(node)
        return step


def _form_of(node: Node) -> object:
    """All values of a node as one that can be compared and hashed."""
    now_ms = node.now_ms
    met: dict[int, int] = {}

    def form(value: Any, name: str = "") -> object:
        if isinstance(value, int) and not isinstance(value, (bool, Enum)):
            return max(value - now_ms, _LONG_AGO_MS) if name.endswith("_ms") else value
        if value is None or isinstance(value, _VALUES):
            return value
        if isinstance(value, (list, tuple)):
            return tuple(form(each, name) for each in value)
        if isinstance(value, dict):
            return tuple((form(key), form(each, name)) for key, each in value.items())
        if isinstance(value, (set, frozenset)):
            return frozenset(value)
        if callable(value):
            return None
        if id(value) in met:
            return met[id(value)]
        met[id(value)] = len(met)
        names = vars(value) if hasattr(value, "__dict__") else value.__slots__
        return (type(value).__name__, *(form(getattr(value, each), each) for each in names))

    return form(node)


def _ignore(*args: object) -> None:
    """A log of a node reports nothing."""
