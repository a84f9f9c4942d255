"""Group commit: the syncs for which writers wait."""

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.commit_flush import CommitFlush
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.store import small_settings
from twistmq.protocol.errors import StoreError

Prepare = Callable[[], Callable[[], None]]
Done = Callable[[Failure | None], None]


class CommitFlushTests(SynchronousTestCase):
    """The class CommitFlush with a thread of the test."""

    def setUp(self) -> None:
        """Create a log, and keep jobs until they are run."""
        self.disk = FaultyDisk()
        self.log = CommitLog(self.disk, "/log", 100_000)
        self.log.load()
        self.jobs: list[tuple[Callable[[], None], Done]] = []
        self.times: list[tuple[int, int]] = []
        self.flush = CommitFlush(
            self.log, small_settings(), self.run_sync, self.flushed
        )

    def run_sync(self, prepare: Prepare, done: Done) -> None:
        """Make a job at once and keep it until it is run."""
        self.jobs.append((prepare(), done))

    def run_job(self) -> None:
        """Run the oldest job."""
        job, done = self.jobs.pop(0)
        try:
            job()
        except OSError:
            done(Failure())
        else:
            done(None)

    def flushed(self, timestamp: int, end: int) -> None:
        self.times.append((timestamp, end))

    def write(self, size: int, timestamp: int = 0) -> int:
        """Write bytes; the offset behind them."""
        self.log.write([(self.log.max_offset, bytes(size))])
        self.log.last_store_timestamp = timestamp
        return self.log.max_offset

    def wait(self, offset: int) -> Deferred[None]:
        """Wait for an offset that is not flushed."""
        waiting = self.flush.flushed(offset)
        assert waiting is not None
        return waiting

    def test_waits_share_a_sync(self) -> None:
        """Writers that arrive during a sync share the next one."""
        first = self.wait(self.write(10, 5))
        others = [self.wait(self.write(10, 6)) for _ in range(3)]
        self.assertEqual(len(self.jobs), 1)
        self.run_job()
        self.successResultOf(first)
        for each in others:
            self.assertNoResult(each)
        self.assertEqual((self.log.flushed_offset, self.times), (10, [(5, 10)]))
        self.run_job()
        for each in others:
            self.successResultOf(each)
        self.assertEqual((self.jobs, self.log.flushed_offset, self.times),
                         ([], 40, [(5, 10), (6, 40)]))

    def test_flushed_already(self) -> None:
        """Such a writer does not wait."""
        self.assertIsNone(self.flush.flushed(0))

    def test_thread_that_answers_at_once(self) -> None:
        """Such a writer does not wait either."""
        self.flush = CommitFlush(
            self.log, small_settings(), self._now, self.flushed
        )
        self.assertIsNone(self.flush.flushed(self.write(10)))

    def _now(self, prepare: Prepare, done: Done) -> None:
        self.run_sync(prepare, done)
        self.run_job()

    def test_sync_that_begins_later_covers_more(self) -> None:
        """It covers everything that was written before the job began."""
        prepared: list[tuple[Prepare, Done]] = []

        def later(prepare: Prepare, done: Done) -> None:
            prepared.append((prepare, done))

        self.flush = CommitFlush(self.log, small_settings(), later, self.flushed)
        waits = [self.wait(self.write(10, 7)) for _ in range(3)]
        [(prepare, done)] = prepared
        prepare()()
        done(None)
        for each in waits:
            self.successResultOf(each)
        self.assertEqual((self.log.flushed_offset, self.times), (30, [(7, 30)]))

    def test_failed_sync_fails_for_good(self) -> None:
        """All waits fail, and so does every later one; the sync is not repeated."""
        waits = [self.wait(self.write(10)) for _ in range(2)]
        self.disk.fail_sync_in = 1
        self.run_job()
        for each in waits:
            self.failureResultOf(each, StoreError)
        self.failureResultOf(self.wait(self.write(10)), StoreError)
        self.assertEqual(self.jobs, [])
        self.assertEqual(self.log.flushed_offset, 0)
        self.flushLoggedErrors(OSError)

    def test_failed_sync_is_not_tried_when_it_is_due(self) -> None:
        """A later success would make lost messages part of a clean stop."""
        self.write(5 * 4096)
        self.flush.flush_due(100_000)
        self.disk.fail_sync_in = 1
        self.run_job()
        self.disk.fail_sync_in = None
        self.flush.flush_due(200_000)
        self.assertEqual(self.jobs, [])
        self.flushLoggedErrors(OSError)

    def test_flush_due(self) -> None:
        """Four pages are due after half a second, and less after ten; a sync delays both."""
        self.write(100)
        self.flush.flush_due(100_000)
        self.run_job()
        self.write(100)
        self.flush.flush_due(101_000)
        self.assertEqual(self.jobs, [], "too little")
        self.write(4 * 4096)
        self.flush.flush_due(100_499)
        self.assertEqual(self.jobs, [], "too early")
        self.flush.flush_due(100_500)
        self.flush.flush_due(109_000)
        self.assertEqual(len(self.jobs), 1)
        self.run_job()
        self.write(1)
        self.flush.flush_due(110_499)
        self.assertEqual(self.jobs, [])
        self.flush.flush_due(110_500)
        self.run_job()
        self.flush.flush_due(200_000)
        self.assertEqual(self.jobs, [], "nothing to flush")
