"""Making the commit log durable: many waiting sends share one sync, which runs on a thread.

While a sync runs, appends continue, and their waiting sends gather for the next one (group commit).
A failed sync is never retried: the kernel may have dropped the pages, so a later success would
confirm data that is not on disk. The store then accepts no more messages.

Source: CommitLog.GroupCommitService, FlushRealTimeService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.constants import PAGE_SIZE_BYTES
from twistmq.broker.errors import StoreCut
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.settings import StoreSettings
from twistmq.protocol.errors import StoreError
from twistmq.protocol.log_rate import Outage

__all__ = ["CommitFlush", "RunSync"]

#: Runs a sync. The first argument is a function that is called on the reactor's thread, determines
#: the data to sync and makes the job. The second one is called on that thread when the job is done,
#: with the failure if there was one. No Deferred is used, because a client that sends one message
#: at a time waits for every step between a sync and its reply.
RunSync = Callable[[Callable[[], Callable[[], None]], Callable[[Failure | None], None]], None]


class _NotBegun(Exception):
    """A sync could not be begun, so the written data may still be intact."""


class CommitFlush:
    """Runs the syncs of one commit log.

    :param run_sync: runs a sync on a thread of its choice, see RunSync.
    :param on_flushed: called after each sync with the newest store time that it covers, in ms, and
        the commit-log offset up to which it covers the log.
    """

    log = Logger()

    def __init__(
        self,
        commit_log: CommitLog,
        settings: StoreSettings,
        run_sync: RunSync,
        on_flushed: Callable[[int, int], None],
    ) -> None:
        self.failure: StoreError | None = None
        self._log = commit_log
        self.settings = settings
        self._run_sync = run_sync
        self._target = 0
        self._target_timestamp = 0
        self._on_flushed = on_flushed
        self._running = False
        self._waiting: list[tuple[int, Deferred[None]]] = []
        #: Fire when no sync runs.
        self._idle: list[Deferred[None]] = []
        self._last_ms = 0
        self._outage = Outage()

    @property
    def is_running(self) -> bool:
        """Whether a sync runs."""
        return self._running

    def flushed(self, offset: int) -> Deferred[None] | None:
        """Wait until the log is on disk up to an offset; None when it already is.

        :returns: fires with None, or fails with StoreError when the disk fails, or with StoreCut
            when the log is cut before the offset.
        """
        if offset <= self._log.flushed_offset:
            return None
        if self.failure is None and not self._running:
            self._run()
            if offset <= self._log.flushed_offset:
                # The sync has already finished.
                return None
        waiting: Deferred[None] = Deferred()
        if self.failure is not None:
            waiting.errback(self.failure)
        else:
            self._waiting.append((offset, waiting))
        return waiting

    def flush_due(self, now_ms: int) -> None:
        """Start a sync when the interval has passed and there is enough to flush."""
        due_ms = self.due_ms()
        if due_ms is not None and now_ms >= due_ms:
            self._last_ms = now_ms
            self._run()

    def due_ms(self) -> int | None:
        """Return when ``flush_due`` starts a sync if nothing more is stored, in ms of its clock.

        :returns: None when there is nothing to flush, while a sync runs, or after one has failed.
        """
        behind = self._log.max_offset - self._log.flushed_offset
        if self._running or behind <= 0 or self.failure is not None:
            return None
        settings = self.settings
        wait_ms = settings.flush_interval_commit_log
        if behind < settings.flush_commit_log_least_pages * PAGE_SIZE_BYTES:
            wait_ms = max(wait_ms, settings.flush_commit_log_thorough_interval)
        return self._last_ms + wait_ms

    def _run(self) -> None:
        """Sync the data that is written when the sync begins."""
        assert not self._running
        self._running = True
        self._run_sync(self._job, self._done)

    def _job(self) -> Callable[[], None]:
        """Begin a sync, which covers the data written so far."""
        self._target = self._log.max_offset
        self._target_timestamp = self._log.last_store_timestamp
        try:
            return self._log.sync_job()
        except (StoreError, OSError) as error:
            text = str(error)

        def fail() -> None:
            raise _NotBegun(text)

        return fail

    def _done(self, failure: Failure | None) -> None:
        """Handle the end of a sync."""
        self._running = False
        if self.failure is None:
            self._ended(failure)
        # Otherwise the flushing was given up while the sync ran.
        if not self._running:
            idle, self._idle = self._idle, []
            for waiting in idle:
                waiting.callback(None)

    def _ended(self, failure: Failure | None) -> None:
        if failure is None:
            self._outage.ends()
            self._synced()
        elif failure.check(_NotBegun):
            if self._outage.begins():
                self.log.error("the commit log cannot be flushed and will be tried again: {error}",
                               error=str(failure.value))
        else:
            self._failed(failure)

    def _synced(self) -> None:
        target = self._target
        self._log.synced(target)
        self._on_flushed(self._target_timestamp, target)
        ready = [waiting for offset, waiting in self._waiting if offset <= target]
        self._waiting = [each for each in self._waiting if each[0] > target]
        if self._waiting:
            self._run()
        for waiting in ready:
            waiting.callback(None)

    def wait_for_sync(self) -> Deferred[None] | None:
        """Wait until no sync runs; None when none does."""
        if not self._running:
            return None
        waiting: Deferred[None] = Deferred()
        self._idle.append(waiting)
        return waiting

    def cut(self, offset: int) -> None:
        """Fail the waits for records that were cut; the log ends at this offset now.

        A running sync covers nothing after it.
        """
        self._target = min(self._target, offset)
        cut = [waiting for end, waiting in self._waiting if end > offset]
        self._waiting = [each for each in self._waiting if each[0] <= offset]
        for waiting in cut:
            waiting.errback(StoreCut("the message was removed before it was durable"))

    def _failed(self, failure: Failure) -> None:
        self.log.failure("flush failed, the store accepts no more messages", failure=failure)
        self.give_up(StoreError(f"the commit log cannot be flushed: {failure.value}"))

    def give_up(self, error: StoreError) -> None:
        """Stop syncing; current and future waiters get the error."""
        self.failure = error
        waiting, self._waiting = self._waiting, []
        for _, each in waiting:
            each.errback(self.failure)
