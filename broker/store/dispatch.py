"""Making stored records readable: entering them into queues and index, and notifying listeners.

As long as the confirm offset follows the end of the log, appended records are dispatched in the
same turn of the reactor. If there are too many for one turn, they wait, and later records wait
after them. When replicas determine the confirm offset, appended records wait until they are
confirmed. Records that were appended as raw bytes, and records beyond the limit of those that wait,
are read back from the log instead. Both ways process a bounded part at a time.

Source: DefaultMessageStore.ReputMessageService, CommitLog.getConfirmOffset @5.3.3.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twisted.logger import Logger

from twistmq.broker.constants import (
    DISPATCH_STEP_BYTES_MAX,
    DISPATCH_STEP_RECORDS,
    DISPATCH_WAITING_BYTES_MAX,
)
from twistmq.broker.store.append_fast_path import (
    Absurd,
    dispatch_records,
    records_in_queues,
    set_tags_codes,
)
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.extension_unit import FilterBitmap
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.light_queues import LIGHT_QUEUE_ID, LightQueues, light_entries
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.recovery import scan_log
from twistmq.broker.store.stored_records import TagsCode, record_of, take_records
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.record import (
    MessageRecord,
    StoredMessage,
    decode_record,
    has_queue_entry,
)

__all__ = ["Dispatch"]

#: The number of bytes of the log that are read at a time, and of these the bytes after which the
#: number of records is compared with its limit.
_READ_BYTES: Final = 256 * 1024
_TAKE_BYTES: Final = 16 * 1024


class Dispatch:
    """Dispatches one log into its queues and index.

    :param index: None when messages are not indexed.
    :param light: enters records into light queues; None disables light queues.
    """

    log = Logger()

    def __init__(
        self, commit_log: CommitLog, queues: QueueTable, index: IndexFiles | None,
        light: LightQueues | None = None,
    ) -> None:
        #: Returns whether a record enters its queue; with None, all records do except half messages
        #: and rollbacks. The result for a record must always be the same.
        self.filter: Callable[[MessageRecord], bool] | None = None
        #: By topic, a function that computes the tags code of a queue entry where it is not the
        #: hash of the tag.
        self.tags_codes: Mapping[str, TagsCode] = {}
        #: Computes the bitmap of the filters that match a message, under enable_consume_queue_ext.
        #: The bitmap is stored next to the queue entry, and every filter that reads the queue
        #: receives it. It is computed when an entry is made, so recovery computes it again.
        self.make_bitmap: FilterBitmap | None = None
        self.light = light
        #: Called with records after they are dispatched.
        self.on_dispatch: list[Callable[[Sequence[MessageRecord]], None]] = []
        #: Called with the records that entered a queue.
        self.on_arrival: list[Callable[[Sequence[MessageRecord]], None]] = []
        #: Whether the confirm offset is the end of the log, because no replica determines it.
        self.confirm_follows = True
        #: The offset up to which the log is dispatched, and the store time in ms of the newest
        #: dispatched record.
        self.offset = 0
        self.timestamp = 0
        #: The size of the head in front of each record of the log.
        self.head_size = commit_log.head_size
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._confirmed = 0
        #: Appended records that are not dispatched yet, in order and without a gap. The first one
        #: is at ``offset``.
        self._waiting: deque[Sequence[MessageRecord]] = deque()
        #: The end of the appended records that were not queued.
        self._unqueued_end = 0
        #: The reason why the next records of the log cannot be made readable; empty when they can.
        self.damage = ""
        #: By (topic, queue id): the number of messages of a ledger that enter no queue, because
        #: their leader has given their offset to an earlier message as well.
        self.repeated_offsets: dict[tuple[str, int], int] = {}

    # --- the confirm offset

    @property
    def confirm_offset(self) -> int:
        """The offset up to which messages may be dispatched."""
        return self._log.max_offset if self.confirm_follows else self._confirmed

    def advance_confirm_offset(self, offset: int, *, dispatches: bool = True) -> None:
        """Make messages readable that the replicas have confirmed; the offset no longer follows the
        log.

        :param offset: in the commit log; a lower offset than before has no effect.
        :param dispatches: whether some of them are dispatched at once.
        """
        if self.confirm_follows:
            self.confirm_follows = False
            self._confirmed = self.offset
        self._confirmed = max(self._confirmed, min(offset, self._log.max_offset))
        if dispatches:
            self.catch_up()

    def reset(self, offset: int) -> None:
        """Set the end of the log that recovery has found and dispatched."""
        self.offset = self._confirmed = offset
        self._waiting.clear()
        self.damage = ""

    def cut(self, offset: int, timestamp: int) -> None:
        """Note that the log now ends at this offset, and queues and index at the latest there.

        :param timestamp: the store time of the newest remaining record, in ms.
        """
        self.damage = ""
        self._confirmed = min(self._confirmed, offset)
        self._unqueued_end = min(self._unqueued_end, offset)
        if offset < self.offset:
            self._waiting.clear()
            self.offset, self.timestamp = offset, timestamp
        while self._waiting and self._waiting[-1][-1].next_offset > offset:
            records = self._waiting.pop()
            kept = records[:bisect_right(records, offset, key=_end_of)]
            if kept:
                self._waiting.append(kept)
        self._restore_next_offsets()

    @property
    def newest_timestamp(self) -> int:
        """The store time in ms of the newest record that is dispatched or waits in memory."""
        return self._waiting[-1][-1].store_timestamp if self._waiting else self.timestamp

    def _restore_next_offsets(self) -> None:
        """Let the next offset of each queue follow its entries and the records that wait."""
        queues = self._queues
        for queue in queues:
            queue.next_offset = queue.max_offset
        for records in self._waiting:
            for record in records if self.light is None else self.light.expand(records):
                own_queue = queues.find(record.topic, record.queue_id)
                if record.enters_queue and own_queue is not None:
                    own_queue.next_offset = record.queue_offset + record.message_count

    @property
    def behind_bytes(self) -> int:
        """The number of bytes that are confirmed but not dispatched."""
        return max(0, self.confirm_offset - self.offset)

    # --- dispatching

    def appended(self, records: Sequence[MessageRecord], start: int) -> None:
        """Dispatch records that were appended from ``start`` on, if possible."""
        if self.confirm_follows and self.offset == start:
            if self.tags_codes:
                set_tags_codes(records, self.tags_codes)
            self._dispatch(records)
            return
        self.wait([records], start)
        if self.confirm_follows:
            self.catch_up()

    def wait(self, parts: Sequence[Sequence[MessageRecord]], start: int) -> None:
        """Queue records that were appended from ``start`` on for ``catch_up``, a part at a time.

        They are queued only if they follow the dispatched or waiting records, and not beyond a
        limit while replicas have to confirm them; otherwise they are read back from the log later.
        """
        follows = start == (self._waiting[-1][-1].next_offset if self._waiting else self.offset)
        if follows and (
                self.confirm_follows or start - self.offset < DISPATCH_WAITING_BYTES_MAX):
            self._waiting.extend(parts)
        else:
            self._unqueued_end = parts[-1][-1].next_offset

    def step(self) -> bool:
        """Make some of the waiting records readable; the store also does so every 50 ms.

        :returns: whether there were any.
        """
        return self.behind_bytes > 0 and self.catch_up()

    def catch_up(self) -> bool:
        """Dispatch some confirmed records: waiting ones, or else records read from the log.

        :returns: whether there were any.
        """
        if self.dispatch_waiting():
            return True
        if self.damage or self._waiting:
            return False
        confirmed = self.confirm_offset
        step_end = self.offset + DISPATCH_STEP_BYTES_MAX
        records: list[MessageRecord] = []

        def take(chunk: bytes, at: int, offset: int) -> int:
            if len(records) >= DISPATCH_STEP_RECORDS:
                return 0
            return take_records(records, chunk, at, offset, confirmed,
                                min(step_end, offset + _TAKE_BYTES), self.filter,
                                self.tags_codes, self.head_size)

        try:
            for message in scan_log(
                    self._log, self.offset, confirmed, False, take, self._damaged, _READ_BYTES):
                record = self.record_of(message)
                if record.next_offset > confirmed:
                    break
                records.append(record)
                if record.next_offset >= step_end or len(records) >= DISPATCH_STEP_RECORDS:
                    break
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            at = records[-1].next_offset if records else self.offset
            self._give_up(f"the commit log cannot be read at {at}: {error}. No message is accepted")
        if not records:
            return False
        for record in self._dispatch(records):
            queue = self._queues.find(record.topic, record.queue_id)
            if queue is not None and queue.next_offset < queue.max_offset:
                queue.next_offset = queue.max_offset
        if self.offset >= self._unqueued_end:
            # Otherwise this broker has appended newer records.
            self._log.last_store_timestamp = records[-1].store_timestamp
        return True

    def _damaged(self, offset: int, why: str) -> None:
        """Stop dispatching at a message that cannot be read; later ones are unreadable as well."""
        self._give_up(f"the message at {offset} of the commit log cannot be read: {why}. No "
                      "message is accepted; the next start cuts the log there")

    def _give_up(self, damage: str) -> None:
        self.damage = damage
        self.log.error("{damage}", damage=self.damage)

    def dispatch_waiting(self) -> bool:
        """Dispatch some of the waiting records that are confirmed.

        :returns: whether there were any.
        """
        count, confirmed = 0, self.confirm_offset
        while self._waiting and count < DISPATCH_STEP_RECORDS:
            records = self._waiting.popleft()
            if records[-1].next_offset > confirmed:
                confirmed_count = bisect_right(records, confirmed, key=_end_of)
                self._waiting.appendleft(records[confirmed_count:])
                records = records[:confirmed_count]
                if not records:
                    break
            count += len(records)
            if self.tags_codes:
                set_tags_codes(records, self.tags_codes)
            self._dispatch(records)
        return count > 0

    def enters_queue(self, message: StoredMessage) -> bool:
        """Return whether a stored message enters its queue."""
        if not has_queue_entry(message.sys_flag):
            return False
        return self.filter is None or self.record_of(message).enters_queue

    def entries_of(self, message: StoredMessage) -> list[tuple[str, int, int]]:
        """List the entries of a stored message: (topic, queue id, queue offset)."""
        if not self.enters_queue(message):
            return []
        entries = [(message.topic, message.queue_id, message.queue_offset)]
        if not self._queues.is_batch(message.topic, message.queue_id):
            # While light queues are disabled, existing ones keep their entries.
            entries += [(name, LIGHT_QUEUE_ID, offset)
                        for name, offset in light_entries(message.topic, message.properties)
                        if self.light is not None or self._queues.find(name, LIGHT_QUEUE_ID)]
        return entries

    def has_message(self, offset: int, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether the message at a commit-log offset has a given offset of a queue."""
        record = self._log.read_record(offset) if offset >= 0 else None
        if record is None:
            return False
        try:
            message = decode_record(record)
        except StoreDamaged:
            return False
        return (message.topic, message.queue_id, message.queue_offset) == (
            topic, queue_id, queue_offset)

    def record_of(self, message: StoredMessage) -> MessageRecord:
        """Rebuild the record that was appended for a stored message."""
        return record_of(message, self.filter, self.tags_codes)

    def enter(self, records: Sequence[MessageRecord]) -> Sequence[MessageRecord]:
        """Enter records into queues and index without calling listeners.

        :returns: the same records, and one more for each entry in a light queue.
        """
        queues, index = self._queues, self._index
        if index is not None and not index.has_room:
            index = None
        entered = records if self.light is None else self.light.expand(records)
        absurd: Absurd = []
        queues.tail_bytes += dispatch_records(
            entered,
            queues.by_topic,
            queues.make,
            self._restart_queue,
            queues.dirty,
            absurd,
            None if index is None else index.current(),
            None if index is None else index.next,
        )
        extensions = queues.files.extensions
        if extensions is not None and extensions.extends:
            # Entries in light queues have no units.
            queues.tail_bytes += extensions.extend(
                records, queues.by_topic, self.make_bitmap)
        for record, why in absurd:
            self.log.error(
                "the message at {place} enters no queue, so that only its commit-log offset or "
                "its keys find it: {why}", place=record.physical_offset, why=why)
        return entered

    def _restart_queue(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Empty a queue for a newer message with an older offset, as for a topic made again.

        A queue of a ledger keeps its entries unless it begins again at 0, because a leader of
        Apache's may lose entries in a kill, and give their offsets to other messages.
        """
        if not self.head_size or not queue_offset:
            self._queues.restart(queue, queue_offset)
            return
        key = queue.topic, queue.queue_id
        count = self.repeated_offsets[key] = self.repeated_offsets.get(key, 0) + 1
        if count == 1:
            self.log.error(
                "the offset {offset} of queue {queue_id} of {topic} was given again by a leader "
                "that had lost entries of its queues: the queue keeps the earlier message, and "
                "such later ones are found only by their keys", offset=queue_offset,
                queue_id=queue.queue_id, topic=queue.topic)

    def _dispatch(self, records: Sequence[MessageRecord]) -> Sequence[MessageRecord]:
        """Enter records and call the listeners.

        :returns: the result of ``enter``.
        """
        entered = self.enter(records)
        self.offset = records[-1].next_offset
        self.timestamp = records[-1].store_timestamp
        for listener in self.on_dispatch:
            listener(records)
        if self.on_arrival:
            arrived = records_in_queues(entered)
            if arrived:
                for listener in self.on_arrival:
                    listener(arrived)
        return entered


def _end_of(record: MessageRecord) -> int:
    return record.next_offset
