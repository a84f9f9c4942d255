"""The message store: one commit log, a queue of entries for each topic and queue id, an index.

An append gives records their places, writes them with one call to the disk, and enters them into
queues and index in the same turn; no reader sees a record before its bytes are with the kernel.
Queues and index can be made again from the commit log, so they are written later, in small steps.
Only ``fdatasync`` runs on threads.

Source: DefaultMessageStore @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import Final

from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twistmq.broker.constants import (
    CLOCK_STEP_MAX_MS,
    PULL_SIZE_BYTES_MAX,
    QUEUE_TAILS_TOTAL_BYTES_MAX,
    STORE_LOOK_INTERVAL_MS,
)
from twistmq.broker.errors import (
    MessageIllegal,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreGone,
)
from twistmq.broker.interfaces import IDirectoryLock, IMessageStore, IStoreIO
from twistmq.broker.scheduling.run_to_completion import run_to_completion
from twistmq.broker.store.append_fast_path import (
    EncodedRecords,
    encode_ahead,
    encode_records,
    give_back_offsets,
    place_records,
)
from twistmq.broker.store.batch_queue import BatchQueue
from twistmq.broker.store.checkpoint_file import CheckpointFile
from twistmq.broker.store.commit_flush import CommitFlush, RunSync
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.dispatch import Dispatch
from twistmq.broker.store.extension_unit import ExtensionUnit, FilterBitmap
from twistmq.broker.store.file_warmer import FileWarmer
from twistmq.broker.store.get_message import GetMessageResult, GetMessageStatus, MessageFilter
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.light_queues import LightQueues
from twistmq.broker.store.log_cut import LogCut
from twistmq.broker.store.queue_extension import QueueExtensions
from twistmq.broker.store.queue_reader import QueueReader
from twistmq.broker.store.queue_rewrite import compare_entries
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.raw_log import RawLog
from twistmq.broker.store.recovery import TagsCode
from twistmq.broker.store.retention import CommitLogRetention, QueueRetention
from twistmq.broker.store.segment_files import sync_parents
from twistmq.broker.store.settings import StoreSettings
from twistmq.broker.store.store_recovery import StoreRecovery, require_commit_log
from twistmq.broker.store.store_stats import StoreStats
from twistmq.broker.store.upkeep import Upkeep
from twistmq.broker.wire.record import (
    PHYSICAL_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    MessageRecord,
)

__all__ = [
    "GetMessageResult",
    "GetMessageStatus",
    "MessageFilter",
    "MessageStore",
    "StoreSettings",
]

#: Ms between two samples of the statistics.
_SAMPLE_INTERVAL_MS = 1000
#: The codes of a store without plugins: each entry has its tag's hash.
_NO_CODES: Final[Mapping[str, TagsCode]] = MappingProxyType({})


def _not_heard_of(topic: str) -> bool | None:
    """Of a store without topics: the kinds of its queues are those that it finds."""
    return None


@implementer(IMessageStore)
class MessageStore:
    """Messages on a disk.

    :param io: the disk.
    :param now_ms: the clock.
    :param in_thread: runs a blocking function on a thread.
    :param run_sync: runs the commit log's syncs under SYNC_FLUSH, see CommitFlush; None: on a
        thread, as all others.
    :param steady_ms: the clock for durations, ms; None: ``now_ms``, where no clock jumps.
    """

    log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        io: IStoreIO,
        now_ms: Callable[[], int],
        in_thread: Callable[[Callable[[], None]], Deferred[None]],
        run_sync: RunSync | None = None,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        self.settings = settings
        self.stats = StoreStats(now_ms())
        #: False makes append refuse: a slave's store takes raw bytes only.
        self.writable = True

        #: The disk, for plugins with files of their own.
        self.io = self._io = io
        self._now_ms = now_ms
        self._steady_ms = steady_ms = steady_ms or now_ms
        self._running = self._crashed = False
        self._abort_path = settings.path("abort")
        self._unlock: Callable[[], None] | None = None
        #: The folders of store, commit log and consume queues, by their paths.
        self._directory_locks: dict[str, IDirectoryLock] = {}
        #: Faults of them, or of the log's files, while the store ran.
        self._gone: StoreGone | None = None
        #: Why the last stop was not a clean one; empty: it was.
        self.stop_fault = ""
        self._sampled_ms = self._looked_ms = 0
        self._make_bitmap: FilterBitmap | None = None
        self._log = CommitLog(io, settings.commit_log_path, settings.mapped_file_size_commit_log,
                              settings.sync_flush)
        self._queues = QueueTable(
            io, settings.path("consumequeue"), settings.mapped_file_size_consume_queue,
            settings.path("batchconsumequeue"), settings.mapper_file_size_batch_consume_queue,
        )
        #: Runs a blocking function on a thread.
        self.in_thread = in_thread
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
                self._flush_all,
                self._note_index,
            )
        self._dispatch = Dispatch(self._log, self._queues, self._index)
        self._light: LightQueues | None = None
        if settings.light_queues:
            self._light = LightQueues(self._queues, settings.max_lmq_consume_queue_num)
        self._dispatch.light = self._light
        #: Called with records once they are dispatched, and with those that entered a queue.
        self.on_dispatch = self._dispatch.on_dispatch
        self.on_arrival = self._dispatch.on_arrival
        if run_sync is None or not settings.sync_flush:
            # An interval's worth of messages takes its time to reach the disk.
            def run_sync(
                prepare: Callable[[], Callable[[], None]], done: Callable[[Failure | None], None]
            ) -> None:
                in_thread(prepare()).addCallbacks(done, done)

        self._flush = CommitFlush(
            self._log, settings, run_sync, self._checkpoint.log_is_durable)
        self._upkeep = Upkeep(
            settings,
            self._queues,
            self._index,
            self._checkpoint,
            in_thread,
            lambda: (self._dispatch.timestamp, self._dispatch.offset),
            lambda begin, end: compare_entries(
                self._log, self._queues, self._dispatch, begin, end),
            steady_ms,
        )
        #: Remove what is old, a step at a time; who has a reactor calls them.
        self.log_retention = CommitLogRetention(
            settings, io, self._log, lambda: self._upkeep.synced_offset, self.disk_ratios,
            in_thread,
        )
        self.queue_retention = QueueRetention(
            settings, io, self._log, self._queues, self._index, in_thread, steady_ms
        )
        self._warmer = None
        if settings.warm_maped_file_enable:
            self._warmer = FileWarmer(settings, io, self._log, in_thread)
            self._log.on_new_file = self._warmer.claim
        #: The log as bytes, for replication, and how its end is cut.
        self.raw = RawLog(self._log, self.stats, self._require_running)
        self.log_cut = LogCut(
            self._log, self.raw, self._dispatch, self._queues, self._index, self._flush,
            self._upkeep, self._checkpoint, self._warmer, in_thread, self._pause)
        self._reader = QueueReader(
            settings, self._log, self._queues, self._index, io.physical_memory_bytes()
        )

    def change_settings(self, settings: StoreSettings) -> None:
        """Go on with other limits, times and ratios; all else is read at the start only."""
        self.settings = settings
        self._flush.settings = self._upkeep.settings = settings
        self.log_retention.settings = self.queue_retention.settings = settings
        self._reader.change_settings(settings)

    # --- life

    def load(
        self, is_batch_topic: Callable[[str], bool | None] = _not_heard_of,
        tags_codes: Mapping[str, TagsCode] = _NO_CODES,
    ) -> None:
        """Lock the directory, find what is there, repair what a crash left.

        :param is_batch_topic: says whether a topic's queues are batch queues; None: it has not
            heard of the topic. Its answer for a topic does not change as long as the topic exists.
        :param tags_codes: by topic, gives the number in a record's queue entry where it is not
            the tag's hash. Recovery makes entries again by it.

        :raises StoreError: when another broker uses it.
        :raises StoreDamaged: when a file has the wrong length, is missing or cannot be read; the
            text names it.
        """
        settings, io = self.settings, self._io
        self._queues.is_batch_topic = is_batch_topic
        self._dispatch.tags_codes = tags_codes
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
        crashed = self._crashed = self._io.exists(self._abort_path)
        self._hold(self.settings.store_path_root_dir)
        self._checkpoint.load()
        require_commit_log(self._io, self.settings, self._checkpoint.values, crashed)
        self._io.make_directory(self._log.directory)
        self._hold(self._log.directory)
        queues = self.settings.path("consumequeue")
        if self._io.exists(queues):
            self._hold(queues)
        self._log.load()
        if not self._log.starts:
            for path in (self.settings.store_path_root_dir, self.settings.commit_log_path):
                sync_parents(self._io, path.rstrip("/"))
        self._queues.files.extensions = self._load_extensions()
        self._queues.load(thorough=crashed)
        if self._index is not None:
            values = self._checkpoint.values
            self._index.load(values.index_msg_timestamp if crashed else None)
            if not crashed:
                # Apache's broker notes this of full files only; a clean stop covers all.
                values.index_msg_timestamp = self._index.end_timestamp
        recovery = StoreRecovery(
            self.settings, self._log, self._queues, self._index, self._dispatch, crashed
        )
        values = self._checkpoint.values
        self._upkeep.durable_offset = recovery.run(values)
        self._log.last_store_timestamp = max(
            self._log.last_store_timestamp, values.physic_msg_timestamp,
            values.logics_msg_timestamp, values.index_msg_timestamp)

    def _hold(self, path: str) -> None:
        """Keep other stores from a folder, which another root may have as its commit log's."""
        if not any(lock.is_at(path) for lock in self._directory_locks.values()):
            self._directory_locks[path] = self._io.lock_directory(path)

    def _load_extensions(self) -> QueueExtensions | None:
        """Extensions of queue entries, if there are any or are to be."""
        settings, directory = self.settings, self.settings.path("consumequeue_ext")
        extends = settings.enable_consume_queue_ext
        if not extends and not self._io.exists(directory):
            return None
        extensions = QueueExtensions(
            self._io, directory, settings.mapped_file_size_consume_queue_ext,
            settings.bit_map_length_consume_queue_ext, extends,
        )
        extensions.make_bitmap = self._make_bitmap
        return extensions

    def start(self) -> None:
        """Begin to accept messages; from now on only stop() ends cleanly.

        :raises StoreError: when the mark of a run cannot be written.
        """
        assert self._unlock is not None, "load comes first"
        try:
            self._io.write_file(self._abort_path, str(self._io.process_id()).encode("ascii"))
            # Without the mark a loss of power would pass for a clean stop.
            self._io.sync_path(self.settings.store_path_root_dir)
        except OSError as error:
            raise StoreError(f"the store cannot be opened: {error}") from error
        self._upkeep.begin(self._steady_ms(), at_once=self._crashed)
        self._running = True

    def stop(self) -> Deferred[None]:
        """Flush everything, mark the stop as clean, give up the lock.

        Data that cannot be flushed is logged and leaves the mark of a crash, so that the next start
        looks closely.
        """
        return ensureDeferred(self._stop())

    async def _stop(self) -> None:
        await self.log_cut.finished()
        was_running, self._running = self._running, False
        try:
            if was_running:
                self._look()
                if self._gone is not None:
                    raise self._gone
                await self._finish()
        except (StoreError, OSError) as error:
            self.stop_fault = str(error)
            self.log.error("the store could not be stopped cleanly: {error}", error=str(error))
        finally:
            self.close()

    async def _finish(self) -> None:
        if self._warmer is not None:
            await self._warmer.stop()
        self._log.erase_failed()
        while self._log.flushed_offset < self._log.max_offset:
            flushed = self._flush.flushed(self._log.max_offset)
            if flushed is not None:
                await flushed
        while self._dispatch.behind_bytes and self._dispatch.catch_up():
            continue
        behind = self._dispatch.behind_bytes
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
        for lock in self._directory_locks.values():
            lock.release()
        self._directory_locks.clear()
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

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
        log, queues = self._log, self._queues
        now_ms = self._now_ms()
        if now_ms < log.last_store_timestamp:
            now_ms = self._behind(now_ms)
        start = log.max_offset
        light = self._light
        if light is not None:
            light.begin()
        try:
            writes = encode_records(
                records,
                queues.by_topic,
                queues.make,
                self._dispatch.filter,
                start,
                log.file_size,
                now_ms,
                self.settings.max_message_size,
                None if light is None else light.assign,
            )
        except MessageIllegal:
            if light is not None:
                light.give_back()
            self.stats.put_failed += 1
            raise
        self._write(writes, records)
        log.last_store_timestamp = now_ms
        self._dispatch.appended(records, start)
        count = len(records)
        if self._queues.has_batches:
            count = sum(record.message_count for record in records)
        self.stats.put(count, log.max_offset - start, self._now_ms() - now_ms)

    def _behind(self, now_ms: int) -> int:
        """The wall clock was set back: :returns: the store time of what is stored now, ms.

        :raises StoreError: when the checkpoint cannot be written.
        """
        log = self._log
        behind_ms = log.last_store_timestamp - now_ms
        if behind_ms <= CLOCK_STEP_MAX_MS:
            # Store times stand still until it is where it was.
            return log.last_store_timestamp
        self.log.warn("the clock is {behind} ms behind the last store time", behind=behind_ms)
        self._checkpoint.lower(now_ms, log.max_offset)
        log.last_store_timestamp = now_ms
        return now_ms

    def _write(
        self, writes: Sequence[tuple[int, bytes]], records: Sequence[MessageRecord]
    ) -> None:
        """Write records that have their places; records that cannot be written lose them."""
        try:
            self._log.write(writes)
        except StoreError:
            give_back_offsets(records, self._queues.by_topic)
            if self._light is not None:
                self._light.give_back()
            self.stats.put_failed += len(records)
            raise

    def encode_ahead(self, records: Sequence[MessageRecord]) -> EncodedRecords:
        """Do the part of an append that can be done before it, for ``append_encoded``.

        :raises MessageIllegal: when a record breaks a limit; ``record_index`` says which.
        """
        if self._light is not None:
            # Offsets in light queues are properties: the size of a record depends on them.
            return records, bytearray()
        return records, encode_ahead(
            records, self._log.file_size, self.settings.max_message_size)

    def append_encoded(self, encoded: Sequence[EncodedRecords]) -> None:
        """Store many records in this order, all or none; they become readable part by part.

        That is done by :meth:`dispatch_step`, which is to be called until ``dispatched_offset`` is
        behind them.

        :raises StoreError: as ``append``.
        """
        records = [record for part, _ in encoded for record in part]
        if self._light is not None:
            self.append(records)
            return
        self._require_writable()
        log, queues = self._log, self._queues
        now_ms = self._now_ms()
        if now_ms < log.last_store_timestamp:
            now_ms = self._behind(now_ms)
        start = log.max_offset
        self._write(place_records(encoded, queues.by_topic, queues.make, self._dispatch.filter,
                                  start, log.file_size, now_ms), records)
        log.last_store_timestamp = now_ms
        self._dispatch.wait([part for part, _ in encoded], start)
        self.stats.put(len(records), log.max_offset - start, self._now_ms() - now_ms)

    def _require_running(self) -> None:
        """:raises StoreError: when no byte can be stored."""
        if not self._running:
            raise StoreClosed("the store does not run")
        if self._flush.failure is not None:
            raise self._flush.failure.with_traceback(None)
        if self._queues.tail_bytes > QUEUE_TAILS_TOTAL_BYTES_MAX:
            raise StoreFull("the consume queues cannot be written, the disk is full")

    def _pause(self) -> Callable[[], None]:
        """Take no bytes and do no upkeep until the result is called."""
        self._require_running()
        self._running = False

        def resume() -> None:
            self._running = True

        return resume

    def refuses_why(self) -> str:
        """Why messages are refused now; empty: they are not."""
        try:
            self._require_writable()
        except StoreError as error:
            return str(error)
        return ""

    def _require_writable(self) -> None:
        """Refuse messages when they cannot be stored."""
        if not self._running or not self.writable:
            raise StoreClosed("the store does not accept messages")
        if self._flush.failure is not None:
            # It would keep the frames of all that it was raised to.
            raise self._flush.failure.with_traceback(None)
        if self.log_retention.disk_full:
            raise StoreFull("the disk is fuller than diskSpaceWarningLevelRatio")
        if self._queues.tail_bytes > QUEUE_TAILS_TOTAL_BYTES_MAX:
            raise StoreFull("the consume queues cannot be written, the disk is full")

    # --- dispatch

    @property
    def dispatch_filter(self) -> Callable[[MessageRecord], bool] | None:
        """Says whether a record enters its queue; None: all do but half messages and rollbacks.

        It must say the same of a record whenever it is asked.
        """
        return self._dispatch.filter

    @dispatch_filter.setter
    def dispatch_filter(self, enters: Callable[[MessageRecord], bool] | None) -> None:
        self._dispatch.filter = enters

    @property
    def make_filter_bitmap(self) -> FilterBitmap | None:
        """Says which filters want a message, under enable_consume_queue_ext.

        Its value stands beside the message's queue entry, and every filter that reads the
        queue is told it. It is asked when an entry is made, so that recovery asks again.
        """
        return self._make_bitmap

    @make_filter_bitmap.setter
    def make_filter_bitmap(self, make: FilterBitmap | None) -> None:
        self._make_bitmap = make
        if self._queues.files.extensions is not None:
            self._queues.files.extensions.make_bitmap = make

    @property
    def confirm_offset(self) -> int:
        """Up to here messages are dispatched and can be read."""
        return self._dispatch.confirm_offset

    @property
    def confirm_follows(self) -> bool:
        """Whether the confirm offset is simply where the log ends: no replica has a say."""
        return self._dispatch.confirm_follows

    @confirm_follows.setter
    def confirm_follows(self, follows: bool) -> None:
        self._dispatch.confirm_follows = follows

    def advance_confirm_offset(self, offset: int) -> None:
        """Replicas agree up to here: make it readable. The offset follows the log no longer.

        :param offset: in the commit log; one that is less than before changes nothing.
        """
        self._dispatch.advance_confirm_offset(offset)

    def dispatch_behind_bytes(self) -> int:
        """Bytes that are confirmed and not readable yet."""
        return self._dispatch.behind_bytes

    @property
    def dispatched_offset(self) -> int:
        """Up to here messages can be read."""
        return self._dispatch.offset

    def dispatch_step(self) -> bool:
        """Make some of what waits for it readable; it is done anyway, every 50 ms.

        :returns: whether there was any.
        """
        return self._dispatch.behind_bytes > 0 and self._dispatch.catch_up()

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
        """Do what is due, for a few milliseconds at most. Call it every 50 ms or so.

        :param now_ms: by the clock for durations.
        """
        if not self._running:
            return
        if not 0 <= now_ms - self._looked_ms < STORE_LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            self._look()
        self._flush.flush_due(now_ms)
        if now_ms - self._sampled_ms >= _SAMPLE_INTERVAL_MS:
            self._sampled_ms = now_ms
            self.stats.sample(now_ms)
        self.dispatch_step()
        if self._gone is not None:
            # Queues and index would go where no reader finds them.
            return
        self._upkeep.step(now_ms)
        if self._warmer is not None and not self.log_retention.disk_full:
            self._warmer.step()

    def _look(self) -> None:
        """Take no more messages when the folder or the file that they go to is not there."""
        gone = [path for path, lock in self._directory_locks.items() if not lock.is_at(path)]
        fault = (f"the folder {gone[0]} was removed, renamed or replaced" if gone
                 else self._log.look())
        if not fault or self._gone is not None:
            return
        self._gone = StoreGone(f"{fault} while the store ran")
        if self._flush.failure is None:
            self._flush.give_up(self._gone)
        self.log.error("{error}: it takes no more messages until it is started again",
                       error=str(self._gone))

    def _flush_all(self) -> Deferred[None]:
        """Make the log durable as it is now."""
        return self._flush.flushed(self._log.max_offset) or succeed(None)

    def _note_index(self, timestamp: int, end: int) -> Deferred[None]:
        """Make durable that the index is complete up to a store time, ms, and a place."""
        self._checkpoint.index_is_durable(timestamp, end)
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
        started = self._steady_ms()
        result = self._reader.get_message(
            topic, queue_id, offset, max_count, message_filter, max_total_size
        )
        self.stats.got(result.message_count, self._steady_ms() - started)
        return result

    def look_message(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Read the record at a place of the commit log.

        :param size: bytes to read, when it is known; None: the record's own.
        :returns: None when no record starts there: what looks like one in the body of another says
            of itself that it is elsewhere, or is too short.
        """
        if not 0 <= physical_offset < self.confirm_offset:
            return None
        record = self._log.read_record(physical_offset)
        if record is None or len(record) < RECORD_SIZE_MIN:
            return None
        end = PHYSICAL_OFFSET_POSITION + 8
        if int.from_bytes(record[PHYSICAL_OFFSET_POSITION:end], "big") != physical_offset:
            return None
        return record if size is None else record[:size]

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> tuple[list[bytes], int, int]:
        """Find messages by a key or a unique id, however long it takes; see :meth:`querying`."""
        return run_to_completion(self.querying(topic, key, max_count, begin_ms, end_ms))

    def querying(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, tuple[list[bytes], int, int]]:
        """Find messages by a key or a unique id; yields where it can pause.

        Hundreds of thousands of items may have the hash of one key.

        :param begin_ms: store times from here to ``end_ms``, both included, to the second.
        :returns: (records, the oldest first; store time in ms and place of the newest message in
            the index).
        """
        return self._reader.querying(topic, key, max_count, begin_ms, end_ms)

    def is_empty_batch_queue(self, topic: str, queue_id: int) -> bool:
        """Whether nothing was ever stored in a queue that is, or would be, a batch queue."""
        return not self.max_offset_in_queue(topic, queue_id) and (
            self._queues.is_batch(topic, queue_id))

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
        entry = None if queue is None else self._queues.files_of(queue).entry(queue, queue_offset)
        return -1 if entry is None else entry[0]

    def queue_entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> list[tuple[int, int, int]]:
        """Read a queue's entries: (place in the commit log, size, tags code).

        :returns: fewer than wanted where a file or the queue ends; none outside of it.
        """
        return self.read_entries(topic, queue_id, queue_offset, max_count)[0]

    def read_entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Read a queue's entries as queue_entries does.

        :returns: the entries, and the queue offset behind them, which in a batch queue is further
            than there are entries.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return [], queue_offset
        return self._queues.entries(queue, queue_offset, max_count)

    def extended_entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> tuple[list[tuple[tuple[int, int, int], ExtensionUnit | None]], int]:
        """Read a queue's entries as they are, each with the unit it points at, if there is one.

        :returns: as read_entries does.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return [], queue_offset
        return self._queues.extended_entries(queue, queue_offset, max_count)

    def queues(self) -> dict[str, list[int]]:
        """List the topics that have queues, with the queues' ids in order."""
        return {topic: sorted(by_id) for topic, by_id in self._queues.by_topic.items() if by_id}

    def has_batch_queues(self, topic: str) -> bool:
        """Whether the queues that a topic has are batch queues."""
        return any(isinstance(queue, BatchQueue)
                   for queue in self._queues.by_topic.get(topic, {}).values())

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Find a queue; for plugins that read entries themselves."""
        return self._queues.find(topic, queue_id)

    # --- topics, figures, configuration

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues; its messages stay in the commit log and cannot be pulled.

        :returns: how many queues there were.
        """
        # A record that waits for its dispatch would make them again.
        while self._dispatch.dispatch_waiting():
            continue
        return self._queues.destroy(topic)

    def clean_expired_queues(self, kept: Container[str]) -> Iterator[ConsumeQueue]:
        """Remove queues whose messages are all gone from the commit log, one for each next().

        :param kept: topics whose queues stay.
        :returns: the queues that were removed.
        """
        for queue in self._queues.expired(self.min_offset):
            current = self._queues.find(queue.topic, queue.queue_id) is queue
            if current and queue.max_physical <= self.min_offset and queue.topic not in kept:
                self._queues.destroy_queue(queue)
                yield queue

    def config_file(self, name: str) -> ConfigFile:
        """Give a file of the ``config`` directory by its name, ``topics.json``."""
        return ConfigFile(self._io, self.settings.path("config", name))

    def disk_ratios(self) -> tuple[float, float]:
        """Used parts of the disks of commit log and queues, 0.0 to 1.0; -1.0: not to be told."""
        # The queues' own directory is there once the first entries were written.
        return (self._io.disk_used_ratio(self.settings.commit_log_path),
                self._io.disk_used_ratio(self.settings.store_path_root_dir))

    def runtime_info(self) -> dict[str, str]:
        """List what `mqadmin brokerStatus` prints of a store."""
        # Whole percents, rounded up.
        ratio, queue_ratio = (ceil(round(each * 100, 6)) / 100 if each >= 0 else each
                              for each in self.disk_ratios())
        return {
            **self.stats.runtime_info(self._now_ms()),
            f"commitLogDiskRatio_{self.settings.commit_log_path}": str(ratio),
            "commitLogDiskRatio": str(ratio),
            "consumeQueueDiskRatio": str(queue_ratio),
            "commitLogMinOffset": str(self.min_offset),
            "commitLogMaxOffset": str(self.max_offset),
            "dispatchBehindBytes": str(self.dispatch_behind_bytes()),
        }
