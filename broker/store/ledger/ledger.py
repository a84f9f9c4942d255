"""A ledger: the entries of a message store, as the members of a group exchange and compare them.

The message store works on the log as it does without a group: it appends messages, and it makes
them readable up to the confirmed offset. ``Ledger`` adds the operations that an agreement needs: it
finds entries by their index, appends the entries of another member at the same offsets, truncates
entries on which the group did not agree, and begins again at an entry of another member.

Every method acts at once. A change survives a loss of power only after ``MessageStore.flush``.

Source: DLedgerMmapFileStore, DLedgerCommitLog @dledger-0.3.1.2, @5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from msgspec import Struct
from twisted.internet.defer import Deferred

from twistmq.broker.store.commit_flush import RunSync
from twistmq.broker.store.entry_heads import (
    ENTRY_HEAD_SIZE,
    entry_filler,
    record_follows,
)
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.ledger.entry_index import INDEX_FILE_SIZE, EntryUnit
from twistmq.broker.store.ledger.entry_log import EntryLog
from twistmq.broker.store.log_cut import CUT_AT_ONCE_MAX
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.store.raw_walk import whole_messages
from twistmq.broker.store.record_fault import record_fault
from twistmq.broker.store.settings import StoreSettings
from twistmq.protocol.errors import StoreDamaged, StoreError
from twistmq.protocol.record import (
    BLANK_SIZE_MIN,
    PHYSICAL_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_TRANSACTION_ROLLBACK,
    MessageRecord,
    encode_record,
    record_size,
    record_store_timestamp,
)

__all__ = ["BARRIER_TOPIC", "EntryRefused", "Ledger", "StoredEntry", "make_ledger_store"]

#: The topic of barriers. The record of a barrier is marked as a rollback, so that no broker enters
#: it into a queue or into the index.
BARRIER_TOPIC: Final = "RMQ_SYS_LEDGER_BARRIER"
#: The end of the physical offset in a record.
_OFFSET_END: Final = PHYSICAL_OFFSET_POSITION + 8
#: The number of units that are read at a time.
_UNITS_AT_ONCE: Final = 256
#: The number of topic names that are remembered as valid.
_NAMES_MAX: Final = 10_000


class EntryRefused(StoreError):
    """An entry of another member does not fit this log, or no store can enter its record."""


class StoredEntry(Struct, frozen=True, gc=False):
    """One entry.

    :param body: one whole record.
    :param position: the offset in the log at which the head of the entry begins.
    """

    index: int
    term: int
    body: bytes
    position: int


def make_ledger_store(
    settings: StoreSettings, folder: str, io: IStoreIO, now_ms: Callable[[], int],
    in_thread: Callable[[Callable[[], None]], Deferred[None]], run_sync: RunSync | None = None,
    steady_ms: Callable[[], int] | None = None, index_file_size: int = INDEX_FILE_SIZE,
) -> tuple[MessageStore, EntryLog]:
    """Make a message store whose log is a ledger, and its log.

    :param folder: the folder of the ledger; Apache's members use ``dledger-ID`` under the root of
        the store. ``MessageStore`` describes the other parameters.
    :param index_file_size: the length of each file of the entry index in bytes.
    """
    settings = replace(settings, store_path_commit_log=f"{folder}/data")
    log = EntryLog(io, folder, settings.mapped_file_size_commit_log, settings.sync_flush,
                   index_file_size)
    return MessageStore(settings, io, now_ms, in_thread, run_sync, steady_ms, log), log


class Ledger:
    """The entries of one message store.

    :param store: loaded; its log is ``log``.
    :param host: the encoded address of this broker, which the records of barriers contain.
    """

    def __init__(self, store: MessageStore, log: EntryLog, host: bytes) -> None:
        assert store.commit_log is log
        self._store = store
        self._log = log
        self._host = host
        #: The largest truncation that is done in one turn, in bytes.
        self.cut_size_max = CUT_AT_ONCE_MAX
        #: The topics of received records that can name a directory.
        self._names: set[bytes] = set()

    @property
    def begin_index(self) -> int:
        """The index of the first entry that is still present; -1 when the log is empty."""
        return self._log.begin_index

    @property
    def end_index(self) -> int:
        """The index of the last entry; -1 when the log is empty."""
        return self._log.end_index

    @property
    def committed_index(self) -> int:
        """The index of the last entry that is known to be committed; -1 without one."""
        return self._log.committed_index

    @property
    def leading_term(self) -> int:
        """The term of the entries that ``MessageStore.append`` makes.

        A member that becomes the leader sets it before it accepts messages.
        """
        return self._log.framing.term

    @leading_term.setter
    def leading_term(self, term: int) -> None:
        self._log.framing.term = term

    def term_at(self, index: int) -> int:
        """Return the term of an entry."""
        if index == self._log.end_index:
            return self._log.framing.last_term
        return self._unit(index).term

    def end_of(self, index: int) -> int:
        """Return the offset in the log after an entry."""
        return self._unit(index).end

    def _unit(self, index: int) -> EntryUnit:
        """Return the unit of an entry.

        :raises StoreError: when the log does not contain it.
        """
        unit = self._log.unit_at(index)
        if unit is None:
            raise StoreError(f"there is no entry {index}: the ledger has entries from "
                             f"{self.begin_index} to {self.end_index}")
        return unit

    # --- reading

    def read(self, first: int, bytes_max: int) -> tuple[StoredEntry, ...]:
        """Read entries: at least one, then as many as fit.

        :param bytes_max: the size of all bodies together.
        :raises StoreDamaged: when an entry cannot be read.
        """
        units = self._units(first, bytes_max)
        entries: list[StoredEntry] = []
        begin = 0
        for at in range(1, len(units) + 1):
            if at == len(units) or units[at].position != units[at - 1].end:
                # The entries from ``begin`` on follow each other in one file.
                entries += self._stored(units[begin:at])
                begin = at
        return tuple(entries)

    def _units(self, first: int, bytes_max: int) -> list[EntryUnit]:
        """Return the units of the entries that ``read`` returns.

        :raises StoreError: when the log does not contain one of them.
        """
        units = [self._unit(first)]
        size = units[0].size - ENTRY_HEAD_SIZE
        index, end = first + 1, self.end_index + 1
        while index < end and size < bytes_max:
            # These may be more units than fit: most entries exceed the smallest record.
            count = min(end - index, (bytes_max - size) // RECORD_SIZE_MIN + 1, _UNITS_AT_ONCE)
            batch = self._log.index.units(index, count) or [self._unit(index)]
            for unit in batch:
                size += unit.size - ENTRY_HEAD_SIZE
                if size > bytes_max:
                    break
                units.append(unit)
            index += len(batch)
        return units

    def _stored(self, units: Sequence[EntryUnit]) -> Iterator[StoredEntry]:
        """Read entries that follow each other in one file.

        :raises StoreDamaged: when the log does not have one of them.
        """
        begin = units[0].position
        try:
            data = self._log.peek(begin, units[-1].end - begin)
        except OSError as error:
            raise StoreDamaged(f"entry {units[0].index} cannot be read: {error}") from error
        for unit in units:
            at = unit.position - begin
            if data is None or not record_follows(data, at, unit.position):
                raise StoreDamaged(f"there is no entry {unit.index} at {unit.position} of the log")
            yield StoredEntry(unit.index, unit.term,
                              data[at + ENTRY_HEAD_SIZE : at + unit.size], unit.position)

    def has_entry(self, entry: StoredEntry) -> bool:
        """Return whether the log has exactly this entry."""
        unit = self._log.unit_at(entry.index)
        return (unit is not None and (unit.term, unit.position, unit.size) == (
            entry.term, entry.position, ENTRY_HEAD_SIZE + len(entry.body))
            and next(self._stored([unit])).body == entry.body)

    # --- appending

    def extend(self, term: int, bodies: Sequence[bytes]) -> None:
        """Append records as the leader of a term, all or none.

        The physical offset in each record is set. ``MessageStore.append`` is the usual way.

        :raises EntryRefused: when no store can enter one of the records.
        :raises StoreError: when the store accepts no bytes, or the disk fails.
        """
        position = self._log.max_offset
        entries: list[StoredEntry] = []
        for body in bodies:
            position = self._fitting_position(position, len(body))
            body = b"".join((
                body[:PHYSICAL_OFFSET_POSITION],
                (position + ENTRY_HEAD_SIZE).to_bytes(8, "big"), body[_OFFSET_END:]))
            entries.append(StoredEntry(
                self._log.framing.next_index + len(entries), term, body, position))
            position += ENTRY_HEAD_SIZE + len(body)
        self.append(entries)

    def append_barrier(self, term: int, now_ms: int) -> None:
        """Append an entry without content, which is the first one of the leader of a term.

        :param now_ms: the store time of its record.
        :raises StoreError: as ``extend`` does.
        """
        record = MessageRecord(
            topic=BARRIER_TOPIC, queue_id=0, body=b"", properties="", born_timestamp=now_ms,
            born_host=self._host, store_host=self._host, keys=[], tags_code=0,
            sys_flag=SYS_TRANSACTION_ROLLBACK)
        record.store_timestamp = max(now_ms, self._log.last_store_timestamp)
        try:
            self.extend(term, [encode_record(record)])
        except EntryRefused as error:
            # It is not the fault of the entry that the log cannot take it now.
            raise StoreError(str(error)) from error

    def append(self, entries: Sequence[StoredEntry]) -> None:
        """Append entries of a leader exactly as they are, all or none.

        :param entries: in order; the first one follows the last entry of the log.
        :raises EntryRefused: when an entry does not fit, or no store can enter its record.
        :raises StoreError: when the store accepts no bytes, or the disk fails.
        """
        if not entries:
            return
        store, log = self._store, self._log
        store.require_readable()
        self._require_whole()
        index, term, position = log.end_index + 1, log.framing.last_term, log.max_offset
        for entry in entries:
            self._require_fitting(entry, index if log.begin_index >= 0 else -1, term, position)
            index, term = entry.index + 1, entry.term
            position = entry.position + ENTRY_HEAD_SIZE + len(entry.body)
        oldest_ms = min(record_store_timestamp(entry.body) for entry in entries)
        if oldest_ms < log.last_store_timestamp:
            # An earlier leader had a clock that was ahead of this leader's clock.
            store.checkpoint.lower(oldest_ms, log.max_offset)
        log.write(self._writes(entries, log.max_offset))
        log.last_store_timestamp = record_store_timestamp(entries[-1].body)
        store.stats.put(len(entries), position - entries[0].position, 0)

    def _require_whole(self) -> None:
        """:raises EntryRefused: while a thread removes the end that was truncated."""
        if self._store.log_cut.is_finishing:
            raise EntryRefused("the entries that were truncated are still being removed")

    def _require_fitting(self, entry: StoredEntry, index: int, term: int, position: int) -> None:
        """Check an entry and its record.

        :param index: the only possible index; -1 for any.
        :param term: the lowest possible term.
        :param position: the end of the log before it.
        :raises EntryRefused: with the reason.
        """
        log, body = self._log, entry.body
        begin_position = self._fitting_position(position, len(body))
        # A leader that was killed after it had closed a file begins the next one.
        following = log.next_file_start(position - 1)
        begin = entry.position + ENTRY_HEAD_SIZE
        if entry.index < 0 or (index >= 0 and entry.index != index):
            why = f"entry {index} comes next"
        elif entry.term < term or entry.term < 0:
            why = f"the entry before it has term {term}"
        elif entry.position not in (begin_position, following):
            why = (f"the next entry of this size begins at {begin_position}; "
                   "mappedFileSizeCommitLog may differ")
        elif not RECORD_SIZE_MIN <= len(body) <= log.record_size_max:
            why = f"{len(body)} bytes are not a record, or too large: {log.record_size_max} fit"
        elif record_size(body) != len(body):
            why = f"its record has {record_size(body)} bytes, the entry {len(body)}"
        else:
            if len(self._names) > _NAMES_MAX:
                self._names.clear()
            room = log.next_file_start(begin) - begin
            if whole_messages(body, 0, room, begin, self._names)[0] == len(body):
                return
            why = record_fault(
                lambda offset, size: body[offset - begin : offset - begin + size], begin, len(body))
            if not why:
                return
        raise EntryRefused(f"entry {entry.index} of term {entry.term} at {entry.position} cannot "
                           f"be stored: {why}")

    def _fitting_position(self, position: int, body_size: int) -> int:
        """Return where an entry with a body of this size begins when the log ends here."""
        following = self._log.next_file_start(position)
        is_fitting = ENTRY_HEAD_SIZE + body_size + BLANK_SIZE_MIN <= following - position
        return position if is_fitting else following

    def _writes(self, entries: Sequence[StoredEntry], start: int) -> list[tuple[int, bytes]]:
        """Return the bytes to write to each file: entries, with fillers before and between them.

        :param start: the end of the log before them.
        """
        framing = self._log.framing
        framing.begin(entries[0].index)
        writes: list[tuple[int, bytes]] = []
        position = start
        parts: list[bytes] = []
        for entry in entries:
            if entry.position != position:
                parts.append(entry_filler(entry.position - position))
                writes.append((start, b"".join(parts)))
                parts, start = [], entry.position
            parts.append(framing.copied_head(entry.term, entry.position, len(entry.body)))
            parts.append(entry.body)
            position = entry.position + ENTRY_HEAD_SIZE + len(entry.body)
        writes.append((start, b"".join(parts)))
        return writes

    # --- cutting

    def truncate(self, end_index: int) -> None:
        """Drop all entries after ``end_index``; none of them may be readable.

        :param end_index: one less than ``begin_index`` drops all entries.
        :raises EntryRefused: while the disk is still busy with an earlier truncation.
        :raises StoreError: when one of them is readable or committed, or when the disk fails.
        """
        if end_index >= self.end_index:
            return
        end = self.end_of(end_index) if end_index >= self.begin_index else self._log.min_offset
        self._require_whole()
        self._store.log_cut.cut_at_once(end, self.cut_size_max)

    def restart(self, entry: StoredEntry) -> None:
        """Drop all entries, and begin again with this one, at its index and position.

        The entries of the queues stay until they expire, so that queue offsets continue.

        :raises EntryRefused: when the entry does not fit; the log is unchanged.
        :raises StoreError: when entries up to there are readable, or when the disk fails.
        """
        log = self._log
        self._require_whole()
        if entry.position % log.file_size:
            raise EntryRefused(f"no file of {log.file_size} bytes starts at {entry.position}: the "
                               f"log cannot begin there with entry {entry.index}")
        self._require_fitting(entry, -1, -1, entry.position)
        self._store.require_readable()
        self._store.log_cut.begin_again(
            entry.position, lambda: log.begin_again(
                entry.position, self._writes([entry], entry.position)), self.cut_size_max)
        log.last_store_timestamp = record_store_timestamp(entry.body)

    # --- agreement

    def commit(self, index: int, *, dispatches: bool = True) -> None:
        """Make messages readable up to an entry on which the group agreed.

        :param index: a lower index than before, or one after the end, has no further effect.
        :param dispatches: whether some of them become readable at once; otherwise all of them do
            by ``Dispatch.step``.
        """
        index = min(index, self.end_index)
        if index <= self.committed_index:
            return
        self._log.committed_index = index
        self._store.dispatch.advance_confirm_offset(self.end_of(index), dispatches=dispatches)


