"""A group of members in memory, on virtual time.

A member of ``twistmq.raft`` does no I/O: it returns actions, and is told later how they ended. Here
a heap of events stands for the network, the disks and the clock, so that a test decides when a
message arrives, cuts a link between two members, or takes the power of a member, whose disk then
loses the writes that were not synced.
"""

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from twistmq.raft.actions import (
    Action,
    Answer,
    Ask,
    Committed,
    Complained,
    FlushLog,
    LeadEstablished,
    Proposed,
    Refused,
    Role,
    RoleChanged,
    SaveHardState,
    TransferEnded,
)
from twistmq.raft.events import (
    Answered,
    Asked,
    CallFailed,
    Event,
    Flushed,
    HardStateSaved,
    Propose,
    Started,
    Tick,
    Transfer,
)
from twistmq.raft.hard_state import HardState
from twistmq.raft.member import Member
from twistmq.raft.memory_log import MemoryLog
from twistmq.raft.messages import Entry, ResponseCode
from twistmq.raft.settings import MemberSettings

__all__ = ["Group", "Machine"]


@dataclass
class Machine:
    """One member with its disk; synced data survives ``Group.kill``."""

    name: str
    member: Member | None = None
    log: MemoryLog = field(default_factory=MemoryLog)
    synced: list[Entry] = field(default_factory=list)
    hard_state: HardState | None = None
    committed: int = -1
    life: int = 0
    questions: int = 0
    #: By the number of a question: (peer, its life, its call).
    callers: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    tick_ms: int = -1
    slow_disk_ms: int = 1
    complaints: list[str] = field(default_factory=list)
    established: list[int] = field(default_factory=list)


class Group:
    """Members that get their events in the order of a seed."""

    def __init__(self, names: str = "abc", *, seed: int = 1, delay_ms: int = 1, jitter_ms: int = 0,
                 **settings: object) -> None:
        """Start a new group, whose members have one letter each as their names."""
        self.random = random.Random(seed)
        self.now_ms = 0
        self.delay_ms, self.jitter_ms = delay_ms, jitter_ms
        self.names = names
        self._settings = MemberSettings("g", names[0], tuple(names), **settings)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.machines = {name: Machine(name) for name in names}
        self.cut_links: set[tuple[str, str]] = set()
        self.leaders: dict[int, str] = {}
        #: The entries that any member has committed, by index.
        self.agreed: dict[int, Entry] = {}
        self.proposed: dict[int, Proposed] = {}
        self.refused: dict[int, ResponseCode] = {}
        self.transfers: dict[int, ResponseCode] = {}
        self.acknowledged: dict[int, Proposed] = {}
        self._tags = 0
        for name in names:
            self.start(name)

    def __getitem__(self, name: str) -> Member:
        """Return a member that is alive."""
        member = self.machines[name].member
        assert member is not None, f"{name} is not alive"
        return member

    @property
    def alive(self) -> Iterator[Member]:
        """Return the members that are alive."""
        return (machine.member for machine in self.machines.values() if machine.member is not None)

    # --- Machines ---

    def start(self, name: str) -> None:
        """Start the process of a member with the data of its disk."""
        machine = self.machines[name]
        machine.life += 1
        machine.log = MemoryLog(machine.synced)
        machine.callers.clear()
        machine.tick_ms = -1
        machine.member = Member(replace(self._settings, member_id=name), machine.log,
                                machine.hard_state, machine.committed)
        self.tell(name, Started())

    def kill(self, name: str) -> None:
        """End the process, which loses the data that was not synced."""
        machine = self.machines[name]
        machine.member = None
        machine.life += 1

    def wipe(self, name: str) -> None:
        """End the process and empty its disk."""
        self.kill(name)
        machine = self.machines[name]
        machine.synced, machine.hard_state, machine.committed = [], None, -1

    def cut(self, *pairs: str) -> None:
        """Cut directed links: "ab" loses what a sends to b, and the answers to it."""
        self.cut_links.update((pair[0], pair[1]) for pair in pairs)

    def isolate(self, name: str) -> None:
        """Cut all links of a member."""
        for other in self.names:
            if other != name:
                self.cut(name + other, other + name)

    def heal(self) -> None:
        """Mend all links."""
        self.cut_links.clear()

    # --- Events ---

    def tell(self, name: str, event: Event) -> list[Action]:
        """Pass an event to a member, carry out its actions, and return them."""
        machine = self.machines[name]
        member = machine.member
        assert member is not None
        actions = member.handle_event(event, self.now_ms, self.random.random())
        for action in actions:
            self._carry_out(machine, action)
        self._check(machine)
        if member is machine.member and machine.tick_ms != member.next_tick:
            machine.tick_ms = max(member.next_tick, self.now_ms)
            self._later(machine.tick_ms, machine, lambda when=machine.tick_ms: self._tick(
                machine, when))
        return actions

    def _tick(self, machine: Machine, when: int) -> None:
        if machine.tick_ms == when:
            machine.tick_ms = -1
            self.tell(machine.name, Tick())

    def _later(self, when_ms: int, machine: Machine, function: Callable[[], None]) -> None:
        life = machine.life

        def run() -> None:
            if machine.life == life and machine.member is not None:
                function()
        self._count += 1
        heapq.heappush(self._queue, (when_ms, self._count, run))

    def _tell_later(self, machine: Machine, delay_ms: int, event: Event) -> None:
        def tell() -> None:
            self.tell(machine.name, event)
        self._later(self.now_ms + delay_ms, machine, tell)

    def _delay(self) -> int:
        return self.delay_ms + self.random.randrange(self.jitter_ms + 1)

    def _carry_out(self, machine: Machine, action: Action) -> None:
        match action:
            case SaveHardState(number, state):
                def save() -> None:
                    machine.hard_state = state
                    self.tell(machine.name, HardStateSaved(number))
                self._later(self.now_ms + machine.slow_disk_ms, machine, save)
            case FlushLog(number):
                entries = list(machine.log.entries)

                def flush() -> None:
                    # A cut since the request of the sync is on the disk as well.
                    held = {entry.index: entry for entry in machine.log.entries}
                    machine.synced = [entry for entry in entries
                                      if held.get(entry.index) == entry]
                    self.tell(machine.name, Flushed(number))
                self._later(self.now_ms + machine.slow_disk_ms, machine, flush)
            case Ask(call, peer):
                self._send(machine, action)
            case Answer(question, response):
                peer, life, call = machine.callers.pop(question)
                asker = self.machines[peer]
                if asker.life == life and (peer, machine.name) not in self.cut_links:
                    self._tell_later(asker, self._delay(), Answered(call, response))
            case RoleChanged(role, term):
                if role is Role.LEADER:
                    assert self.leaders.setdefault(term, machine.name) == machine.name, term
                    assert (term, machine.name) not in getattr(self, "reigns", set())
                    self.reigns = getattr(self, "reigns", set()) | {(term, machine.name)}
                    self._check_complete(machine)
            case LeadEstablished(term):
                machine.established.append(term)
            case Committed(index):
                self._commit(machine, index)
            case Proposed(tag):
                self.proposed[tag] = action
            case Refused(tag, code):
                self.refused[tag] = code
            case TransferEnded(tag, code):
                self.transfers[tag] = code
            case Complained(peer, text):
                machine.complaints.append(text)

    def _send(self, machine: Machine, ask: Ask) -> None:
        receiver = self.machines[ask.peer]
        life = machine.life
        if (machine.name, ask.peer) in self.cut_links:
            return
        if receiver.member is None:
            self._tell_later(machine, self._delay(), CallFailed(ask.call))
            return

        def arrive() -> None:
            receiver.questions += 1
            receiver.callers[receiver.questions] = (machine.name, life, ask.call)
            self.tell(receiver.name, Asked(receiver.questions, ask.request))
        self._later(self.now_ms + self._delay(), receiver, arrive)

    # --- Checks after each event ---

    def _commit(self, machine: Machine, index: int) -> None:
        assert index > machine.committed or machine.member is None
        log = machine.log
        for place in range(max(machine.committed + 1, log.begin_index), index + 1):
            entry = log.read(place, 0)[0]
            assert self.agreed.setdefault(place, entry) == entry, f"{machine.name} at {place}"
        machine.committed = index
        for tag, proposed in list(self.proposed.items()):
            if (machine.member is not None and machine.member.role is Role.LEADER
                    and machine.member.term == proposed.term and proposed.last <= index):
                self.acknowledged[tag] = self.proposed.pop(tag)

    def _check_complete(self, machine: Machine) -> None:
        """Check that a new leader has all agreed entries."""
        for index, entry in self.agreed.items():
            if index >= machine.log.begin_index:
                assert machine.log.has_entry(entry), f"{machine.name} leads without {entry}"

    def _check(self, machine: Machine) -> None:
        member = machine.member
        if member is not None:
            assert member.committed_index <= machine.log.end_index

    # --- What tests want ---

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, function = heapq.heappop(self._queue)
            function()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], object], limit_ms: int = 60_000) -> int:
        """Let time pass until a condition holds, and return how long that took."""
        begin_ms = self.now_ms
        while not condition():
            assert self.now_ms < begin_ms + limit_ms, "the condition does not come true"
            assert self._queue, "nothing happens any more"
            self.now_ms, _, function = heapq.heappop(self._queue)
            function()
        return self.now_ms - begin_ms

    @property
    def leader(self) -> Member | None:
        """Return the established leader of the highest term among the living members."""
        leaders = [member for member in self.alive if member.is_established]
        return max(leaders, key=lambda member: member.term, default=None)

    @property
    def leader_name(self) -> str:
        """Return the name of the leader."""
        leader = self.leader
        assert leader is not None, "there is no leader"
        return leader.leader

    def elect(self, limit_ms: int = 60_000) -> str:
        """Let time pass until a leader is established, and return its name."""
        self.run_until(lambda: self.leader, limit_ms)
        return self.leader_name

    def followers(self) -> str:
        """Return the names of the other members, in order."""
        return "".join(name for name in self.names if name != self.leader_name)

    def propose(self, name: str, *bodies: bytes) -> int:
        """Propose bodies to a member, and return the tag."""
        self._tags += 1
        self.tell(name, Propose(self._tags, bodies))
        return self._tags

    def transfer(self, name: str, transferee: str) -> int:
        """Ask a leader to transfer the lead, and return the tag."""
        self._tags += 1
        self.tell(name, Transfer(self._tags, transferee))
        return self._tags

    def are_equal(self) -> bool:
        """Return whether all logs are the same and committed to their ends."""
        machines = list(self.machines.values())
        return all(machine.member is not None and machine.log.entries == machines[0].log.entries
                   and machine.member.committed_index == machine.log.end_index
                   for machine in machines)
