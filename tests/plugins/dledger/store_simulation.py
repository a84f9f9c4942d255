"""The simulation of a group whose members keep their entries in the ledgers of brokers' stores.

    StoreSimulation(seed).run()

This is the simulation of ``tests/raft/simulation``, with its faults and rules, but each log is a
``LedgerLog`` on a message store, whose files are on a ``PowerLossDisk``. A process or a machine may
also end in the middle of any write and of any sync. After each end the store is opened again, and
its log is compared with what it may have then. Further rules:

| rule | invariant |
| --- | --- |
| I7 | after an end, the log has all entries that were durable, and none that was never written |
| I8 | a term and a vote that were saved are there after an end |
| I10 | nothing is readable above the committed index |
| I11 | the queue of each member has the committed messages in their order, without a gap |
| I15 | retention removes no file with entries that are not committed |
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.raft.simulation.disk import Disk, DiskLog
from tests.raft.simulation.faults import Faults
from tests.raft.simulation.ghosts import Ghosts
from tests.raft.simulation.machine import Machine
from tests.raft.simulation.simulation import Simulation
from tests.raft.simulation.world import InvariantBroken
from twistmq.broker.store.ledger.state_files import HardState as StoredState
from twistmq.broker.store.ledger.state_files import write_hard_state
from twistmq.broker.testing.ledger_store import LEDGER_FOLDER, LedgerBox
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk
from twistmq.broker.testing.store import message
from twistmq.plugins.dledger.ledger_log import LedgerLog
from twistmq.plugins.dledger.ledger_storage import LedgerStorage
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import decode_record
from twistmq.raft.actions import Committed
from twistmq.raft.events import Event
from twistmq.raft.hard_state import HardState
from twistmq.raft.log import LogError
from twistmq.raft.messages import Entry
from twistmq.raft.settings import MemberSettings

__all__ = ["StoreMachine", "StoreSimulation"]

TOPIC: Final = "T"
#: The length of a file of the log, which has room for about ten messages.
FILE_SIZE: Final = 2048
_BEGIN_MS: Final = 1_700_000_000_000
#: Changes of a disk after which a process ends that is told to end soon.
_ENDS: Final = (1, 1, 2, 3, 5, 8, 13, 30)
#: The chance that the store does its periodic work after an event.
_UPKEEP: Final = 0.03

#: What identifies an entry whatever its place in the file is: index, term and the client's body.
_Key = tuple[int, int, bytes]


@lru_cache(maxsize=4096)
def _body_of_record(record: bytes) -> bytes:
    return decode_record(record).body


def body_of(entry: Entry) -> bytes:
    """What a client has sent as an entry; empty: a barrier."""
    return _body_of_record(entry.body)


def _keys(entries: Sequence[Entry]) -> tuple[_Key, ...]:
    return tuple((entry.index, entry.term, body_of(entry)) for entry in entries)


class _Box(LedgerBox):
    """A store whose index has a file for sixteen entries."""

    index_file_size = 32 * 16


def _at_once(job: Callable[[], None]) -> Deferred[None]:
    """Run the work of a thread; in contrast to ``execute``, the end of the process ends it."""
    done: Deferred[None] = Deferred()
    try:
        job()
    except (StoreError, OSError) as error:
        done.errback(Failure(error))
    else:
        done.callback(None)
    return done


class StoreDisk(Disk):
    """The files of one broker. ``entries`` has what its ledger has."""

    def __init__(self, *, durable: bool) -> None:
        super().__init__()
        self._durable = durable
        self.files = PowerLossDisk()
        self.now_ms = _BEGIN_MS
        self.box: _Box
        #: What the log may be after an end in the middle of an operation, and the vote likewise.
        self._unfinished: list[tuple[_Key, ...]] = []
        self._saving: HardState | None = None
        self._saved: HardState | None = None
        #: Ends in the middle of a change, and whole losses of data at a restart.
        self.cut_count = 0
        self._open()

    # --- the process

    def _open(self) -> None:
        """Start the store. An end during the start is followed by another start."""
        box = _Box(self.files, flush_disk_type="SYNC_FLUSH" if self._durable else "ASYNC_FLUSH",
                   max_index_num=12, mapped_file_size_commit_log=FILE_SIZE)
        box.in_thread = _at_once
        box.now_ms = self.now_ms
        box.open()
        flushed = box.store.flush.flushed(box.store.commit_log.max_offset)
        while flushed is not None and not flushed.called:
            box.step(500)
        self.box = box
        self.log = LedgerLog(box.ledger, lambda: self.now_ms)

    @property
    def committed_index(self) -> int:  # type: ignore[override]
        """What the checkpoint told at the start, or what is readable now."""
        return self.box.entry_log.committed_index

    @committed_index.setter
    def committed_index(self, index: int) -> None:
        """The store notes it by itself."""

    def kill(self, draw: random.Random) -> None:
        """The process ends."""
        self._end(draw, loses_power=False)

    def lose_power(self, draw: random.Random) -> None:
        """The machine loses its power."""
        self._end(draw, loses_power=True)

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.box.store.close()
        self.files = PowerLossDisk()
        self._saved = None
        self._open()
        super().wipe()

    def _end(self, draw: random.Random, *, loses_power: bool) -> None:
        self._writing.clear()
        allowed = [_keys(state) for _, state in self._states] if loses_power else []
        allowed += [_keys(self.entries), *self._unfinished]
        self._unfinished.clear()
        self.box.store.close()
        is_first = True
        while True:
            if loses_power or self.files.has_dropped:
                self.files.crash(draw)
            else:
                self.files.kill()
            if is_first and draw.random() < 0.2:
                self.files.cut_in = draw.choice(_ENDS)
            is_first = False
            try:
                self._open()
                break
            except PowerCut:
                self.cut_count += 1
        self.files.cut_in = None
        self._adopt(allowed)

    def _adopt(self, allowed: list[tuple[_Key, ...]]) -> None:
        """Take over what is there, which has to be one of several things: rules I7 and I8."""
        ledger = self.box.ledger
        self.entries = list(self._read(ledger.begin_index)) if ledger.begin_index >= 0 else []
        found = _keys(self.entries)
        certain = allowed[0]
        for state in allowed[1:]:
            certain = _common(certain, state)
        if not (found[:len(certain)] == certain
                and any(state[:len(found)] == found for state in allowed)):
            raise InvariantBroken("I7", f"the log has {found} after an end, and {certain} is "
                                        f"certain of {allowed}")
        self.hard_state = LedgerStorage(self.box.store, LEDGER_FOLDER).load()
        if self.hard_state not in (self._saved, self._saving or self._saved):
            raise InvariantBroken("I8", f"the disk has {self.hard_state}, and {self._saved} was "
                                        f"saved")
        self._saved, self._saving = self.hard_state, None
        self.sync_all()
        self.check_queue()

    # --- what the machine does

    @contextmanager
    def changing(self, *outcomes: Sequence[Entry], new: tuple[_Key, ...] = ()) -> Iterator[None]:
        """An end during the block may leave one of these logs, with the new entries behind it."""
        try:
            yield
        except PowerCut:
            self._unfinished += [(*_keys(outcome), *new) for outcome in outcomes]
            raise

    def read_new(self, first: int) -> Sequence[Entry]:
        """The entries from an index on."""
        return self._read(first) if first <= self.box.ledger.end_index else ()

    def _read(self, first: int) -> Sequence[Entry]:
        return self.log.read(first, 1 << 40)

    def end_sync(self, number: int) -> None:
        """The log is durable."""
        self.sync_log()
        super().end_sync(number)

    def sync_log(self) -> None:
        """Make the files of the log durable."""
        flushed = self.box.store.flush.flushed(self.box.store.commit_log.max_offset)
        if flushed is not None:
            assert flushed.called, "a sync waits"
            failures: list[Failure] = []
            flushed.addErrback(failures.append)
            assert not failures, failures

    def end_save(self, number: int) -> None:
        """The term and the vote are durable."""
        state = self._writing.get(number)
        if state is not None:
            self._saving = state
            write_hard_state(self.files, LEDGER_FOLDER, StoredState(
                state.term, state.voted_for, state.joined))
            self._saved, self._saving = state, None
        super().end_save(number)

    def commit(self, index: int) -> None:
        """Make entries readable, as the roles of a broker do."""
        self.box.ledger.commit(index)
        while self.box.store.dispatch.behind_bytes:
            self.box.store.dispatch.step()

    def work(self) -> None:
        """Do the periodic work of a store."""
        self.box.now_ms = self.now_ms
        self.box.step(0)

    def check_queue(self) -> None:
        """Rules I10 and I11, after the messages up to the committed index are made readable."""
        store, ledger = self.box.store, self.box.ledger
        while store.dispatch.behind_bytes:
            store.dispatch.step()
        queue = store.queues.find(TOPIC, 0)
        if store.dispatch.offset > store.dispatch.confirm_offset:
            raise InvariantBroken("I10", "messages are readable that are not committed")
        offset = -1
        for entry in self.entries:
            if entry.index > ledger.committed_index or not body_of(entry):
                continue
            record = decode_record(entry.body)
            if offset >= 0 and record.queue_offset != offset:
                raise InvariantBroken("I11", f"{entry} has the queue offset {record.queue_offset} "
                                             f"in place of {offset}")
            offset = record.queue_offset + 1
            found = store.get_message(TOPIC, 0, record.queue_offset, 1).messages
            if found != [entry.body]:
                raise InvariantBroken("I11", f"the queue has {found} at {record.queue_offset}, in "
                                             f"place of {entry}")
        if queue is not None and offset >= 0 and queue.max_offset != offset:
            raise InvariantBroken("I10", f"the queue ends at {queue.max_offset}, and the committed "
                                         f"messages at {offset}")


def _common(first: tuple[_Key, ...], second: tuple[_Key, ...]) -> tuple[_Key, ...]:
    """What both logs begin with."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return first[:count]


class StoreLog(DiskLog):
    """The log on such a disk. Each position is a position in the ledger."""

    disk: StoreDisk
    #: Called when the process ends in the middle of a removal.
    on_end: Callable[[], None]

    def extend(self, term: int, bodies: Sequence[bytes]) -> None:
        """Append a leader's own messages, as its broker does."""
        self._check_disk()
        disk, first = self.disk, self.end_index + 1
        new = tuple((first + place, term, body) for place, body in enumerate(bodies))
        disk.box.ledger.leading_term = term
        with disk.changing(disk.entries, new=new), _as_log_errors():
            disk.box.append(*[message(TOPIC, body) for body in bodies])
        self._take_new(first)

    def append_barrier(self, term: int) -> None:
        """Append the barrier."""
        self._check_disk()
        first = self.end_index + 1
        with self.disk.changing(self.disk.entries, new=((first, term, b""),)):
            self.disk.log.append_barrier(term)
        self._take_new(first)

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries of a leader."""
        self._check_disk()
        assert entries[0].index == self.end_index + 1 or not self.disk.entries, "a gap in the log"
        with self.disk.changing([*self.disk.entries, *entries]):
            self.disk.log.append(entries)
        self._take_new(entries[0].index)

    def truncate(self, end_index: int) -> None:
        """Drop all entries after an index."""
        self._check_disk()
        if not self.disk.entries:
            return
        self._on_cut(end_index)
        kept = self.disk.entries[:max(end_index + 1 - self.begin_index, 0)]
        with self.disk.changing(kept):
            self.disk.log.truncate(end_index)
        self.disk.entries[:] = kept
        self.disk.change()

    def restart(self, entry: Entry) -> None:
        """Begin again with an entry."""
        self._check_disk()
        self._on_cut(entry.index - 1)
        with self.disk.changing((), [entry]):
            self.disk.log.restart(entry)
        self._on_entry(entry, None)
        self.disk.entries[:] = [entry]
        self.disk.change()

    def drop_before(self, index: int) -> None:
        """Let retention remove the oldest file, if all of it is committed and older."""
        disk, box = self.disk, self.disk.box
        log = box.entry_log
        if len(log.starts) < 2:
            return
        kept = [entry for entry in disk.entries if entry.position >= log.starts[1]]
        retention = box.store.log_retention
        try:
            with disk.changing(kept):
                retention.remove_expired()
                removed = retention.step(disk.now_ms + 100 * 3_600_000)
                assert removed is None or removed.called, "a removal waits"
        except PowerCut:
            self.on_end()
            return
        begin = box.ledger.begin_index
        if begin != self.begin_index:
            if begin > box.ledger.committed_index + 1:
                raise InvariantBroken("I15", f"the log begins at {begin}, and only "
                                             f"{box.ledger.committed_index} is committed")
            disk.entries[:] = [entry for entry in disk.entries if entry.index >= begin]
            disk.change()

    def _take_new(self, first: int) -> None:
        for entry in self.disk.read_new(first):
            self._add(entry)
        self.disk.change()


@contextmanager
def _as_log_errors() -> Iterator[None]:
    try:
        yield
    except (StoreError, OSError) as error:
        raise LogError(str(error)) from error


class StoreMachine(Machine):
    """A machine whose member works on a broker's store."""

    disk: StoreDisk

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log: StoreLog = StoreLog(self.disk, self._add_entry, self._cut_log)
        self.log.on_end = self._die

    def _make_disk(self) -> Disk:
        return StoreDisk(durable=self.settings.durable)

    def handle(self, event: Event) -> None:
        """Pass an event to the member; the process may end in it."""
        self.disk.now_ms = _BEGIN_MS + self.world.now_ms
        try:
            super().handle(event)
            if self.is_up and self.world.random.random() < _UPKEEP:
                self.disk.work()
        except PowerCut:
            self._die()
        else:
            if self.member is not None and self.disk.files.is_cut:
                # Periodic work of the store does not let the end of its process pass.
                self._die()

    def _die(self) -> None:
        """End in the middle of a change of the disk."""
        self.world.note(f"{self.name} ends in the middle of a change of its disk")
        self.disk.cut_count += 1
        draw = self.world.random
        self.end(lose_power=self.settings.durable and draw.random() < 0.6)
        self.world.call_later(int(draw.random() ** 2 * 8000), self.start)

    def _saved(self, life: int, number: int) -> None:
        try:
            super()._saved(life, number)
        except PowerCut:
            self._die()

    def _flushed(self, life: int, number: int) -> None:
        try:
            super()._flushed(life, number)
        except PowerCut:
            self._die()

    def append_directly(self, bodies: tuple[bytes, ...], on_end: Callable[[bool, int], None]
                        ) -> bool:
        try:
            return super().append_directly(bodies, on_end)
        except LogError:
            return False
        except PowerCut:
            on_end(False, -1)
            self._die()
            return True

    def _commit(self, action: Committed) -> None:
        super()._commit(action)
        self.disk.commit(action.index)


class StoreFaults(Faults):
    """The faults of a group with stores."""

    def _further_kinds(self) -> list[Callable[[], None]]:
        return [self._end_soon] * 6

    def _end_soon(self) -> None:
        """A process ends in the middle of one of the next changes of its disk."""
        machine = self._machines[self._one()]
        if machine.is_up:
            machine.disk.files.cut_in = self._world.random.choice(_ENDS)

    def repair_all(self) -> None:
        """No process is about to end any more."""
        for machine in self._machines:
            machine.disk.files.cut_in = None
        super().repair_all()


class StoreSimulation(Simulation):
    """A group of three whose members work on stores."""

    def _make_machine(self, settings: MemberSettings) -> Machine:
        # An entry is larger here than one of the core's simulation.
        settings = replace(settings, parked_bytes_max=max(settings.parked_bytes_max, 1000))
        return StoreMachine(self.world, self.links, self.ghosts, settings)

    def _make_ghosts(self, member_count: int) -> Ghosts:
        return Ghosts(member_count, durable=self.durable, body_of=body_of)

    def _make_faults(self) -> Faults:
        return StoreFaults(self, durable=self.durable)

    def _check_end(self) -> None:
        super()._check_end()
        for machine in self.machines.values():
            assert isinstance(machine, StoreMachine)
            machine.disk.check_queue()
            machine.disk.box.store.close()

    @property
    def cut_count(self) -> int:
        """How many processes have ended in the middle of a change of their disk."""
        return sum(machine.disk.cut_count for machine in self.machines.values()
                   if isinstance(machine, StoreMachine))
