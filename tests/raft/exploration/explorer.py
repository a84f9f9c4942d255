"""Explores a group of three members: all orders of events within a budget, each state once.

    exploration = Explorer(CASES["election"]).run()
    exploration.count

A state has the three members with their disks, the messages under way, and what is left of the
budget. From each state the exploration takes every possible event: the arrival of any message, the
next tick of any member, a proposal to a leader, a crash with any outcome of the disk, the end of a
write. Messages arrive in any order or never, so a loss needs no event of its own; a copy does. The
clocks of the members are independent of each other: a tick takes one member to the time that it
waits for, however little the others have waited.

| rule | invariant |
| --- | --- |
| I1 | a term has one leader, in one life |
| I2, I3, I8, I12 | see ``node.py``: votes, terms and acknowledgements are durable |
| I4 | entries with one index and term are equal, and so are all before them |
| I5 | a new leader has all entries that were committed before |
| I6 | committed entries never change, and a majority has them durably |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.raft.exploration.node import Facts, Node, Nodes, Output, Step
from tests.raft.simulation.world import InvariantBroken
from twistmq.raft.actions import Role
from twistmq.raft.events import Answered, Asked, Propose, Tick
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import Entry, HeartbeatRequest, Request, Response
from twistmq.raft.settings import MemberSettings

__all__ = ["CASES", "Budget", "Case", "Explorer"]

_NAMES: Final = ("n0", "n1", "n2")
_QUORUM: Final = 2
#: A number of a question tells its call: the place of the caller, its life and the call.
_LIVES_MAX: Final = 16


class Budget(NamedTuple):
    """How many events of a kind are left."""

    ticks: int = 0
    proposals: int = 0
    crashes: int = 0
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """What an exploration covers. ``has_leader``: it begins with a leader that is established."""

    text: str
    budget: Budget
    has_leader: bool = False
    is_disk_slow: bool = False
    #: Heartbeats are lost: a push also shows a follower its leader, and there are fewer orders.
    loses_heartbeats: bool = True


CASES: Final = {
    "vote": Case("a first election with one candidate", Budget(ticks=1)),
    "election": Case("a first election with one or two candidates", Budget(ticks=2)),
    "entry": Case("one entry, and one election at most", Budget(ticks=2, proposals=1),
                  has_leader=True),
    "entries": Case("two entries, an election and a copy", Budget(ticks=3, proposals=2, copies=1),
                    has_leader=True),
    "crash": Case("two entries, an election and a crash", Budget(ticks=3, proposals=2, crashes=1),
                  has_leader=True),
    "power": Case("one entry, an election and a loss of power",
                  Budget(ticks=2, proposals=1, crashes=1), has_leader=True, is_disk_slow=True),
}


class _Message(NamedTuple):
    """A request or a response under way."""

    receiver: int
    sender: int
    #: The life of the caller, and the number of its call.
    life: int
    call: int
    content: Request | Response
    is_copy: bool = False


def _act(node: Node, kind: str, value: int) -> None:
    """Let an event other than a message happen to a node."""
    if kind == "tick":
        node.handle(Tick())
    elif kind == "propose":
        node.handle(Propose(value, (b"%d" % value,)))
    elif kind == "crash":
        node.crash(value)
    elif kind == "end_save":
        node.end_save()
    else:
        node.end_sync()


class _State(NamedTuple):
    """A state of the group. Numbers stand for the members and for the messages under way."""

    nodes: tuple[int, ...]
    messages: tuple[int, ...]
    budget: Budget
    #: The number of the list of entries that members have called committed.
    committed: int = 0
    #: By term, the leaders and their lives.
    leaders: tuple[tuple[int, int, int], ...] = ()


#: What happens: its kind, and the place of a member or the number of a message, and an outcome.
_Event = tuple[str, int, int]


class _Link(NamedTuple):
    """An event, and those before it."""

    before: _Link | None
    event: _Event


class Explorer:
    """An exploration of one case."""

    def __init__(self, case: Case, states_max: int | None = None) -> None:
        """The exploration ends after ``states_max`` states, if that is not None."""
        self.case = case
        self._states_max = states_max
        #: The states that were met, the events that were taken, and the most events to a state.
        self.count = self.events = self.depth = 0
        #: Whether every state was met.
        self.is_whole = False
        #: The highest term of a leader, and the most entries that were committed.
        self.highest_term = self.most_committed = 0
        #: The events that led to the broken rule.
        self.steps: list[str] = []
        self._nodes = Nodes()
        self._messages: list[_Message] = []
        self._numbers: dict[_Message, int] = {}
        #: The messages that steps have sent, by the number of the node and the event.
        self._sent: dict[tuple[int, object], tuple[int, ...]] = {}
        #: Lists of committed entries, each with the term of the member that called it so first.
        self._committed: list[tuple[tuple[Entry, int], ...]] = [()]
        self._committed_numbers: dict[tuple[tuple[Entry, int], ...], int] = {(): 0}

    @property
    def node_count(self) -> int:
        """How many states of one member were met."""
        return len(self._nodes)

    def run(self) -> Explorer:
        """Meet every state, the near ones first.

        :raises InvariantBroken: when a rule does not hold; ``steps`` tells the events up to there.
        """
        state = self._begin()
        # The hash of a state stands for it. Among ten million states, the chance that two have the
        # same one is below one in a hundred thousand.
        met = {hash(state)}
        waiting: deque[tuple[_State, _Link | None, int]] = deque([(state, None, 0)])
        while waiting:
            state, link, depth = waiting.popleft()
            self.count += 1
            self.depth = depth
            if self.count == self._states_max:
                return self
            for event in self._events_of(state):
                self.events += 1
                try:
                    following = self._take(state, event)
                except InvariantBroken:
                    self._tell(_Link(link, event))
                    raise
                except AssertionError as error:
                    self._tell(_Link(link, event))
                    raise InvariantBroken("core", str(error)) from error
                key = hash(following)
                if key not in met:
                    met.add(key)
                    waiting.append((following, _Link(link, event), depth + 1))
        self.is_whole = True
        return self

    def _begin(self) -> _State:
        numbers = []
        for name in _NAMES:
            node = Node(MemberSettings("g", name, _NAMES, push_window_count=2),
                        HardState(1, "", joined=True), is_disk_slow=self.case.is_disk_slow)
            node.start()
            numbers.append(self._nodes.add(node).node)
        state = _State(tuple(numbers), (), Budget())
        if self.case.has_leader:
            state = self._elect(state)
        return state._replace(budget=self.case.budget)

    def _elect(self, state: _State) -> _State:
        """Let the first member lead, and everything arrive in its order."""
        state = self._take(state._replace(budget=Budget(ticks=1)), ("tick", 0, 0))
        while True:
            events = [event for event in self._events_of(state)
                      if event[0] in ("end_save", "end_sync", "arrive")]
            if not events:
                break
            state = self._take(state, events[0])
        assert all(self._nodes.facts[number].committed_index <= 0 for number in state.nodes)
        assert self._nodes.facts[state.nodes[0]].is_established, "the first member does not lead"
        return state

    # --- Events ---

    def _events_of(self, state: _State) -> Iterator[_Event]:
        nodes, messages, budget, _, _ = state
        ticks, proposals, crashes, copies = budget
        for place, number in enumerate(nodes):
            node = self._nodes.facts[number]
            if node.is_saving:
                yield "end_save", place, 0
            if node.is_syncing:
                yield "end_sync", place, 0
            if ticks:
                yield "tick", place, 0
            if proposals and node.is_appendable:
                yield "propose", place, 0
            if crashes:
                for outcome in range(node.crash_count):
                    yield "crash", place, outcome
        for message in messages:
            yield "arrive", message, 0
            if copies and not self._messages[message].is_copy:
                yield "copy", message, 0

    def _take(self, state: _State, event: _Event) -> _State:
        kind, number, outcome = event
        nodes, messages, budget, committed, leaders = state
        if kind == "arrive":
            at = messages.index(number)
            state = _State(nodes, messages[:at] + messages[at + 1:], budget, committed, leaders)
            return self._follow(state, self._messages[number].receiver, number,
                                lambda node: self._arrive(node, self._messages[number]))
        if kind == "copy":
            copy = self._number_of(self._messages[number]._replace(is_copy=True))
            return _State(nodes, tuple(sorted({*messages, copy})),
                          budget._replace(copies=budget.copies - 1), committed, leaders)
        key: tuple[str, int] = kind, outcome
        if kind == "tick":
            budget = budget._replace(ticks=budget.ticks - 1)
        elif kind == "propose":
            budget = budget._replace(proposals=budget.proposals - 1)
            key = kind, budget.proposals
        elif kind == "crash":
            budget = budget._replace(crashes=budget.crashes - 1)
        return self._follow(_State(nodes, messages, budget, committed, leaders), number, key,
                            lambda node: _act(node, *key))

    def _arrive(self, node: Node, message: _Message) -> None:
        if isinstance(message.content, Request):
            question = ((message.call * _LIVES_MAX + message.life) * len(_NAMES)
                        + message.sender) * 2 + message.is_copy
            node.handle(Asked(question, message.content))
        else:
            node.handle(Answered(message.call, message.content))

    def _follow(self, state: _State, place: int, key: object, do: Callable[[Node], None]
                ) -> _State:
        """What follows an event of one member: its next state, and its messages."""
        nodes, messages, budget, committed, leaders = state
        before = nodes[place]
        step = self._nodes.take_step(before, key, do)
        if step.node != before:
            nodes = (*nodes[:place], step.node, *nodes[place + 1:])
        old, new = self._nodes.facts[before], self._nodes.facts[step.node]
        if step.outputs:
            sent = self._numbers_of(step, before, key, place, new.life)
            messages = tuple(sorted({*messages, *sent}))
        if new.life != old.life or (
                step.outputs and budget.crashes != self.case.budget.crashes):
            # Answers to an earlier life of their caller are lost with its connections.
            lives = [self._nodes.facts[number].life for number in nodes]
            messages = tuple(number for number in messages if not self._is_late(number, lives))
        if new.entries is not old.entries or new.role is not old.role or (
                new.committed_index != old.committed_index) or new.term != old.term:
            committed, leaders = self._check(state, nodes, place, old, new)
        return _State(nodes, messages, budget, committed, leaders)

    def _numbers_of(self, step: Step, before: int, key: object, place: int, life: int
                    ) -> tuple[int, ...]:
        """The numbers of the messages of a step."""
        found = self._sent.get((before, key))
        if found is None:
            found = self._sent[before, key] = tuple(
                self._number_of(self._message_of(output, place, life)) for output in step.outputs
                if not (self.case.loses_heartbeats and isinstance(
                    output.content, HeartbeatRequest)))
        return found

    def _message_of(self, output: Output, sender: int, life: int) -> _Message:
        receiver = _NAMES.index(output.peer)
        if isinstance(output.content, Request):
            return _Message(receiver, sender, life, output.number, output.content)
        rest, is_copy = divmod(output.number, 2)
        call, caller_life = divmod(rest // len(_NAMES), _LIVES_MAX)
        return _Message(receiver, sender, caller_life, call, output.content, bool(is_copy))

    def _number_of(self, message: _Message) -> int:
        number = self._numbers.setdefault(message, len(self._messages))
        if number == len(self._messages):
            self._messages.append(message)
        return number

    def _is_late(self, number: int, lives: list[int]) -> bool:
        message = self._messages[number]
        return isinstance(message.content, Response) and message.life != lives[message.receiver]

    # --- Rules ---

    def _check(self, state: _State, nodes: tuple[int, ...], place: int, old: Facts, new: Facts
               ) -> tuple[int, tuple[tuple[int, int, int], ...]]:
        """Check the rules of the group; :returns: the committed entries, and the leaders."""
        committed, leaders = self._committed[state.committed], state.leaders
        if new.entries != old.entries:
            self._check_logs(nodes, place, new)
        if new.role is Role.LEADER and (old.role is not Role.LEADER or old.term != new.term):
            leaders = self._note_leader(leaders, place, new, committed)
        if new.committed_index > old.committed_index:
            committed = self._note_committed(nodes, new, committed)
        elif new.entries != old.entries or new.life != old.life:
            self._check_committed(new, committed)
        number = self._committed_numbers.setdefault(committed, len(self._committed))
        if number == len(self._committed):
            self._committed.append(committed)
            self.most_committed = max(self.most_committed, len(committed))
        return number, leaders

    def _check_logs(self, nodes: tuple[int, ...], place: int, new: Facts) -> None:
        """Rule I4."""
        terms = {entry.index: entry for entry in new.entries}
        for other_place, number in enumerate(nodes):
            other = self._nodes.facts[number]
            if other_place == place:
                continue
            is_same = False
            for entry in reversed(other.entries):
                own = terms.get(entry.index)
                if own is None:
                    continue
                is_same = is_same or own.term == entry.term
                if is_same and own != entry:
                    raise InvariantBroken("I4", f"{new.name} has {own}, and {other.name} has "
                                                f"{entry}")

    def _note_leader(self, leaders: tuple[tuple[int, int, int], ...], place: int, new: Facts,
                     committed: tuple[tuple[Entry, int], ...]) -> tuple[tuple[int, int, int], ...]:
        """Rules I1 and I5."""
        self.highest_term = max(self.highest_term, new.term)
        for term, other, life in leaders:
            if term == new.term and (other, life) != (place, new.life):
                raise InvariantBroken("I1", f"{new.name} leads the term {term}, and so did "
                                            f"{_NAMES[other]} in its life {life}")
        own = set(new.entries)
        for entry, term in committed:
            if term < new.term and entry not in own:
                raise InvariantBroken("I5", f"{new.name} leads {new.term} without {entry}")
        return tuple(sorted({*leaders, (new.term, place, new.life)}))

    def _note_committed(self, nodes: tuple[int, ...], new: Facts,
                        committed: tuple[tuple[Entry, int], ...]) -> tuple[tuple[Entry, int], ...]:
        """Rule I6, for a member that commits more."""
        self._check_committed(new, committed)
        by_index = {entry.index: entry for entry in new.entries}
        for index in range(len(committed), new.committed_index + 1):
            entry = by_index[index]
            having = sum(entry in self._nodes.facts[number].synced for number in nodes)
            if having < _QUORUM:
                raise InvariantBroken("I6", f"{new.name} commits {entry}, which {having} members "
                                            f"have durably")
            committed = (*committed, (entry, new.term))
        return committed

    def _check_committed(self, new: Facts, committed: tuple[tuple[Entry, int], ...]) -> None:
        by_index = {entry.index: entry for entry in new.entries}
        for entry, _ in committed[:new.committed_index + 1]:
            if by_index.get(entry.index) != entry:
                raise InvariantBroken("I6", f"{new.name} has committed {new.committed_index}, and "
                                            f"{by_index.get(entry.index)} in place of {entry}")

    def _tell(self, link: _Link | None) -> None:
        """Keep the events in the order in which they happened."""
        while link is not None:
            kind, number, outcome = link.event
            if kind in ("arrive", "copy"):
                message = self._messages[number]
                what = f"{kind}: {_NAMES[message.sender]} to {_NAMES[message.receiver]}: " \
                       f"{message.content}"
            else:
                what = f"{kind}: {_NAMES[number]}{f', outcome {outcome}' if outcome else ''}"
            self.steps.insert(0, what)
            link = link.before
