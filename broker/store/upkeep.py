"""The periodic work of a running store, in steps of a few milliseconds.

Consume queues, index and checkpoint change with every message. Writing them at once would cost a
system call for each of thousands of queues, and writing all of them together would stop the reactor
for seconds. Since all this data can be rebuilt from the commit log, it may wait in memory, but not
for too long: the longer it waits, the more of the log a start after a crash has to read. Therefore
each step does a part of the work that is due. Queue entries are written when many of them wait, and
are made durable every minute; the index is made durable in rounds; the checkpoint follows the
durable state and never claims more.

A failed sync needs special care, because a later successful one does not prove that the earlier
data is on disk. The entries are then compared with the log and rewritten, and no file of the log
that they point into is removed before that.

Source: FlushConsumeQueueService, StoreCheckpoint, DefaultMessageStore.addScheduleTask @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.constants import (
    CHECKPOINT_FLUSH_INTERVAL_MS,
    FLUSH_STEP_MS,
    FLUSH_STEP_TAILS_MAX,
    FLUSH_URGENT_STEP_MS,
    INDEX_FLUSH_BYTES,
    INDEX_FLUSH_INTERVAL_MS,
    QUEUE_SYNC_FILES_MAX,
    QUEUE_SYNC_INTERVAL_MS,
    QUEUE_SYNC_LOG_BYTES,
    QUEUE_TAIL_LEAST_BYTES,
    QUEUE_TAILS_URGENT_BYTES,
)
from twistmq.broker.store.checkpoint_file import CheckpointFile
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.queue_sync import QueueSync
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.settings import StoreSettings
from twistmq.protocol.errors import StoreDamaged, StoreError
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = ["Upkeep"]

#: The number of tails written between two checks of the clock; creating as many new files takes
#: about 5 ms.
_TAILS_AT_ONCE = 10
#: The delay before a failed write of the index is retried, however much of it waits, in ms.
_INDEX_RETRY_MS = 1_000


class Upkeep:
    """The periodic work of one store.

    :param index: None when messages are not indexed.
    :param dispatched: returns the store time in ms of the newest dispatched message, and the offset
        up to which the commit log is dispatched.
    :param compare: compares the queue entries of a range of the log, (begin, end), in small steps;
        it raises StoreError when an entry is wrong.
    :param log: may have files beside it that are synced with the queues.
    """

    log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        queues: QueueTable,
        index: IndexFiles | None,
        checkpoint: CheckpointFile,
        in_thread: Callable[[Callable[[], None]], Deferred[None]],
        dispatched: Callable[[], tuple[int, int]],
        compare: Callable[[int, int], Iterator[None]],
        now_ms: Callable[[], int],
        log: CommitLog,
    ) -> None:
        self.settings = settings
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._in_thread = in_thread
        self._dispatched = dispatched
        self._compare = compare
        self._now_ms = now_ms
        self._commit_log = log
        #: A loss of power loses no queue entry of messages before this commit-log offset.
        self.synced_offset = 0
        #: Entries of messages before this offset were durable when the store was opened.
        self.durable_offset = 0
        #: The range of the log that the tails being written cover; None when not all tails are
        #: written.
        self._covered: tuple[int, int] | None = None
        self._tails_ms = self._thorough_ms = self._index_ms = self._checkpoint_ms = 0
        self._writing_tails = False
        self._sync_lock = DeferredLock()
        self._state_lock = DeferredLock()
        #: The current errors, by the part that cannot be written.
        self._faults: dict[str, str] = {}
        self._index_retry_ms = 0
        #: The number of index rounds at the last check.
        self._index_rounds = 0
        #: The paths whose sync failed, and the commit-log offset up to which their entries reach.
        self._lost_paths: set[str] = set()
        self._lost_end = 0
        #: The generator that rewrites them.
        self._rewriting: Iterator[None] | None = None
        #: Whether some entries are lost, so that only the next start can rebuild them.
        self._needs_restart = False

    def begin(self, now_ms: int, at_once: bool = False) -> None:
        """Start all intervals.

        :param at_once: make queues and index durable in the first steps. This is used after a
            recovery: if the broker were killed soon, the next start would have to repeat the work.
        """
        self._tails_ms = self._checkpoint_ms = now_ms
        self._thorough_ms = self._index_ms = 0 if at_once else now_ms

    def step(self, now_ms: int) -> None:
        """Do a part of the work that is due; disk failures are logged and retried."""
        try:
            self._step_tails(now_ms)
        except (StoreError, OSError) as error:
            self._fault("consume queues", error)
            self._writing_tails = False
            self._tails_ms = now_ms
        self._step_rewriting(now_ms)
        try:
            self._step_index(now_ms)
        except (StoreError, OSError) as error:
            self._fault("the index", error)
            self._index_retry_ms = now_ms + _INDEX_RETRY_MS
        if now_ms - self._checkpoint_ms >= CHECKPOINT_FLUSH_INTERVAL_MS:
            self._checkpoint_ms = now_ms
            self._save()

    def due_ms(self) -> int:
        """Return when ``step`` has work next, by the clock for durations, ms; 0 when it has work.

        Messages that are stored in the meantime may bring this time forward.
        """
        settings, index = self.settings, self._index
        if self._writing_tails or self._rewriting is not None or self._queues.should_write:
            return 0
        thorough_ms = settings.flush_consume_queue_thorough_interval
        if self._has_much_to_sync():
            thorough_ms = min(thorough_ms, QUEUE_SYNC_INTERVAL_MS)
        due_ms = min(self._tails_ms + settings.flush_interval_consume_queue,
                     self._thorough_ms + thorough_ms,
                     self._checkpoint_ms + CHECKPOINT_FLUSH_INTERVAL_MS)
        if index is not None:
            if index.has_work or index.waiting_bytes >= INDEX_FLUSH_BYTES:
                return 0
            due_ms = min(due_ms, self._index_ms + INDEX_FLUSH_INTERVAL_MS)
        return due_ms

    def _step_tails(self, now_ms: int) -> None:
        """Write some tails. Once all are written, sync them every minute, or earlier after heavy
        traffic."""
        settings = self.settings
        queues = self._queues
        if not self._writing_tails:
            elapsed_ms = now_ms - self._thorough_ms
            thorough = (elapsed_ms >= settings.flush_consume_queue_thorough_interval
                        or (elapsed_ms >= QUEUE_SYNC_INTERVAL_MS and self._has_much_to_sync()))
            if thorough or queues.should_write:
                queues.begin_writing()
            elif now_ms - self._tails_ms >= settings.flush_interval_consume_queue:
                queues.begin_writing(QUEUE_TAIL_LEAST_BYTES)
            else:
                return
            self._tails_ms = now_ms
            self._writing_tails = True
            self._covered = self._dispatched() if thorough else None
        before = queues.tail_bytes
        all_written = self._write_some(now_ms)
        if queues.tail_bytes < before:
            self._well("consume queues")
        if not all_written:
            return
        self._writing_tails = False
        if self._covered is not None and not self._sync_lock.locked:
            self._thorough_ms = now_ms
            if not self._lost_paths:
                self._sync_and_save(*self._covered)
            elif self._rewriting is None and not self._needs_restart:
                self._rewriting = self._rewrite(*self._covered)

    def _has_much_to_sync(self) -> bool:
        """Return whether a recovery would read much of the log, and few syncs would avoid that."""
        return (self._dispatched()[1] - self.synced_offset >= QUEUE_SYNC_LOG_BYTES
                and self._queues.unsynced_count <= QUEUE_SYNC_FILES_MAX)

    def _sync_and_save(self, timestamp: int, offset: int, rewritten: frozenset[str] = frozenset()
                       ) -> None:
        self.sync_queues(timestamp, offset, rewritten).addCallbacks(self._save, self._not_synced)

    def _step_rewriting(self, now_ms: int) -> None:
        """Continue the rewriting after failed syncs until the time of a step is over."""
        try:
            while self._rewriting is not None:
                next(self._rewriting)
                if self._now_ms() - now_ms >= FLUSH_STEP_MS:
                    return
        except StopIteration:
            self._rewriting = None
        except (StoreError, OSError) as error:
            self._rewriting = None
            self._needs_restart = isinstance(error, StoreDamaged)
            self.log.error("consume-queue entries cannot be rewritten: {error}", error=error)

    def _rewrite(self, timestamp: int, offset: int) -> Iterator[None]:
        """Rewrite the data that a sync could not write, if it is intact, and sync it.

        :raises StoreDamaged: when an entry is lost.
        :raises StoreFull, OSError: when the disk is full or fails; the caller tries again later.
        """
        lost_paths = yield from self._write_again()
        self._sync_and_save(timestamp, offset, lost_paths)

    def _write_again(self) -> Generator[None, None, frozenset[str]]:
        """Compare the data of failed syncs with the log and rewrite it, in small steps.

        The kernel may mark data as written although it could not write it, so another sync alone
        would prove nothing.

        :returns: the paths that must now be synced.
        :raises StoreDamaged, StoreFull, OSError: see :meth:`_rewrite`.
        """
        lost_paths = frozenset(self._lost_paths)
        yield from self._compare(max(self.synced_offset, self.durable_offset), self._lost_end)
        for path in sorted(lost_paths):
            self._queues.rewrite(path)
            yield
        return lost_paths

    def _write_some(self, began_ms: int) -> bool:
        """Write tails until the time of a step is over.

        :returns: whether all tails are written.
        """
        is_urgent = self._queues.tail_bytes >= QUEUE_TAILS_URGENT_BYTES
        step_ms = FLUSH_URGENT_STEP_MS if is_urgent else FLUSH_STEP_MS
        count_max = FLUSH_STEP_TAILS_MAX * step_ms // FLUSH_STEP_MS
        for _ in range(count_max // _TAILS_AT_ONCE):
            if self._queues.write_tails(_TAILS_AT_ONCE):
                return True
            if self._now_ms() - began_ms >= step_ms:
                break
        return False

    def sync_queues(
        self, timestamp: int, offset: int, rewritten: frozenset[str] = frozenset()
    ) -> Deferred[None]:
        """Make every written entry durable; only one such sync runs at a time.

        :param timestamp: the entries of all messages up to this store time are written, in ms.
        :param offset: the end of these messages in the commit log.
        :param rewritten: the paths of earlier failed syncs that have been rewritten.
        """
        return self._sync_lock.run(self._sync_queues, timestamp, offset, rewritten)

    def _sync_queues(
        self, timestamp: int, offset: int, rewritten: frozenset[str]
    ) -> Deferred[None]:
        job = self._queues.sync_job()
        companion = self._commit_log.companion_job()

        def both() -> None:
            if companion is not None:
                companion()
            job()

        synced = self._in_thread(both)
        return synced.addBoth(self._synced, job, timestamp, offset, rewritten)

    def _synced(
        self, result: Failure | None, job: QueueSync, timestamp: int, offset: int,
        rewritten: frozenset[str],
    ) -> Failure | None:
        if result is not None:
            if not self._lost_paths:
                self.log.error(
                    "consume-queue entries may not have reached the disk: {error}. Commit-log "
                    "files from {offset} on are kept until the entries are rewritten or the broker "
                    "is restarted",
                    error=result.value, offset=self.synced_offset)
            self._lost_paths |= job.paths
            # It may have included entries that were written while it ran.
            self._lost_end = self._dispatched()[1]
            return result
        if rewritten:
            self.log.info("consume-queue entries were rewritten and are on disk")
        self._lost_paths -= rewritten
        if not self._lost_paths:
            self.synced_offset = offset
            self._checkpoint.queues_are_durable(timestamp, offset)
        return None

    def _step_index(self, now_ms: int) -> None:
        """Continue a round of the index, or begin one when it is due."""
        index = self._index
        if index is None or 0 <= self._index_retry_ms - now_ms <= _INDEX_RETRY_MS:
            return
        is_due = (now_ms - self._index_ms >= INDEX_FLUSH_INTERVAL_MS
                  or index.waiting_bytes >= INDEX_FLUSH_BYTES)
        if is_due:
            self._index_ms = now_ms
        index.step(may_begin=is_due)
        if index.rounds != self._index_rounds:
            self._index_rounds = index.rounds
            self._well("the index")

    def _fault(self, part: str, error: BaseException) -> None:
        """Log that a part cannot be written, once until it can be written again.

        A full disk stays full for many rounds, and parts that fail for the same reason need one
        line.
        """
        text = str(error)
        if part not in self._faults and text not in self._faults.values():
            self.log.error("{part} cannot be written and will be tried again: {error}",
                           part=part, error=text)
        self._faults[part] = text

    def _well(self, part: str) -> None:
        """Note that a part was written."""
        if self._faults.pop(part, None) is not None:
            self.log.info("{part} can be written again", part=part)

    def _save(self, _: None = None) -> None:
        """Write the checkpoint soon."""
        self._checkpoint.save().addCallbacks(
            lambda _: self._well("the checkpoint"),
            lambda failure: self._failed(failure, "the checkpoint"))
        if not self._state_lock.locked:
            self._save_state().addErrback(self._failed, "the confirmed end of the log")

    def _save_state(self) -> Deferred[None]:
        """Save how far the log was confirmed, if that has changed."""
        return self._state_lock.run(self._run_state_job)

    def _run_state_job(self) -> Deferred[None]:
        job = self._commit_log.state_job()
        return succeed(None) if job is None else self._in_thread(job)

    def _failed(self, failure: Failure, part: str) -> None:
        if failure.check(StoreError, OSError) is None or failure.value is None:
            self.log.failure("{part} cannot be written and will be tried again", failure=failure,
                             part=part)
        else:
            self._fault(part, failure.value)

    def _not_synced(self, failure: Failure) -> None:
        """Log an unexpected error; :meth:`_synced` logs the errors of the disk."""
        if failure.check(StoreError, OSError) is None:
            self.log.failure("consume queues cannot be synced", failure=failure)

    async def settle(self) -> None:
        """Wait until no sync is running, and restart the work of the steps from the beginning."""
        await self._sync_lock.run(lambda: None)
        self._writing_tails = False
        self._covered = self._rewriting = None

    def cut(self, offset: int) -> None:
        """Note that the log now ends at this offset."""
        self.synced_offset = min(self.synced_offset, offset)
        self.durable_offset = min(self.durable_offset, offset)
        self._lost_end = min(self._lost_end, offset)

    async def finish(self) -> None:
        """Make everything durable before the stop. Data that a sync could not write is rewritten
        now.

        :raises StoreDamaged: when an entry is lost.
        :raises StoreFull, OSError: when the disk is full or fails.
        """
        self._queues.write_all()
        # A running sync may still fail; the rewriting of the steps is not continued.
        await self._sync_lock.run(lambda: None)
        self._rewriting = None
        lost_paths = run_to_completion(self._write_again()) if self._lost_paths else frozenset()
        await self.sync_queues(*self._dispatched(), lost_paths)
        if self._lost_paths:
            raise StoreError("entries of queues were lost by a sync that failed")
        if self._index is not None:
            await self._index.finish()
        await self._checkpoint.save()
        await self._save_state()
