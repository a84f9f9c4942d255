"""The message store: one commit log, one queue of entries per topic and queue id, and an index.

The commit log is the only source of truth. It holds the full record of every message, in the order
in which the messages arrived. Everything else in the store exists to find a record quickly: a
consume queue lists the records of one topic and queue id by queue offset, and the index finds
records by key. Both can be rebuilt from the commit log, so the store does not need a transaction
over several files: it only has to make the log durable, and recovery repairs the rest after a
crash.

An append assigns offsets to its records, writes them to the log with one system call per file, and
enters them into the queues and the index in the same turn of the reactor. A reader therefore never
sees a record whose bytes have not been passed to the kernel. The entries of queues and index are
kept in memory and are written to their files later, in small steps. Only ``fdatasync`` runs on
threads, because it is the only call that may block for long.

Source: DefaultMessageStore @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import Final

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import Logger

from twistmq.broker.constants import (
    CLOCK_STEP_MAX_MS,
    PULL_SIZE_BYTES_MAX,
    QUEUE_TAILS_TOTAL_BYTES_MAX,
    STORE_LOOK_INTERVAL_MS,
)
from twistmq.broker.errors import StoreClosed, StoreFull, StoreGone
from twistmq.broker.store.append_fast_path import (
    EncodedRecords,
    encode_ahead,
    encode_records,
    give_back_offsets,
    place_records,
)
from twistmq.broker.store.commit_flush import RunSync
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.get_message import GetMessageResult, GetMessageStatus, MessageFilter
from twistmq.broker.store.interfaces import IDirectoryLock, IStoreIO
from twistmq.broker.store.log_cut import LogCut
from twistmq.broker.store.queue_extension import QueueExtensions
from twistmq.broker.store.raw_log import RawLog
from twistmq.broker.store.segment_files import sync_parents
from twistmq.broker.store.settings import StoreSettings
from twistmq.broker.store.store_parts import StoreParts, disk_ratios
from twistmq.broker.store.store_recovery import StoreRecovery, require_commit_log
from twistmq.broker.store.store_stats import StoreStats
from twistmq.broker.store.stored_records import TagsCode
from twistmq.protocol.errors import MessageIllegal, StoreError
from twistmq.protocol.record import (
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

#: The interval between two samples of the statistics, in ms.
_SAMPLE_INTERVAL_MS = 1000
#: The tags codes of a store without plugins: each entry holds the hash of its tag.
_NO_CODES: Final[Mapping[str, TagsCode]] = MappingProxyType({})


def _not_heard_of(topic: str) -> bool | None:
    """The default of ``is_batch_topic``: the files on disk decide which kind a queue has."""
    return None


class MessageStore:
    """Stores messages on a disk.

    :param io: the disk.
    :param now_ms: the wall clock, in ms.
    :param in_thread: runs a blocking function on a thread.
    :param run_sync: runs the syncs of the commit log under SYNC_FLUSH, see CommitFlush; with None
        they run on a thread, like all other syncs.
    :param steady_ms: the clock for durations, in ms; None stands for ``now_ms``, for callers whose
        clock never jumps.
    :param commit_log: the log, in the folder ``settings.commit_log_path``; None makes one whose
        records have no heads.
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
        commit_log: CommitLog | None = None,
    ) -> None:
        parts = StoreParts.make(
            settings, io, now_ms, in_thread, run_sync, steady_ms or now_ms, commit_log)
        self.settings = settings
        self.stats = StoreStats(now_ms())
        #: Whether ``append`` accepts messages. It is False for the store of a slave, which takes
        #: only raw bytes.
        self.writable = True
        #: The reason why the last stop was not clean; empty after a clean stop.
        self.stop_fault = ""
        #: The disk, for plugins that have files of their own.
        self.io = io
        #: Runs a blocking function on a thread.
        self.in_thread = in_thread
        #: The commit log, with its first, last and durable offsets.
        self.commit_log = parts.commit_log
        #: The queues by topic and queue id, with their offsets and entries.
        self.queues = parts.queues
        #: Makes stored records readable and notifies the listeners.
        self.dispatch = parts.dispatch
        #: Reads messages by time and by key.
        self.reader = parts.reader
        #: Makes the commit log durable.
        self.flush = parts.flush
        #: None when messages are not indexed.
        self.index = parts.index
        self.checkpoint = parts.checkpoint
        self.upkeep = parts.upkeep
        #: Remove expired files, one step at a time. The owner of the reactor calls them.
        self.log_retention = parts.log_retention
        self.queue_retention = parts.queue_retention
        #: The commit log as raw bytes, for replication, and the operation that cuts its end.
        self.raw = RawLog(parts.commit_log, self.stats, self.require_readable)
        self.log_cut = LogCut(
            parts.commit_log, self.raw, parts.dispatch, parts.queues, parts.index, parts.flush,
            parts.upkeep, parts.checkpoint, parts.warmer, in_thread, self._pause)
        self._light, self._warmer = parts.dispatch.light, parts.warmer
        self._now_ms, self._steady_ms = now_ms, steady_ms or now_ms
        self._running = self._crashed = False
        self._abort_path = settings.path("abort")
        self._unlock: Callable[[], None] | None = None
        #: The locks of the folders of store, commit log and consume queues, by path.
        self._directory_locks: dict[str, IDirectoryLock] = {}
        #: A fault of these folders, or of the files of the log, found while the store ran.
        self._loss: StoreGone | None = None
        self._sampled_ms = self._looked_ms = 0

    def change_settings(self, settings: StoreSettings) -> None:
        """Use other limits, times and ratios from now on; all other settings are read only at the
        start."""
        self.settings = settings
        self.flush.settings = self.upkeep.settings = settings
        self.log_retention.settings = self.queue_retention.settings = settings
        self.reader.change_settings(settings)

    # --- life

    def load(
        self, is_batch_topic: Callable[[str], bool | None] = _not_heard_of,
        tags_codes: Mapping[str, TagsCode] = _NO_CODES,
    ) -> None:
        """Lock the directory, find the existing files, and repair the damage that a crash left.

        :param is_batch_topic: returns whether the queues of a topic are batch queues, or None for
            an unknown topic. The result for a topic must not change as long as the topic exists.
        :param tags_codes: by topic, a function that computes the tags code of a record's queue
            entry where it is not the hash of the tag. Recovery uses it to rebuild entries.

        :raises StoreError: when another broker uses the directory.
        :raises StoreDamaged: when a file has the wrong length, is missing or cannot be read; the
            text names the file.
        """
        settings, io = self.settings, self.io
        self.queues.is_batch_topic = is_batch_topic
        self.dispatch.tags_codes = tags_codes
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
        crashed = self._crashed = self.io.exists(self._abort_path)
        self._hold(self.settings.store_path_root_dir)
        self.checkpoint.load()
        require_commit_log(self.io, self.settings, self.checkpoint.values, crashed)
        self.io.make_directory(self.commit_log.directory)
        self._hold(self.commit_log.directory)
        queues = self.settings.path("consumequeue")
        if self.io.exists(queues):
            self._hold(queues)
        self.commit_log.load()
        if not self.commit_log.starts:
            for path in (self.settings.store_path_root_dir, self.settings.commit_log_path):
                sync_parents(self.io, path.rstrip("/"))
        self.queues.files.extensions = self._load_extensions()
        self.queues.load(thorough=crashed)
        if self.index is not None:
            values = self.checkpoint.values
            self.index.load(values.index_msg_timestamp if crashed else None)
            if not crashed:
                # Apache's broker records this time for full files only; a clean stop covers all
                # files.
                values.index_msg_timestamp = self.index.end_timestamp
        recovery = StoreRecovery(
            self.settings, self.commit_log, self.queues, self.index, self.dispatch, crashed,
            self.checkpoint.lower)
        values = self.checkpoint.values
        self.upkeep.durable_offset = recovery.run(values)
        self.commit_log.last_store_timestamp = max(
            self.commit_log.last_store_timestamp, values.physic_msg_timestamp,
            values.logics_msg_timestamp, values.index_msg_timestamp)

    def _hold(self, path: str) -> None:
        """Lock a folder against other stores, whose commit log it may be as well."""
        if not any(lock.is_at(path) for lock in self._directory_locks.values()):
            self._directory_locks[path] = self.io.lock_directory(path)

    def _load_extensions(self) -> QueueExtensions | None:
        """Load the extensions of queue entries if they exist or the settings enable them."""
        settings, directory = self.settings, self.settings.path("consumequeue_ext")
        extends = settings.enable_consume_queue_ext
        if not extends and not self.io.exists(directory):
            return None
        return QueueExtensions(
            self.io, directory, settings.mapped_file_size_consume_queue_ext,
            settings.bit_map_length_consume_queue_ext, extends,
        )

    def start(self) -> None:
        """Begin to accept messages; from now on only ``stop`` ends the run cleanly.

        :raises StoreError: when the marker file of a run cannot be written.
        """
        assert self._unlock is not None, "load comes first"
        try:
            self.io.write_file(self._abort_path, str(self.io.process_id()).encode("ascii"))
            # Without the marker file, a loss of power would look like a clean stop.
            self.io.sync_path(self.settings.store_path_root_dir)
        except OSError as error:
            raise StoreError(f"the store cannot be opened: {error}") from error
        self.upkeep.begin(self._steady_ms(), at_once=self._crashed)
        self._running = True

    def stop(self) -> Deferred[None]:
        """Flush everything, mark the stop as clean, and release the lock.

        When data cannot be flushed, the error is logged and the marker file of a crash stays, so
        that the next start runs the recovery after a crash.
        """
        return ensureDeferred(self._stop())

    async def _stop(self) -> None:
        await self.log_cut.finished()
        was_running, self._running = self._running, False
        try:
            if was_running:
                self._look()
                if self._loss is not None:
                    raise self._loss
                await self._finish()
        except (StoreError, OSError) as error:
            self.stop_fault = str(error)
            self.log.error("the store could not be stopped cleanly: {error}", error=str(error))
        finally:
            self.close()

    async def _finish(self) -> None:
        if self._warmer is not None:
            await self._warmer.stop()
        self.commit_log.erase_failed()
        while self.commit_log.flushed_offset < self.commit_log.max_offset:
            flushed = self.flush.flushed(self.commit_log.max_offset)
            if flushed is not None:
                await flushed
        while self.dispatch.behind_bytes and self.dispatch.catch_up():
            continue
        behind = self.dispatch.behind_bytes
        self.checkpoint.values.confirm_phy_offset = self.dispatch.confirm_offset
        await self.upkeep.finish()
        if behind:
            self.log.warn("the store stops with {behind} bytes that are not dispatched",
                          behind=behind)
        else:
            self.io.remove(self._abort_path)

    def close(self) -> None:
        """Close the files and release the lock without flushing, as when the process dies."""
        self._running = False
        self.commit_log.close()
        self.queues.files.close()
        if self.index is not None:
            self.index.close()
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

        :raises MessageIllegal: when a record breaks a limit; ``record_index`` is its index.
        :raises StoreFull: when the disk is full; reads still work.
        :raises StoreClosed: when the store does not accept messages.
        :raises StoreError: when the disk fails.
        """
        if not records:
            return
        began_ms, now_ms = self._steady_ms(), self._store_time_ms()
        log, queues = self.commit_log, self.queues
        start = log.max_offset
        light = self._light
        if light is not None:
            light.begin()
        try:
            writes = encode_records(
                records,
                queues.by_topic,
                queues.make,
                self.dispatch.filter,
                start,
                log.file_size,
                now_ms,
                self.settings.max_message_size,
                None if light is None else light.assign,
                log.framing,
            )
        except MessageIllegal:
            if light is not None:
                light.undo()
            self.stats.put_failed += 1
            raise
        self._write(writes, records)
        log.last_store_timestamp = now_ms
        self.dispatch.appended(records, start)
        count = len(records)
        if self.queues.has_batches:
            count = sum(record.message_count for record in records)
        self.stats.put(count, log.max_offset - start, self._steady_ms() - began_ms)

    def _store_time_ms(self) -> int:
        """Return the store time for new records, in ms; the wall clock may have been set back.

        :raises StoreError: when nothing can be stored, or the checkpoint cannot be written.
        """
        self._require_writable()
        log, now_ms = self.commit_log, self._now_ms()
        if now_ms >= log.last_store_timestamp:
            return now_ms
        behind_ms = log.last_store_timestamp - now_ms
        if behind_ms <= CLOCK_STEP_MAX_MS:
            # Store times stand still until the clock has caught up.
            return log.last_store_timestamp
        self.log.warn("the clock is {behind} ms behind the last store time", behind=behind_ms)
        self.checkpoint.lower(now_ms, log.max_offset)
        log.last_store_timestamp = now_ms
        return now_ms

    def _write(
        self, writes: Sequence[tuple[int, bytes]], records: Sequence[MessageRecord]
    ) -> None:
        """Write records that have their offsets; when the write fails, the offsets are released."""
        try:
            self.commit_log.write(writes)
        except StoreError:
            give_back_offsets(records, self.queues.by_topic)
            if self._light is not None:
                self._light.undo()
            self.stats.put_failed += len(records)
            raise

    def encode_ahead(self, records: Sequence[MessageRecord]) -> EncodedRecords:
        """Do the part of an append that can be done in advance, for ``append_encoded``.

        :raises MessageIllegal: when a record breaks a limit; ``record_index`` is its index.
        """
        if self._light is not None:
            # Offsets in light queues are properties, so the size of a record depends on them.
            return records, bytearray()
        return records, encode_ahead(
            records, self.commit_log.record_size_max, self.settings.max_message_size)

    def append_encoded(self, encoded: Sequence[EncodedRecords]) -> None:
        """Store many records in this order, all or none; they become readable part by part.

        ``dispatch.step`` makes them readable. Call it until ``dispatch.offset`` has passed the last
        record.

        :raises StoreError: as ``append`` does.
        """
        records = [record for part, _ in encoded for record in part]
        if self._light is not None:
            self.append(records)
            return
        began_ms, now_ms = self._steady_ms(), self._store_time_ms()
        log, queues = self.commit_log, self.queues
        start = log.max_offset
        self._write(place_records(encoded, queues.by_topic, queues.make, self.dispatch.filter,
                                  start, log.file_size, now_ms, log.framing), records)
        log.last_store_timestamp = now_ms
        self.dispatch.wait([part for part, _ in encoded], start)
        self.stats.put(len(records), log.max_offset - start, self._steady_ms() - began_ms)

    def _require_running(self) -> None:
        """Raise an error when the store is not running, or its disk has failed.

        :raises StoreError: when no byte can be stored.
        """
        if not self._running:
            raise StoreClosed("the store is not running")
        self._require_disk()

    def _require_disk(self) -> None:
        """Raise an error when nothing can be written.

        :raises StoreError: when the disk has failed, or is full.
        """
        if self.flush.failure is not None:
            # A traceback would keep alive the frames of every caller that received this error.
            raise self.flush.failure.with_traceback(None)
        if self.queues.tail_bytes > QUEUE_TAILS_TOTAL_BYTES_MAX:
            raise StoreFull("the consume queues cannot be written, the disk is full")

    def require_sound(self) -> None:
        """Raise an error when the store cannot continue.

        :raises StoreError: when nothing can be stored until a restart, or the log cannot be read.
        """
        self._require_disk()
        if self.dispatch.damage:
            raise StoreClosed(self.dispatch.damage)

    def require_readable(self) -> None:
        """Raise an error when the store is not running, or has a permanent fault.

        :raises StoreError: when no byte can be stored, or stored bytes could not be read.
        """
        self._require_running()
        self.require_sound()

    def _pause(self) -> Callable[[], None]:
        """Accept no bytes and do no upkeep until the returned function is called."""
        self._require_running()
        self._running = False

        def resume() -> None:
            self._running = True

        return resume

    def fault(self, takes_messages: bool) -> str:
        """Return the reason why nothing can be stored now; empty when the store works.

        :param takes_messages: True for a store that should accept messages, False for one that
            accepts the bytes of a master.
        """
        try:
            if takes_messages:
                self._require_writable()
            else:
                self.require_sound()
        except StoreError as error:
            return str(error)
        return ""

    def _require_writable(self) -> None:
        """Raise an error when messages cannot be stored."""
        if not self._running or not self.writable:
            raise StoreClosed("the store does not accept messages")
        self.require_sound()
        if self.log_retention.disk_full:
            raise StoreFull("the disk usage is above diskSpaceWarningLevelRatio")

    # --- flush

    @property
    def settled_offset(self) -> int:
        """The offset up to which nothing removes records any more.

        They are durable here, and confirmed if replicas have a say. Progress that depends on
        records may be saved once they are settled.
        """
        flushed = self.commit_log.flushed_offset
        dispatch = self.dispatch
        return flushed if dispatch.confirm_follows else min(flushed, dispatch.confirm_offset)

    def flush_step(self, now_ms: int) -> None:
        """Do the work that is due, for a few milliseconds at most. Call it about every 50 ms.

        :param now_ms: the time by the clock for durations.
        """
        if not self._running:
            return
        if not 0 <= now_ms - self._looked_ms < STORE_LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            self._look()
        self.flush.flush_due(now_ms)
        if now_ms - self._sampled_ms >= _SAMPLE_INTERVAL_MS:
            self._sampled_ms = now_ms
            self.stats.sample(now_ms)
        self.dispatch.step()
        if self._loss is not None:
            # Queues and index would be written to files that no reader finds.
            return
        self.upkeep.step(now_ms)
        if self._warmer is not None and not self.log_retention.disk_full:
            self._warmer.step()

    def rest_ms(self, now_ms: int) -> int | None:
        """Return how long ``flush_step`` has nothing to do unless the store changes, ms.

        :param now_ms: the time by the clock for durations.
        :returns: 0 when it has work; None when the store does not run.
        """
        if not self._running:
            return None
        if self.dispatch.behind_bytes:
            return 0
        due_ms = min(self._looked_ms + STORE_LOOK_INTERVAL_MS,
                     self._sampled_ms + _SAMPLE_INTERVAL_MS)
        flush_ms = self.flush.due_ms()
        if flush_ms is not None:
            due_ms = min(due_ms, flush_ms)
        if self._loss is None:
            if self._warmer is not None and self._warmer.has_work:
                return 0
            due_ms = min(due_ms, self.upkeep.due_ms())
        return max(due_ms - now_ms, 0)

    def _look(self) -> None:
        """Stop accepting messages when a folder, or the file being written, has disappeared."""
        lost_paths = [path for path, lock in self._directory_locks.items() if not lock.is_at(path)]
        fault = (f"the folder {lost_paths[0]} was removed, renamed or replaced" if lost_paths
                 else self.commit_log.check_files())
        if not fault or self._loss is not None:
            return
        self._loss = StoreGone(f"{fault} while the store ran")
        if self.flush.failure is None:
            self.flush.give_up(self._loss)
        self.log.error("{error}: the store accepts no more messages until the broker is restarted",
                       error=str(self._loss))

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
        """Read messages of a queue, starting at an offset.

        :param max_count: number of messages wanted; the settings may allow fewer.
        :param message_filter: None accepts every message.
        :param max_total_size: number of bytes wanted; the first message is returned whatever its
            size.
        """
        started = self._steady_ms()
        result = self.reader.get_message(
            topic, queue_id, offset, max_count, message_filter, max_total_size
        )
        self.stats.count_read(result.message_count, self._steady_ms() - started)
        return result

    def look_message(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Read the record at an offset of the commit log.

        :param size: number of bytes to read if it is known; None reads the whole record.
        :returns: None when no record starts there. Bytes inside the body of another message may
            look like a record, but then their physical offset is another one, or they are too
            short.
        """
        if not 0 <= physical_offset < self.dispatch.confirm_offset:
            return None
        record = self.commit_log.read_record(physical_offset)
        if record is None or len(record) < RECORD_SIZE_MIN:
            return None
        end = PHYSICAL_OFFSET_POSITION + 8
        if int.from_bytes(record[PHYSICAL_OFFSET_POSITION:end], "big") != physical_offset:
            return None
        return record if size is None else record[:size]

    # --- topics, figures, configuration

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic; its messages stay in the commit log and cannot be pulled.

        :returns: the number of queues removed.
        """
        # A record that waits for its dispatch would create the queues again.
        while self.dispatch.dispatch_waiting():
            continue
        return self.queues.destroy(topic)

    def clean_expired_queues(self, kept: Container[str]) -> Iterator[ConsumeQueue]:
        """Remove the queues whose messages have all left the commit log, one queue for each
        ``next()``.

        :param kept: topics whose queues stay.
        :returns: the queues that were removed.
        """
        log = self.commit_log
        for queue in self.queues.expired(log.min_offset):
            current = self.queues.find(queue.topic, queue.queue_id) is queue
            if current and queue.max_physical <= log.min_offset and queue.topic not in kept:
                self.queues.destroy_queue(queue)
                yield queue

    def config_file(self, name: str, *, is_private: bool = False) -> ConfigFile:
        """Return a file of the ``config`` directory by its name, such as ``topics.json``.

        :param is_private: whether only the owner may read it, because it has secrets.
        """
        return ConfigFile(self.io, self.settings.path("config", name), is_private=is_private)

    def disk_ratios(self) -> tuple[float, float]:
        """Return the used fractions of the disks of commit log and queues, see ``disk_ratios``."""
        return disk_ratios(self.io, self.settings)

    def runtime_info(self) -> dict[str, str]:
        """List the figures that `mqadmin brokerStatus` prints for a store."""
        # Whole percentages, rounded up.
        ratio, queue_ratio = (ceil(round(each * 100, 6)) / 100 if each >= 0 else each
                              for each in self.disk_ratios())
        return {
            **self.stats.runtime_info(self._now_ms()),
            f"commitLogDiskRatio_{self.settings.commit_log_path}": str(ratio),
            "commitLogDiskRatio": str(ratio),
            "consumeQueueDiskRatio": str(queue_ratio),
            "commitLogMinOffset": str(self.commit_log.min_offset),
            "commitLogMaxOffset": str(self.commit_log.max_offset),
            "dispatchBehindBytes": str(self.dispatch.behind_bytes),
        }
