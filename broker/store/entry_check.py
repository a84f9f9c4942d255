"""After a crash: compares the entries of queues with the messages that are in the log.

A killed process leaves entries that are not durable yet, and a loss of power may keep any subset of
them: there may be holes anywhere after the durable part, and entries of messages that the log has
lost. The form of an entry does not show whether it is right, so each message that recovery reads
again is compared with its entry. From the first difference on, the entries of the queue are
dropped, and recovery makes them again. Entries after the last message are dropped as well.

In a ledger, a leader of Apache's may have given the offset of a message to another one, later in
the log. The queue keeps the entry of the first one, see ``Dispatch``, so the later one has none.

Differs from Apache, which checks only the form of the entries in the last three files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from twistmq.broker.store.batch_queue import (
    BATCH_ENTRY,
    BATCH_ENTRY_SIZE,
    BatchQueue,
    entry_before,
)
from twistmq.broker.store.consume_queue import ENTRY_SIZE, ConsumeQueue
from twistmq.broker.store.dispatch import Dispatch
from twistmq.broker.store.extension_reader import UnitReader
from twistmq.broker.store.extension_unit import is_address
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.recovery_fast_path import Ends, ReadEntries, skip_indexed_records
from twistmq.broker.store.stored_records import message_count
from twistmq.protocol.properties import TAGS
from twistmq.protocol.record import StoredMessage

__all__ = ["EntryCheck"]

#: The number of entries read at a time.
_COUNT: Final = 4096
#: The first fields of an entry: commit-log offset and size.
_HEAD: Final = struct.Struct(">qi")
#: The text in the properties of a message that has a tag.
_TAGS: Final = f"{TAGS}\x01"


class EntryCheck:
    """Compares messages with their entries, in the order of the log.

    :param start: a commit-log offset; the entries of messages before it are durable.
    :param dispatch: determines which messages enter their queues, and with which values.
    """

    def __init__(self, queues: QueueTable, start: int, dispatch: Dispatch) -> None:
        self._queues = queues
        self._start = start
        self._dispatch = dispatch
        self._ends: Ends = {}
        self._read: ReadEntries = {}
        #: The readers of the extension units of the queues.
        self._units: dict[ConsumeQueue, UnitReader] = {}

    def skip_indexed_records(
        self, chunk: bytes, at: int, offset: int, check_crc: bool, index: IndexFiles | None
    ) -> tuple[int, int]:
        """Skip whole records that the queues contain. Not for a dispatch with a filter.

        See ``recovery_fast_path`` for the loop.

        :param index: receives its missing items.
        :returns: the number of bytes skipped, and the store time in ms of the last record.
        """
        return skip_indexed_records(
            chunk, at, offset, check_crc,
            None if index is None else index.current(), None if index is None else index.next,
            frozenset(self._dispatch.tags_codes), self._queues.by_topic, self._read, self._ends,
            self._dispatch.head_size)

    def check(self, message: StoredMessage) -> None:
        """Drop the entries of a message, and all later ones, if they belong to another message."""
        for queue, offset in self._wrong_entries(message):
            self._read.pop(queue, None)
            self._units.pop(queue, None)
            if not queue.tail:
                self._queues.files_of(queue).cut_at(queue, offset)

    def is_right(self, message: StoredMessage) -> bool:
        """Return whether all entries of a message that are in files belong to it."""
        return not any(True for _ in self._wrong_entries(message))

    def _wrong_entries(self, message: StoredMessage) -> Iterator[tuple[ConsumeQueue, int]]:
        """Yield the queue and offset of each entry of a message that belongs to another message."""
        for topic, queue_id, offset in self._dispatch.entries_of(message):
            end = offset + 1
            queue = self._queues.find(topic, queue_id)
            if offset and self._dispatch.head_size and self._is_repeated(
                    queue, topic, queue_id, offset):
                continue
            if isinstance(queue, BatchQueue):
                end = offset + message_count(message.sys_flag, message.properties)
            self._ends[topic, queue_id] = end
            # Entries in memory have just been made from the log.
            if queue is None or not queue.min_offset <= offset < queue.written_end:
                continue
            if not self._is_entry_right(queue, message, offset, end - offset):
                yield queue, offset

    def _is_repeated(
        self, queue: ConsumeQueue | None, topic: str, queue_id: int, offset: int
    ) -> bool:
        """Return whether an earlier message of the log has the same offset of its queue."""
        end = self._ends.get((topic, queue_id))
        if end is not None:
            return offset < end
        if queue is None or isinstance(queue, BatchQueue) or not (
                queue.min_offset <= offset < queue.written_end):
            return False
        # No message of the queue was read again yet, so the first one may be before the start.
        log_offset, _ = _HEAD.unpack_from(self._entry(queue, offset).ljust(_HEAD.size, b"\0"))
        return log_offset < self._start and self._dispatch.has_message(
            log_offset, topic, queue_id, offset)

    def finish(self) -> None:
        """Drop the entries after the last message of each queue."""
        for queue in self._queues:
            end = self._ends.get((queue.topic, queue.queue_id))
            if queue.tail:
                continue
            if end is None:
                if queue.max_physical > self._start:
                    self._queues.files_of(queue).cut(queue, self._start)
            elif queue.max_offset > max(end, queue.min_offset):
                self._queues.files_of(queue).cut_at(queue, max(end, queue.min_offset))

    def _is_entry_right(
        self, queue: ConsumeQueue, message: StoredMessage, offset: int, count: int
    ) -> bool:
        """Return whether the entry at an offset belongs to a message."""
        if isinstance(queue, BatchQueue):
            entry = self._batch_entry(queue, offset)
            if len(entry) < BATCH_ENTRY_SIZE:
                return False
            physical_offset, size, _, store_ms, base, messages, compacted, _ = (
                BATCH_ENTRY.unpack(entry))
            return (physical_offset, size, store_ms, base, messages, compacted) == (
                message.physical_offset, message.size, message.store_timestamp, offset, count, -1)
        entry = self._entry(queue, offset)
        return entry[: _HEAD.size] == _HEAD.pack(message.physical_offset, message.size) and (
            not self._is_code_wrong(queue, entry, message))

    def _is_code_wrong(self, queue: ConsumeQueue, entry: bytes, message: StoredMessage) -> bool:
        """Return whether the tags code of an entry is torn, or is the address of a unit of another
        message."""
        code = int.from_bytes(entry[_HEAD.size :], "big", signed=True)
        extensions = self._queues.files.extensions
        if not is_address(code):
            if code & 0xFF or (code == 0 and _TAGS not in message.properties
                               and message.topic not in self._dispatch.tags_codes):
                # A torn write leaves zeros at its end.
                return False
            return code != self._dispatch.record_of(message).tags_code
        if extensions is None:
            return False
        reader = self._units.get(queue)
        if reader is None:
            reader = self._units[queue] = extensions.reader(queue, again=True)
        unit = reader.unit(code)
        return unit is None or (unit.tags_code, unit.store_time) != (
            self._dispatch.record_of(message).tags_code, message.store_timestamp)

    def _entry(self, queue: ConsumeQueue, offset: int) -> bytes:
        """Read the entry at an offset."""
        begin, entries = self._read.get(queue, (offset, b""))
        at = (offset - begin) * ENTRY_SIZE
        if not 0 <= at < len(entries):
            at, entries = 0, self._queues.files.read_again(queue, offset, _COUNT)
            self._read[queue] = offset, entries
        return entries[at : at + ENTRY_SIZE]

    def _batch_entry(self, queue: BatchQueue, offset: int) -> bytes:
        """Read the entry that contains an offset, or the next one."""
        _, entries = self._read.get(queue, (offset, b""))
        at = entry_before(entries, offset) * BATCH_ENTRY_SIZE
        if at < 0 or at == len(entries) - BATCH_ENTRY_SIZE:
            at, entries = 0, self._queues.batch_files.read_again(queue, offset, _COUNT)
            self._read[queue] = offset, entries
        return entries[at : at + BATCH_ENTRY_SIZE]
