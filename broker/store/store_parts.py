"""The parts of a message store, and how they are connected.

Each part knows the parts that it uses; the store itself only coordinates them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from twistmq.broker.store.checkpoint_file import CheckpointFile
from twistmq.broker.store.commit_flush import CommitFlush, RunSync
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.dispatch import Dispatch
from twistmq.broker.store.file_warmer import FileWarmer
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.light_queues import LightQueues
from twistmq.broker.store.queue_reader import QueueReader
from twistmq.broker.store.queue_rewrite import compare_entries
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.retention import CommitLogRetention, QueueRetention
from twistmq.broker.store.settings import StoreSettings
from twistmq.broker.store.upkeep import Upkeep

__all__ = ["StoreParts", "disk_ratios"]

#: Runs a blocking function on a thread.
InThread = Callable[[Callable[[], None]], Deferred[None]]


def disk_ratios(io: IStoreIO, settings: StoreSettings) -> tuple[float, float]:
    """Return the used fractions, 0.0 to 1.0, of the disks of log and queues; -1.0 if unknown."""
    # The directory of the queues does not exist before the first entries are written.
    return (io.disk_used_ratio(settings.commit_log_path),
            io.disk_used_ratio(settings.store_path_root_dir))


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The parts of one store. ``index`` and ``warmer`` are None if the settings disable them."""

    commit_log: CommitLog
    queues: QueueTable
    checkpoint: CheckpointFile
    flush: CommitFlush
    index: IndexFiles | None
    dispatch: Dispatch
    reader: QueueReader
    upkeep: Upkeep
    log_retention: CommitLogRetention
    queue_retention: QueueRetention
    warmer: FileWarmer | None

    @classmethod
    def make(
        cls, settings: StoreSettings, io: IStoreIO, now_ms: Callable[[], int],
        in_thread: InThread, run_sync: RunSync | None, steady_ms: Callable[[], int],
        commit_log: CommitLog | None,
    ) -> StoreParts:
        """Create the parts; see ``MessageStore`` for the parameters."""
        log = commit_log or CommitLog(
            io, settings.commit_log_path, settings.mapped_file_size_commit_log,
            settings.sync_flush)
        queues = QueueTable(
            io, settings.path("consumequeue"), settings.mapped_file_size_consume_queue,
            settings.path("batchconsumequeue"), settings.mapper_file_size_batch_consume_queue)
        checkpoint = CheckpointFile(io, settings.path("checkpoint"), in_thread)
        if run_sync is None or not settings.sync_flush:
            # A sync of a whole interval of messages takes long enough to need a thread.
            run_sync = _on_a_thread(in_thread)
        flush = CommitFlush(log, settings, run_sync, checkpoint.log_is_durable)
        index = _make_index(settings, io, now_ms, in_thread, log, flush, checkpoint)
        dispatch = Dispatch(log, queues, index, _make_light_queues(settings, queues))
        upkeep = Upkeep(
            settings, queues, index, checkpoint, in_thread,
            lambda: (dispatch.timestamp, dispatch.offset),
            lambda begin, end: compare_entries(log, queues, dispatch, begin, end), steady_ms, log)
        reader = QueueReader(settings, log, queues, index, io.physical_memory_bytes())
        log_retention = CommitLogRetention(
            settings, io, log, lambda: upkeep.synced_offset, lambda: disk_ratios(io, settings),
            in_thread)
        queue_retention = QueueRetention(settings, io, log, queues, index, in_thread, steady_ms)
        return cls(log, queues, checkpoint, flush, index, dispatch, reader, upkeep, log_retention,
                   queue_retention, _make_warmer(settings, io, in_thread, log))


def _on_a_thread(in_thread: InThread) -> RunSync:
    """Run each sync on a thread."""
    def run_sync(
        prepare: Callable[[], Callable[[], None]], done: Callable[[Failure | None], None]
    ) -> None:
        in_thread(prepare()).addCallbacks(done, done)

    return run_sync


def _make_index(
    settings: StoreSettings, io: IStoreIO, now_ms: Callable[[], int], in_thread: InThread,
    log: CommitLog, flush: CommitFlush, checkpoint: CheckpointFile,
) -> IndexFiles | None:
    if not settings.message_index_enable:
        return None

    def flush_all() -> Deferred[None]:
        return flush.flushed(log.max_offset) or succeed(None)

    def save_checkpoint(timestamp: int, end: int) -> Deferred[None]:
        checkpoint.index_is_durable(timestamp, end)
        return checkpoint.save()

    return IndexFiles(
        io, settings.path("index"), settings.max_hash_slot_num, settings.max_index_num, now_ms,
        in_thread, flush_all, save_checkpoint)


def _make_light_queues(settings: StoreSettings, queues: QueueTable) -> LightQueues | None:
    if not settings.light_queues:
        return None
    return LightQueues(queues, settings.max_lmq_consume_queue_num)


def _make_warmer(
    settings: StoreSettings, io: IStoreIO, in_thread: InThread, log: CommitLog
) -> FileWarmer | None:
    if not settings.warm_maped_file_enable or log.framing is not None:
        # The end of a ledger is cut in one turn, without waiting for a thread.
        return None
    warmer = FileWarmer(settings, io, log, in_thread)
    log.on_new_file = warmer.claim
    return warmer
