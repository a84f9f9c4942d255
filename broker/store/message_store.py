"""The message store: one commit log, a queue of entries for each topic and queue id, an index.

An append gives records their places, writes them with one call to the disk, and enters them into
queues and index in the same turn; nobody sees a record before its bytes are with the kernel.
Queues and index can be made again from the commit log, so they are written later, in small steps.
Only ``fdatasync`` runs on threads.

Source: DefaultMessageStore @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.constants import (
    DISPATCH_STEP_BYTES_MAX,
    PULL_SIZE_BYTES_MAX,
    QUEUE_TAILS_FLUSH_BYTES,
    QUEUE_TAILS_TOTAL_BYTES_MAX,
)
from twistmq.broker.errors import MessageIllegal, StoreClosed, StoreError, StoreFull
from twistmq.broker.interfaces import IMessageStore, IStoreIO
from twistmq.broker.store.append_loop import dispatch_records, encode_records, give_back_offsets
from twistmq.broker.store.commit_flush import CommitFlush
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.consume_queue import MISSING_MAX, ConsumeQueue
from twistmq.broker.store.get_message import GetMessageResult, GetMessageStatus, MessageFilter
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.queue_reader import QueueReader
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.recovery import (
    TagsCode,
    record_of,
    scan_log,
    start_after_crash,
    start_after_stop,
    without_torn_end,
)
from twistmq.broker.store.settings import StoreSettings
from twistmq.broker.store.store_stats import StoreStats
from twistmq.broker.store.upkeep import CheckpointFile, Upkeep
from twistmq.broker.wire.record import MessageRecord, StoredMessage

__all__ = [
    "GetMessageResult",
    "GetMessageStatus",
    "MessageFilter",
    "MessageStore",
    "StoreSettings",
]

T = TypeVar("T")

#: Records dispatched at a time when they are read from the log.
_DISPATCH_COUNT = 512
#: Ms between two samples of the statistics.
_SAMPLE_INTERVAL_MS = 1000


@implementer(IMessageStore)
class MessageStore:
    """Messages on a disk.

    :param io: the disk.
    :param now_ms: the clock.
    :param in_thread: runs a blocking function on a thread.
    """

    log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        io: IStoreIO,
        now_ms: Callable[[], int],
        in_thread: Callable[[Callable[[], None]], Deferred[None]],
    ) -> None:
        self.settings = settings
        self.stats = StoreStats(now_ms())
        #: False makes append refuse: a slave's store takes append_raw only.
        self.writable = True
        #: Says whether a record enters its queue; None: all do but half messages and rollbacks.
        #: It must say the same of a record whenever it is asked.
        self.dispatch_filter: Callable[[MessageRecord], bool] | None = None
        #: Gives the number of queue entries recovery makes, for topics where it is not the tag's.
        self.make_tags_code: TagsCode | None = None
        #: Called with records once they are dispatched, and with those that entered a queue.
        self.on_dispatch: list[Callable[[Sequence[MessageRecord]], None]] = []
        self.on_arrival: list[Callable[[Sequence[MessageRecord]], None]] = []
        #: Whether the confirm offset is simply where the log ends: no replica has a say.
        self.confirm_follows = True

        self._io = io
        self._now_ms = now_ms
        self._running = False
        self._abort_path = settings.path("abort")
        self._unlock: Callable[[], None] | None = None
        self._confirmed = 0
        self._dispatched = 0
        self._dispatched_timestamp = 0
        self._sampled_ms = 0
        self._log = CommitLog(io, settings.commit_log_path, settings.mapped_file_size_commit_log)
        self._queues = QueueTable(
            io, settings.path("consumequeue"), settings.mapped_file_size_consume_queue
        )
        self._checkpoint = CheckpointFile(io, settings.path("checkpoint"), in_thread)
        self._index = None
        if settings.message_index_enable:
            self._index = IndexFiles(
                io,
                settings.path("index"),
                settings.max_hash_slot_num,
                settings.max_index_num,
                now_ms,
                in_thread,
                self._index_flushed,
            )
        self._flush = CommitFlush(self._log, settings, in_thread, self._log_flushed)
        self._upkeep = Upkeep(
            settings,
            self._queues,
            self._index,
            self._checkpoint,
            in_thread,
            lambda: self._dispatched_timestamp,
        )
        self._reader = QueueReader(
            settings, self._log, self._queues, self._index, io.physical_memory_bytes()
        )

    # --- life

    def load(self) -> None:
        """Lock the directory, find what is there, repair what a crash left.

        :raises StoreError: when another broker uses it.
        :raises StoreDamaged: when a file has the wrong length, is missing or cannot be read; the
            text names it.
        """
        settings, io = self.settings, self._io
        try:
            io.make_directory(settings.path("config"))
            self._unlock = io.lock(settings.path("lock"))
            self._load()
        except OSError as error:
            self.close()
            raise StoreError(f"the store cannot be opened: {error}") from error
        except StoreError:
            self.close()
            raise

    def _load(self) -> None:
        crashed = self._io.exists(self._abort_path)
        self._log.load()
        self._queues.load(thorough=crashed)
        self._checkpoint.load()
        if self._index is not None:
            newest = self._checkpoint.values.index_msg_timestamp if crashed else None
            self._index.load(newest)
        if not self._log.starts and any(True for _ in self._queues):
            self.log.warn("the commit log is gone, its consume queues are removed")
            for topic in list(self._queues.by_topic):
                self._queues.destroy(topic)
        self._recover(crashed)
        self._queues.correct_min_offsets(self._log.min_offset)

    def start(self) -> None:
        """Begin to accept messages; from now on only stop() ends cleanly."""
        assert self._unlock is not None, "load comes first"
        self._io.write_file(self._abort_path, str(self._io.process_id()).encode("ascii"))
        self._upkeep.begin(self._now_ms())
        self._running = True

    def stop(self) -> Deferred[None]:
        """Flush everything, mark the stop as clean, give up the lock.

        What cannot be flushed is logged and leaves the mark of a crash, so that the next start
        looks closely.
        """
        return ensureDeferred(self._stop())

    async def _stop(self) -> None:
        was_running, self._running = self._running, False
        try:
            if was_running:
                await self._finish()
        except (StoreError, OSError) as error:
            self.log.error("the store could not be stopped cleanly: {error}", error=error)
        finally:
            self.close()

    async def _finish(self) -> None:
        while self._log.flushed_offset < self._log.max_offset:
            flushed = self._flush.flushed(self._log.max_offset)
            if flushed is not None:
                await flushed
        while self.dispatch_behind_bytes() and self._dispatch_behind():
            continue
        behind = self.dispatch_behind_bytes()
        self._checkpoint.values.confirm_phy_offset = self.confirm_offset
        await self._upkeep.finish()
        if behind:
            self.log.warn("{behind} bytes are not dispatched", behind=behind)
        else:
            self._io.remove(self._abort_path)

    def close(self) -> None:
        """Let go of files and lock without flushing: what a process that dies does."""
        self._running = False
        self._log.close()
        self._queues.files.close()
        if self._index is not None:
            self._index.close()
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    # --- recovery

    def _recover(self, crashed: bool) -> None:
        """Find the end of the log, enter what queues and index lack, cut what is too much."""
        log = self._log
        if crashed:
            start = start_after_crash(
                log,
                self._checkpoint.values,
                None if self._index is None else self._index.end_physical,
                self.settings.message_index_safe,
            )
            self.log.warn("the last stop was not clean, recovery starts at {start}", start=start)
        else:
            start = start_after_stop(log, self._newest_queue_entry_end())
        end, batch = start, []
        messages = scan_log(log, start, log.max_offset, self.settings.check_crc_on_recover)
        for message in without_torn_end(messages):
            end = message.physical_offset + message.size
            log.last_store_timestamp = message.store_timestamp
            if self._is_entered(message):
                continue
            batch.append(record_of(message, self.dispatch_filter, self.make_tags_code))
            if len(batch) >= _DISPATCH_COUNT:
                self._recover_records(batch)
                batch = []
        self._recover_records(batch)
        if crashed or log.read(end, 8) not in (None, bytes(8)):
            log.truncate(end)
        log.max_offset = log.flushed_offset = end
        self._queues.cut(end)
        for queue in self._queues:
            queue.next_offset = queue.max_offset
        self._dispatched = self._confirmed = end
        self.log.info("the commit log goes from {start} to {end}", start=log.min_offset, end=end)

    def _newest_queue_entry_end(self) -> int:
        """Where the log goes on after the newest message of any queue, if it is really there."""
        queue = self._queues.furthest()
        if queue is None or queue.max_physical < 0:
            return -1
        entry = self._queues.files.entry(queue, queue.max_offset - 1)
        record = None if entry is None else self._log.read_record(entry[0])
        if record is not None and entry is not None and len(record) == entry[1]:
            return queue.max_physical
        # The queue points nowhere: look at its whole file.
        place = min(queue.max_physical, self._log.max_offset - 1)
        return max(0, place - place % self._log.file_size)

    def _is_entered(self, message: StoredMessage) -> bool:
        """Whether queue and index have a message already; most have, and this costs less."""
        if self._index is not None and message.physical_offset >= self._index.end_physical:
            return False
        queue = self._queues.find(message.topic, message.queue_id)
        if queue is None:
            return False
        return (
            message.queue_offset < queue.max_offset
            and message.physical_offset + message.size <= queue.max_physical
        )

    def _recover_records(self, records: list[MessageRecord]) -> None:
        """Enter records that may be entered already."""
        queues = self._queues
        self._drop_absurd_offsets(records)
        self._enter(records)
        if queues.tail_bytes >= QUEUE_TAILS_FLUSH_BYTES:
            queues.write_tails(len(queues.dirty))

    # --- append

    def append(self, records: Sequence[MessageRecord]) -> None:
        """Store records in this order, all or none, and make them readable.

        Their offsets, sizes and store times are filled in.

        :raises MessageIllegal: when a record breaks a limit; ``record_index`` says which.
        :raises StoreFull: when the disk is full; reads go on.
        :raises StoreClosed: when the store does not accept messages.
        :raises StoreError: when the disk fails.
        """
        if not records:
            return
        self._require_writable()
        now_ms = self._now_ms()
        log, queues = self._log, self._queues
        start = log.max_offset
        try:
            writes = encode_records(
                records,
                queues.by_topic,
                queues.make,
                self.dispatch_filter,
                start,
                log.file_size,
                now_ms,
                self.settings.max_message_size,
            )
        except MessageIllegal:
            self.stats.put_failed += 1
            raise
        try:
            log.write(writes)
        except StoreError:
            give_back_offsets(records, queues.by_topic)
            self.stats.put_failed += len(records)
            raise
        log.last_store_timestamp = now_ms
        if self.confirm_follows and self._dispatched == start:
            self._dispatch(records)
        elif self.confirm_follows:
            self._dispatch_behind()
        self.stats.put(len(records), log.max_offset - start, self._now_ms() - now_ms)

    def append_raw(self, offset: int, data: bytes) -> None:
        """Store bytes of another broker's commit log.

        :param offset: where they are in that log; must be where this log ends.
        :raises StoreError: when it is not, or the disk fails.
        """
        if not self._running:
            raise StoreClosed("the store does not run")
        log = self._log
        if offset != log.max_offset:
            raise StoreError(f"bytes of {offset} cannot be stored at {log.max_offset}")
        if self._flush.failure is not None:
            raise self._flush.failure
        writes = []
        at = 0
        while at < len(data):
            room = log.file_size - (offset + at) % log.file_size
            writes.append((offset + at, data[at : at + room]))
            at += room
        if writes:
            log.write(writes)
        if self.confirm_follows:
            self._dispatch_behind()

    def _require_writable(self) -> None:
        """Refuse messages when they cannot be stored."""
        if not self._running or not self.writable:
            raise StoreClosed("the store does not accept messages")
        if self._flush.failure is not None:
            raise self._flush.failure
        if self._queues.tail_bytes > QUEUE_TAILS_TOTAL_BYTES_MAX:
            raise StoreFull("the consume queues cannot be written, the disk is full")

    # --- dispatch

    def _dispatch(self, records: Sequence[MessageRecord]) -> None:
        """Make records readable and tell who wants to know."""
        self._enter(records)
        self._dispatched = records[-1].next_offset
        self._dispatched_timestamp = records[-1].store_timestamp
        for listener in self.on_dispatch:
            listener(records)
        if self.on_arrival:
            arrived = [record for record in records if record.enters_queue]
            if arrived:
                for listener in self.on_arrival:
                    listener(arrived)

    def _enter(self, records: Sequence[MessageRecord]) -> None:
        """Enter records into queues and index."""
        queues, index = self._queues, self._index
        queues.tail_bytes += dispatch_records(
            records,
            queues.by_topic,
            queues.make,
            queues.restart,
            queues.dirty,
            None if index is None else index.current(),
            None if index is None else index.next,
        )

    def _dispatch_behind(self) -> bool:
        """Dispatch some of what is in the log and confirmed.

        :returns: whether there was any.
        """
        end = min(self.confirm_offset, self._dispatched + DISPATCH_STEP_BYTES_MAX)
        records: list[MessageRecord] = []
        for message in scan_log(self._log, self._dispatched, self.confirm_offset, False):
            record = record_of(message, self.dispatch_filter, self.make_tags_code)
            if record.next_offset > self.confirm_offset:
                break
            records.append(record)
            if record.next_offset >= end:
                break
        if not records:
            return False
        self._drop_absurd_offsets(records)
        self._dispatch(records)
        for record in records:
            queue = self._queues.find(record.topic, record.queue_id)
            if queue is not None and queue.next_offset < queue.max_offset:
                queue.next_offset = queue.max_offset
        self._log.last_store_timestamp = records[-1].store_timestamp
        return True

    def _drop_absurd_offsets(self, records: Sequence[MessageRecord]) -> None:
        """Keep records out of their queues whose offset is no offset: the log has no CRC for it."""
        for record in records:
            queue = self._queues.find(record.topic, record.queue_id)
            if not record.enters_queue or queue is None or not queue.max_offset:
                continue
            if record.queue_offset - queue.max_offset > MISSING_MAX:
                self.log.error(
                    "message at {place} has queue offset {offset}, which {topic}-{queue_id} "
                    "cannot have: it can be found by place and key only",
                    place=record.physical_offset,
                    offset=record.queue_offset,
                    topic=record.topic,
                    queue_id=record.queue_id,
                )
                record.enters_queue = False

    def dispatch_behind_bytes(self) -> int:
        """Bytes that are confirmed and not readable yet."""
        return max(0, self.confirm_offset - self._dispatched)

    @property
    def confirm_offset(self) -> int:
        """Up to here messages are dispatched and can be read."""
        return self._log.max_offset if self.confirm_follows else self._confirmed

    def advance_confirm_offset(self, offset: int) -> None:
        """Replicas agree up to here: make it readable. The offset follows the log no longer.

        :param offset: in the commit log; one that is less than before changes nothing.
        """
        if self.confirm_follows:
            self.confirm_follows = False
            self._confirmed = self._dispatched
        self._confirmed = max(self._confirmed, min(offset, self._log.max_offset))
        self._dispatch_behind()

    # --- flush

    @property
    def max_offset(self) -> int:
        """Where the commit log goes on."""
        return self._log.max_offset

    @property
    def min_offset(self) -> int:
        """Where the commit log's first file starts."""
        return self._log.min_offset

    @property
    def flushed_offset(self) -> int:
        """Up to here a loss of power loses nothing."""
        return self._log.flushed_offset

    def flushed(self, offset: int) -> Deferred[None] | None:
        """Wait until a loss of power loses nothing below ``offset``; None when it is so.

        Waits share a sync. How long one may take is the caller's business (sync_flush_timeout).

        :returns: fires with None, or fails with StoreError when the disk fails.
        """
        return self._flush.flushed(offset)

    def flush_step(self, now_ms: int) -> None:
        """Do what is due, for a few milliseconds at most. Call it every 50 ms or so."""
        if not self._running:
            return
        self._flush.flush_due(now_ms)
        if now_ms - self._sampled_ms >= _SAMPLE_INTERVAL_MS:
            self._sampled_ms = now_ms
            self.stats.sample(now_ms)
        if self._dispatched < self.confirm_offset:
            self._dispatch_behind()
        self._upkeep.step(now_ms)

    def _log_flushed(self, timestamp: int) -> None:
        self._checkpoint.values.physic_msg_timestamp = timestamp

    def _index_flushed(self, timestamp: int) -> Deferred[None]:
        values = self._checkpoint.values
        values.index_msg_timestamp = max(values.index_msg_timestamp, timestamp)
        return self._checkpoint.save()

    # --- read

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        message_filter: MessageFilter | None = None,
        max_total_size: int = PULL_SIZE_BYTES_MAX,
    ) -> GetMessageResult:
        """Read a queue from an offset on.

        :param max_count: messages wanted; the settings may allow fewer.
        :param message_filter: None: every message is wanted.
        :param max_total_size: bytes wanted; the first message comes whatever its size.
        """
        started = self._now_ms()
        result = self._reader.get_message(
            topic, queue_id, offset, max_count, message_filter, max_total_size
        )
        self.stats.got(result.message_count, self._now_ms() - started)
        return result

    def look_message(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Read the record at a place of the commit log.

        :param size: bytes to read, when it is known; None: the record's own.
        :returns: None when no record starts there.
        """
        if not 0 <= physical_offset < self.confirm_offset:
            return None
        record = self._log.read_record(physical_offset)
        return record if size is None or record is None else record[:size]

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> tuple[list[bytes], int, int]:
        """Find messages by a key or a unique id.

        :param begin_ms: store times from here to ``end_ms``, both included, to the second.
        :returns: (records, the oldest first; store time in ms and place of the newest message in
            the index).
        """
        return self._reader.query(topic, key, max_count, begin_ms, end_ms)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Offset of a queue's first readable message."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Offset the queue's next message gets, readable messages counted."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: str = "lower"
    ) -> int:
        """Find a queue offset by store time.

        :param timestamp: ms.
        :param boundary: lower: the first message stored then or later, or the queue's end;
            upper: the last one stored then or earlier, or the queue's beginning.
        """
        return self._reader.offset_by_time(topic, queue_id, timestamp, boundary == "upper")

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a queue's message was stored, in ms; -1 when it cannot be read."""
        return self._reader.store_time(topic, queue_id, queue_offset)

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """When the first message of a queue, or of the whole log, was stored, in ms; -1: none."""
        return self._reader.earliest_store_time(topic, queue_id)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a queue has this message, and that close enough to the end to be cached."""
        place = self.commit_log_offset(topic, queue_id, queue_offset)
        return place >= 0 and self._reader.is_in_memory(place)

    def commit_log_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Place of a queue's message in the commit log; -1 when the queue has no such entry."""
        queue = self._queues.find(topic, queue_id)
        entry = None if queue is None else self._queues.files.entry(queue, queue_offset)
        return -1 if entry is None else entry[0]

    def queues(self) -> dict[str, list[int]]:
        """List the topics that have queues, with the queues' ids in order."""
        return {topic: sorted(by_id) for topic, by_id in self._queues.by_topic.items() if by_id}

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Find a queue; for plugins that read entries themselves."""
        return self._queues.find(topic, queue_id)

    # --- topics, figures, configuration

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues; its messages stay in the commit log and cannot be pulled.

        :returns: how many queues there were.
        """
        return self._queues.destroy(topic)

    def config_file(self, name: str) -> ConfigFile:
        """Give a file of the ``config`` directory by its name, ``topics.json``."""
        return ConfigFile(self._io, self.settings.path("config", name))

    def commit_log_disk_ratio(self) -> float:
        """Used part of the commit log's disk, 0.0 to 1.0; -1.0 when it cannot be told."""
        return self._io.disk_used_ratio(self.settings.commit_log_path)

    def runtime_info(self) -> dict[str, str]:
        """List what `mqadmin brokerStatus` prints of a store."""
        ratio = self.commit_log_disk_ratio()
        queue_ratio = self._io.disk_used_ratio(self.settings.path("consumequeue"))
        return {
            **self.stats.runtime_info(self._now_ms()),
            f"commitLogDiskRatio_{self.settings.commit_log_path}": str(ratio),
            "commitLogDiskRatio": str(ratio),
            "consumeQueueDiskRatio": str(queue_ratio),
            "commitLogMinOffset": str(self.min_offset),
            "commitLogMaxOffset": str(self.max_offset),
            "dispatchBehindBytes": str(self.dispatch_behind_bytes()),
        }
