"""A machine of the simulation: it drives a member, its disk, its clock and its requests.

The driver keeps the contract of ``twistmq.raft``: hard states and syncs take time, answers of an
earlier life are not passed, and a client is answered when its entries are committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.raft.simulation.disk import Disk, DiskLog
from tests.raft.simulation.world import InvariantBroken, Links, World
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
    Appended,
    Asked,
    CallFailed,
    Event,
    Flushed,
    HardStateSaved,
    PeerRefused,
    Propose,
    Started,
    StorageFailed,
    StorageRepaired,
    Tick,
    Transfer,
)
from twistmq.raft.member import Member
from twistmq.raft.messages import Entry, Request, Response
from twistmq.raft.settings import MemberSettings

if TYPE_CHECKING:
    from tests.raft.simulation.ghosts import Ghosts

__all__ = ["Caller", "Machine", "Pending"]

#: A caller learns of a refused connection after this time.
_REFUSED_MS: Final = 1
#: The chance that the committed index is noted on the disk when it rises.
_NOTES_COMMITTED: Final = 0.2


class Caller(Protocol):
    """The sender of a request."""

    name: str

    def fail_call(self, life: int, call: int, refused: str) -> None:
        """Learn that a call gets no response."""

    def take_response(self, life: int, call: int, response: Response) -> None:
        """Take the response to a call."""


class Pending:
    """A proposal of a client that waits for its entries to be committed.

    ``on_end`` is told True with the first index when they are, and False when that is not known;
    ``on_refused`` is called instead when nothing was appended.
    """

    __slots__ = ("bodies", "first", "last", "on_end", "on_refused", "term")

    def __init__(self, bodies: tuple[bytes, ...], on_end: Callable[[bool, int], None],
                 on_refused: Callable[[], None]) -> None:
        self.bodies = bodies
        self.on_end = on_end
        self.on_refused = on_refused
        self.term = self.first = self.last = -1


class Machine:
    """One machine, which runs a member."""

    #: Whether it runs the double of Apache's member: see ``java_machine.py``.
    is_java = False

    def __init__(self, world: World, links: Links, ghosts: Ghosts, settings: MemberSettings
                 ) -> None:
        self.world = world
        self.links = links
        self.ghosts = ghosts
        self.settings = settings
        self.name = settings.member_id
        self.disk = self._make_disk()
        self.log = DiskLog(self.disk, self._add_entry, self._cut_log)
        self.machines: dict[str, Machine] = {}
        #: A ``Member``, or the double of Apache's; None while the process does not run.
        self.member: Any = None
        #: Counts the lives of the process, the power losses of the machine included.
        self.life = 0
        self.role = Role.CANDIDATE
        self.term = 0
        self.leader = ""
        #: The term in which this life of the member leads with all committed entries; -1: none.
        self.established_term = -1
        self.committed_index = -1
        #: Whether the disk was replaced and the member has not caught up since.
        self.is_wiped = False
        #: Whether the disk was replaced at any time.
        self.was_wiped = False
        #: By peer, the last entry that this leader was seen to count.
        self._counted: dict[str, int] = {}
        #: The number of entries that were known to be committed when the disk was replaced.
        self.wiped_count = 0
        #: Whether the present actions may be messages of an earlier event, which waited for the
        #: hard state.
        self.is_releasing = False
        #: While the process is stopped: the events that wait.
        self._stopped: list[tuple[int, Event]] | None = None
        self._rate = 1.0
        self._clock_begin = (0, 0)
        self._tick_ms = -1
        self._questions: dict[int, tuple[Caller, int, int, Request]] = {}
        self._question = 0
        self._tag = 0
        self._proposing: dict[int, Pending] = {}
        self._pending: list[Pending] = []
        #: By tag, the terms in which transfers of the lead were begun that have not ended.
        self.transfers: dict[int, int] = {}
        self._log_state = 0
        self._log_syncs: dict[int, int] = {}
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Ask: self._ask, Answer: self._answer, SaveHardState: self._save, FlushLog: self._flush,
            RoleChanged: self._change_role, Committed: self._commit, Proposed: self._proposed,
            Refused: self._refused, LeadEstablished: self._establish,
            TransferEnded: self._end_transfer, Complained: self._complain}

    @property
    def has_waiting(self) -> bool:
        """Whether a client waits for its entries to be committed."""
        return bool(self._pending)

    @property
    def has_joined(self) -> bool:
        """Whether the disk says that the member may vote."""
        state = self.disk.hard_state
        return state is not None and state.joined and not self.is_wiped

    def _make_disk(self) -> Disk:
        return Disk()

    def _make_member(self) -> Any:
        return Member(self.settings, self.log, self.disk.hard_state, self.disk.committed_index)

    # --- The process ---

    @property
    def is_up(self) -> bool:
        """Whether the process runs and is not stopped."""
        return self.member is not None and self._stopped is None

    def start(self) -> None:
        """Start the process."""
        if self.member is not None:
            return
        self.life += 1
        self.role, self.leader = Role.CANDIDATE, ""
        self.established_term = -1
        self._clock_begin = (self.world.now_ms, 0)
        self._tick_ms = -1
        self.disk.sync_all()
        self.member = self._make_member()
        self.committed_index = self.member.committed_index
        self.term = self.member.term
        self.ghosts.note_start(self)
        if self.is_wiped and self.disk.hard_state is not None and self.disk.hard_state.joined:
            # The last process ended while the right to vote was being saved, and it was saved.
            self.ghosts.note_joined(self)
        self.world.note(f"{self.name} starts, term {self.term}")
        self.handle(Started())

    def end(self, *, lose_power: bool = False, wipe: bool = False) -> None:
        """End the process, at once."""
        if self.member is None:
            return
        self.world.note(f"{self.name} {'loses power' if lose_power else 'is killed'}"
                        f"{' and its disk' if wipe else ''}")
        self.member = None
        self._stopped = None
        self.life += 1
        self.role = Role.CANDIDATE
        self.established_term = -1
        self._release()
        for caller, life, call, _ in self._questions.values():
            self.world.call_later(_REFUSED_MS, caller.fail_call, life, call, self.name)
        self._questions.clear()
        self._log_syncs.clear()
        self.transfers.clear()
        if lose_power:
            self.disk.lose_power(self.world.random)
        else:
            self.disk.kill(self.world.random)
        if wipe:
            self.disk.wipe()
            self.is_wiped = self.was_wiped = True
            self.wiped_count = self.ghosts.known_count
            self.ghosts.note_wiped(self)

    def stop(self) -> None:
        """Stop the process, as SIGSTOP does."""
        if self.member is not None and self._stopped is None:
            self.world.note(f"{self.name} is stopped")
            self._stopped = []

    def resume(self) -> None:
        """Let the process go on, with all that has waited."""
        if self._stopped is not None:
            self.world.note(f"{self.name} goes on")
            waiting, self._stopped = self._stopped, None
            for life, event in waiting:
                if life == self.life:
                    self.handle(event)
            # One of these events may have ended the process in the middle of a write.
            if self.member is not None:
                self._schedule_tick()

    def set_rate(self, rate: float) -> None:
        """Let the clock of the machine run faster or slower."""
        self._clock_begin = (self.world.now_ms, self.local_ms())
        self._rate = rate
        self._tick_ms = -1
        if self.member is not None:
            self._schedule_tick()

    def local_ms(self) -> int:
        """The time of the machine's steady clock."""
        begin_ms, local_ms = self._clock_begin
        return local_ms + int((self.world.now_ms - begin_ms) * self._rate)

    def take_counted(self) -> list[tuple[str, int]]:
        """The last entry that this leader counts of each peer, if that has changed."""
        leader, counted = self.member._leader, self._counted
        if leader is None:
            return []
        changed = [(peer, pusher.match_index) for peer, pusher in leader._pushers.items()
                   if pusher.match_index >= 0 and counted.get(peer) != pusher.match_index]
        counted.update(changed)
        return changed

    def handle(self, event: Event) -> None:
        """Pass an event to the member and carry out what it wants."""
        if self.member is None:
            return
        if self._stopped is not None:
            self._stopped.append((self.life, event))
            return
        life = self.life
        self.is_releasing = isinstance(event, HardStateSaved)
        actions: list[Action] = self.member.handle_event(
            event, self.local_ms(), self.world.random.random())
        if self.world.steps is not None:
            self.world.note(f"{self.name} {event} -> {actions}")
        for action in actions:
            self._carry_out[type(action)](action)
            if self.life != life:
                return
        self.term = self.member.term
        self.ghosts.check_machine(self)
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        begin_ms, local_ms = self._clock_begin
        delay_ms = self.member.next_tick - local_ms
        if self._rate != 1.0:
            # One more, lest the rounded time of the clock is before the tick.
            delay_ms = int(delay_ms / self._rate) + 1
        time_ms = max(begin_ms + delay_ms, self.world.now_ms)
        if self._tick_ms < self.world.now_ms or time_ms < self._tick_ms:
            self._tick_ms = time_ms
            self.world.call_later(time_ms - self.world.now_ms, self._tick, self.life, time_ms)

    def _tick(self, life: int, time_ms: int) -> None:
        if life == self.life and time_ms == self._tick_ms:
            self._tick_ms = -1
            self.handle(Tick())

    def _handle_in(self, life: int, event: Event) -> None:
        if life == self.life:
            self.handle(event)

    # --- Requests and answers ---

    def _ask(self, action: Ask) -> None:
        self.ghosts.check_request(self, action.request)
        peer = self.machines[action.peer]
        if not self.links.carry(self.name, action.peer, peer.take_request, self, self.life,
                                action.call, action.request):
            self._lose(self, self.life, action.call, action.peer)

    def _lose(self, caller: Caller, life: int, call: int, peer: str) -> None:
        """A message is lost: half of the callers learn it, the others wait."""
        if self.world.random.random() < 0.5:
            self.world.call_later(_REFUSED_MS, caller.fail_call, life, call, "")

    def take_request(self, caller: Caller, life: int, call: int, request: Request) -> None:
        """Take a request from a link."""
        if self.member is None:
            self.world.call_later(_REFUSED_MS, caller.fail_call, life, call, self.name)
            return
        self._question += 1
        self._questions[self._question] = (caller, life, call, request)
        self.handle(Asked(self._question, request))

    def _answer(self, action: Answer) -> None:
        if action.question not in self._questions:
            raise InvariantBroken("I16", f"{self.name} answers {action.question} twice or unasked")
        caller, life, call, request = self._questions.pop(action.question)
        self.ghosts.check_answer(self, request, action.response)
        if not self.links.carry(self.name, caller.name, caller.take_response, life, call,
                                action.response):
            self._lose(caller, life, call, self.name)

    def take_response(self, life: int, call: int, response: Response) -> None:
        """Take a response from a link."""
        if life == self.life and self.member is not None:
            self.handle(Answered(call, response))

    def fail_call(self, life: int, call: int, refused: str) -> None:
        """A call gets no response. ``refused`` is the peer whose process is gone, if that is known.
        """
        if life == self.life and self.member is not None:
            self.handle(CallFailed(call))
            if refused and life == self.life:
                self.handle(PeerRefused(refused))

    # --- The disk ---

    def _latency_ms(self) -> int:
        return int(self.world.random.random() * (self.disk.latency_ms_max + 1))

    def _save(self, action: SaveHardState) -> None:
        self.disk.begin_save(action.number, action.state)
        self.world.call_later(self._latency_ms(), self._saved, self.life, action.number)

    def _saved(self, life: int, number: int) -> None:
        if life != self.life:
            return
        if self.disk.is_failing:
            self.handle(StorageFailed("the hard state cannot be saved"))
            return
        was_joined = self.disk.hard_state is not None and self.disk.hard_state.joined
        self.disk.end_save(number)
        state = self.disk.hard_state
        if state is not None and state.joined and not was_joined:
            self.ghosts.note_joined(self)
        self.handle(HardStateSaved(number))

    def _flush(self, action: FlushLog) -> None:
        self._log_syncs[action.number] = self.disk.begin_sync()
        self.world.call_later(self._latency_ms(), self._flushed, self.life, action.number)

    def _flushed(self, life: int, number: int) -> None:
        if life != self.life or number not in self._log_syncs:
            return
        if self.disk.is_failing:
            self.handle(StorageFailed("the log cannot be synced"))
            return
        # A sync covers those that were requested before it.
        for older in [each for each in self._log_syncs if each < number]:
            del self._log_syncs[older]
        self.disk.end_sync(self._log_syncs.pop(number))
        self.ghosts.note_durable(self)
        self.handle(Flushed(number))

    def fail_disk(self) -> None:
        """From now on, writes and syncs fail."""
        self.world.note(f"{self.name}: the disk fails")
        self.disk.is_failing = True

    def repair_disk(self) -> None:
        """Writes and syncs succeed again, and the member is told."""
        if self.disk.is_failing:
            self.world.note(f"{self.name}: the disk works again")
            self.disk.is_failing = False
            self.handle(StorageRepaired())

    def _add_entry(self, entry: Entry, previous_term: int | None) -> None:
        self.ghosts.note_entry(self, entry, previous_term)

    def _cut_log(self, end_index: int) -> None:
        self.ghosts.check_cut(self, end_index)

    # --- The role, and clients ---

    def _change_role(self, action: RoleChanged) -> None:
        was_leader = self.role is Role.LEADER
        self._counted.clear()
        self.role, self.term, self.leader = action.role, action.term, action.leader
        self.established_term = -1
        if was_leader:
            self._release()
        if action.role is Role.LEADER:
            self.ghosts.note_leader(self)

    def _establish(self, action: LeadEstablished) -> None:
        self.established_term = action.term
        self.ghosts.check_established(self, action.index)

    def _commit(self, action: Committed) -> None:
        self.ghosts.check_committed(self, action.index)
        self.committed_index = action.index
        if self.world.random.random() < _NOTES_COMMITTED:
            self.disk.committed_index = action.index
        if self.role is Role.LEADER:
            self._acknowledge()

    def _acknowledge(self) -> None:
        while self._pending and self._pending[0].last <= self.committed_index:
            pending = self._pending.pop(0)
            self.ghosts.check_acknowledged(self, pending)
            pending.on_end(True, pending.first)

    def _release(self) -> None:
        """Answer all clients that wait: the end of their entries is not known."""
        pending, self._pending = [*self._pending, *self._proposing.values()], []
        self._proposing.clear()
        for each in pending:
            each.on_end(False, -1)

    def propose(self, bodies: tuple[bytes, ...], on_end: Callable[[bool, int], None],
                on_refused: Callable[[], None]) -> None:
        """Pass a client's bodies to the member."""
        if self.member is None:
            on_refused()
            return
        self._tag += 1
        self._proposing[self._tag] = Pending(bodies, on_end, on_refused)
        self.handle(Propose(self._tag, bodies))

    def append_directly(self, bodies: tuple[bytes, ...], on_end: Callable[[bool, int], None]
                        ) -> bool:
        """Append a client's bodies as a store does that encodes records itself, if that is allowed.
        """
        if not self.is_up or not self.member.is_appendable or self.disk.is_failing:
            return False
        pending = Pending(bodies, on_end, lambda: None)
        pending.term, pending.first = self.term, self.log.end_index + 1
        self.log.extend(self.term, bodies)
        pending.last = self.log.end_index
        self._pending.append(pending)
        self.handle(Appended())
        return True

    def _proposed(self, action: Proposed) -> None:
        if action.term in self.transfers.values():
            raise InvariantBroken("I13", f"{self.name} takes entries while it gives up the lead")
        pending = self._proposing.pop(action.tag, None)
        if pending is None:
            # The process was stopped, and the client has given up.
            return
        pending.term, pending.first, pending.last = action.term, action.first, action.last
        self._pending.append(pending)

    def _refused(self, action: Refused) -> None:
        pending = self._proposing.pop(action.tag, None)
        if pending is not None:
            pending.on_refused()

    def transfer(self, transferee: str) -> None:
        """Ask the member to give the lead to another one."""
        if self.is_up:
            self._tag += 1
            self.transfers[self._tag] = self.member.term
            self.world.note(f"{self.name} shall give the lead to {transferee}")
            self.handle(Transfer(self._tag, transferee))

    def _end_transfer(self, action: TransferEnded) -> None:
        self.transfers.pop(action.tag)
        self.world.note(f"{self.name}: the transfer ends with {action.code.name}")

    def _complain(self, action: Complained) -> None:
        self.world.note(f"{self.name}: {action.text}")
