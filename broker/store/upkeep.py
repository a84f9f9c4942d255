"""The periodic work of a running store, in steps of a few milliseconds.

Entries of queues are written when there are many and made durable each minute; the index is made
durable in rounds; the checkpoint follows what is durable. All of it can be made again from the
commit log, which is why it may wait.

Source: FlushConsumeQueueService, StoreCheckpoint, DefaultMessageStore.addScheduleTask @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from twisted.internet.defer import Deferred, DeferredLock
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
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.queue_sync import QueueSync
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.settings import StoreSettings
from twistmq.protocol.errors import StoreDamaged, StoreError
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = ["Upkeep"]

#: Tails written between two looks at the clock: making as many new files takes about 5 ms.
_TAILS_AT_ONCE = 10
#: Ms before an index that could not be written is tried again, however much of it waits.
_INDEX_RETRY_MS = 1_000


class Upkeep:
    """The periodic work of one store.

    :param index: None when messages are not indexed.
    :param dispatched: gives the store time in ms of the newest dispatched message, and up to where
        the commit log is dispatched.
    :param compare: compares the entries of a part of the log, (begin, end), a little a step; it
        raises StoreError when one is wrong.
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
    ) -> None:
        self.settings = settings
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._in_thread = in_thread
        self._dispatched = dispatched
        self._compare = compare
        self._now_ms = now_ms
        #: Up to here in the commit log a loss of power loses no entry of a queue.
        self.synced_offset = 0
        #: Entries of messages before this place were durable when the store was opened.
        self.durable_offset = 0
        #: The part of the log that the tails being written cover; None: not all are written.
        self._covered: tuple[int, int] | None = None
        self._tails_ms = self._thorough_ms = self._index_ms = self._checkpoint_ms = 0
        self._writing_tails = False
        self._sync_lock = DeferredLock()
        #: Errors that go on, by what cannot be written.
        self._faults: dict[str, str] = {}
        self._index_retry_ms = 0
        #: Rounds of the index when it was looked at last.
        self._index_rounds = 0
        #: Paths whose sync failed, and up to where in the log their entries go.
        self._lost: set[str] = set()
        self._lost_end = 0
        #: They are being written again.
        self._rewriting: Iterator[None] | None = None
        #: Whether some are gone: the next start makes them again.
        self._gone = False

    def begin(self, now_ms: int, at_once: bool = False) -> None:
        """Start all intervals.

        :param at_once: queues and index are made durable by the first steps. After a recovery:
            a broker that is killed soon again would leave the next one to enter them again.
        """
        self._tails_ms = self._checkpoint_ms = now_ms
        self._thorough_ms = self._index_ms = 0 if at_once else now_ms

    def step(self, now_ms: int) -> None:
        """Do a little of what is due; failures of the disk are logged and tried again."""
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

    def _step_tails(self, now_ms: int) -> None:
        """Write some tails; when all are written, sync them if a minute is over, or much came."""
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
            if not self._lost:
                self._sync_and_save(*self._covered)
            elif self._rewriting is None and not self._gone:
                self._rewriting = self._rewrite(*self._covered)

    def _has_much_to_sync(self) -> bool:
        """Whether a start after a crash would read much of the log, and few syncs change that."""
        return (self._dispatched()[1] - self.synced_offset >= QUEUE_SYNC_LOG_BYTES
                and self._queues.unsynced_count <= QUEUE_SYNC_FILES_MAX)

    def _sync_and_save(self, timestamp: int, offset: int, again: frozenset[str] = frozenset()
                       ) -> None:
        self.sync_queues(timestamp, offset, again).addCallbacks(self._save, self._not_synced)

    def _step_rewriting(self, now_ms: int) -> None:
        """Go on with what failed syncs left, until the time of a step is over."""
        try:
            while self._rewriting is not None:
                next(self._rewriting)
                if self._now_ms() - now_ms >= FLUSH_STEP_MS:
                    return
        except StopIteration:
            self._rewriting = None
        except (StoreError, OSError) as error:
            self._rewriting = None
            self._gone = isinstance(error, StoreDamaged)
            self.log.error("consume-queue entries cannot be rewritten: {error}", error=error)

    def _rewrite(self, timestamp: int, offset: int) -> Iterator[None]:
        """Write again what a sync could not, if it is all there, and sync it.

        :raises StoreDamaged: when an entry is gone.
        :raises StoreFull, OSError: when the disk is full or fails; to be tried again.
        """
        lost = yield from self._write_again()
        self._sync_and_save(timestamp, offset, lost)

    def _write_again(self) -> Generator[None, None, frozenset[str]]:
        """Compare what a sync could not write with the log, and write it again; a little a step.

        The kernel may take data for written that it could not write: a sync alone would prove
        nothing.

        :returns: the paths that are to be synced now.
        :raises StoreDamaged, StoreFull, OSError: see :meth:`_rewrite`.
        """
        lost = frozenset(self._lost)
        yield from self._compare(max(self.synced_offset, self.durable_offset), self._lost_end)
        for path in sorted(lost):
            self._queues.rewrite(path)
            yield
        return lost

    def _write_some(self, began_ms: int) -> bool:
        """Write tails until the time of a step is over; whether none is left."""
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
        self, timestamp: int, offset: int, again: frozenset[str] = frozenset()
    ) -> Deferred[None]:
        """Make every written entry durable, one sync after the other.

        :param timestamp: the entries of all messages up to this store time are written, ms.
        :param offset: those are the messages before this place of the commit log.
        :param again: what syncs before could not write, and was written again.
        """
        return self._sync_lock.run(self._sync_queues, timestamp, offset, again)

    def _sync_queues(
        self, timestamp: int, offset: int, again: frozenset[str]
    ) -> Deferred[None]:
        job = self._queues.sync_job()
        synced = self._in_thread(job)
        return synced.addBoth(self._synced, job, timestamp, offset, again)

    def _synced(
        self, result: Failure | None, job: QueueSync, timestamp: int, offset: int,
        again: frozenset[str],
    ) -> Failure | None:
        if result is not None:
            if not self._lost:
                self.log.error(
                    "consume-queue entries may not have reached the disk: {error}. Commit-log "
                    "files from {offset} on are kept until the entries are rewritten or the broker "
                    "is restarted",
                    error=result.value, offset=self.synced_offset)
            self._lost |= job.paths
            # It may have met entries that were written while it ran.
            self._lost_end = self._dispatched()[1]
            return result
        if again:
            self.log.info("consume-queue entries were rewritten and are on disk")
        self._lost -= again
        if not self._lost:
            self.synced_offset = offset
            self._checkpoint.queues_are_durable(timestamp, offset)
        return None

    def _step_index(self, now_ms: int) -> None:
        """Go on with a round of the index, or begin one when it is due."""
        index = self._index
        if index is None or 0 <= self._index_retry_ms - now_ms <= _INDEX_RETRY_MS:
            return
        due = (now_ms - self._index_ms >= INDEX_FLUSH_INTERVAL_MS
               or index.waiting_bytes >= INDEX_FLUSH_BYTES)
        if due:
            self._index_ms = now_ms
        index.step(may_begin=due)
        if index.rounds != self._index_rounds:
            self._index_rounds = index.rounds
            self._well("the index")

    def _fault(self, part: str, error: BaseException) -> None:
        """Log that a part cannot be written, once until it can be again.

        A full disk stays full for many rounds; parts that fail for one reason need one line.
        """
        text = str(error)
        if part not in self._faults and text not in self._faults.values():
            self.log.error("{part} cannot be written and will be tried again: {error}",
                           part=part, error=text)
        self._faults[part] = text

    def _well(self, part: str) -> None:
        """A part was written."""
        if self._faults.pop(part, None) is not None:
            self.log.info("{part} can be written again", part=part)

    def _save(self, _: None = None) -> None:
        """Write the checkpoint soon."""
        self._checkpoint.save().addCallbacks(
            lambda _: self._well("the checkpoint"),
            lambda failure: self._failed(failure, "the checkpoint"))

    def _failed(self, failure: Failure, part: str) -> None:
        if failure.check(StoreError, OSError) is None or failure.value is None:
            self.log.failure("{part} cannot be written and will be tried again", failure=failure,
                             part=part)
        else:
            self._fault(part, failure.value)

    def _not_synced(self, failure: Failure) -> None:
        """The result of a sync is logged by :meth:`_synced`."""
        if failure.check(StoreError, OSError) is None:
            self.log.failure("consume queues cannot be synced", failure=failure)

    async def settle(self) -> None:
        """Wait until no sync is under way, and begin what steps do from the beginning."""
        await self._sync_lock.run(lambda: None)
        self._writing_tails = False
        self._covered = self._rewriting = None

    def cut(self, offset: int) -> None:
        """The log ends here now."""
        self.synced_offset = min(self.synced_offset, offset)
        self.durable_offset = min(self.durable_offset, offset)
        self._lost_end = min(self._lost_end, offset)

    async def finish(self) -> None:
        """Make everything durable; for the end. Data that a sync could not write is written again
        now.

        :raises StoreDamaged: when an entry is gone.
        :raises StoreFull, OSError: when the disk is full or fails.
        """
        self._queues.write_all()
        # A sync under way may fail yet; the rewriting that steps do is not gone on with.
        await self._sync_lock.run(lambda: None)
        self._rewriting = None
        lost = run_to_completion(self._write_again()) if self._lost else frozenset()
        await self.sync_queues(*self._dispatched(), lost)
        if self._lost:
            raise StoreError("entries of queues were lost by a sync that failed")
        if self._index is not None:
            await self._index.finish()
        await self._checkpoint.save()
