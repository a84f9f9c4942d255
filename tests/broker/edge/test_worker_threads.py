"""Work on threads, and syncs on a thread or the reactor, whichever is faster."""

from __future__ import annotations

import threading
from collections.abc import Callable

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twistmq.broker.edge.worker_threads import (
    QUICK_COUNT,
    QUICK_SECONDS,
    QuickSync,
    WorkerThreads,
)


class WorkerThreadsTests(TestCase):
    """Two threads and the reactor."""

    def setUp(self) -> None:
        self.threads = WorkerThreads(reactor, 2, "test")
        self.threads.start()
        self.addCleanup(self.threads.stop)

    async def test_work_runs_on_another_thread(self) -> None:
        """Work runs on another thread, its result arrives on this one."""
        here = threading.get_ident()
        there = await self.threads.do(threading.get_ident)
        self.assertNotEqual(there, here)
        self.assertEqual(threading.get_ident(), here)

    async def test_an_exception_fails_the_deferred_and_the_thread_goes_on(self) -> None:
        """An error of the work fails its Deferred, and the thread continues."""
        with self.assertRaises(ZeroDivisionError):
            await self.threads.do(lambda: 1 // 0)
        self.assertEqual(await self.threads.do(lambda: 7), 7)

    async def test_one_does_not_hold_up_the_other(self) -> None:
        """Work that waits for other work ends, because there are two threads."""
        event = threading.Event()
        waits = self.threads.do(lambda: event.wait(30))
        await self.threads.do(event.set)
        self.assertTrue(await waits)

    def test_after_a_stop_no_thread_is_left(self) -> None:
        """After a stop no thread remains."""
        self.assertTrue(self.threads.started)
        self.threads.stop()
        self.assertFalse(self.threads.started)


class QuickSyncTests(SynchronousTestCase):
    """A clock that only syncs advance, and threads that keep their work."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.seconds = 0.0
        self.sync_seconds = QUICK_SECONDS / 10
        self.on_thread: list[Deferred[float]] = []
        self.syncs = 0
        self.is_lone = False
        sync = QuickSync(
            self.clock, self, lambda: self.seconds,  # type: ignore[arg-type]
            lambda: self.is_lone)
        self.sync = sync

    def run_sync(self, prepare: Callable[[], Callable[[], None]]) -> Deferred[None]:
        """Run a sync; fires when it is done."""
        done: Deferred[None] = Deferred()
        self.sync.run(prepare, lambda failure: done.callback(failure))
        return done

    def do(self, work: object) -> Deferred[float]:
        """Run the work of the threads."""
        self.on_thread.append(Deferred())
        return self.on_thread[-1]

    def prepare(self) -> object:
        def job() -> None:
            self.syncs += 1
            self.seconds += self.sync_seconds

        return job

    def begin(self) -> Deferred[None]:
        """Begin a sync."""
        return self.run_sync(self.prepare)  # type: ignore[arg-type]

    def be_slow(self) -> None:
        """Sync until syncs are moved to a thread, which takes several slow ones."""
        self.sync_seconds = QUICK_SECONDS * 20
        before = self.syncs
        while not self.on_thread:
            self.begin()
            self.clock.advance(0)
        self.assertIn(self.syncs - before, range(2, 6))
        self.on_thread.clear()

    def test_quick_disk(self) -> None:
        """A sync runs at the end of the reactor's turn, without a thread."""
        done = self.begin()
        self.assertNoResult(done)
        self.clock.advance(0)
        self.successResultOf(done)
        self.assertEqual((self.syncs, self.on_thread), (1, []))

    def test_nobody_else(self) -> None:
        """No other work exists, so the sync runs at once unless the disk is slow."""
        self.is_lone = True
        self.successResultOf(self.begin())
        self.is_lone = False
        self.be_slow()
        self.is_lone = True
        before = self.syncs
        self.assertNoResult(self.begin())
        self.assertEqual((self.syncs, len(self.on_thread)), (before, 1))

    def test_slow_disk(self) -> None:
        """After slow syncs the next ones go to a thread, longer each time it is tried again."""
        for slow_seconds in (1.0, 2.0, 4.0):
            self.be_slow()
            before = self.syncs
            end = self.seconds + slow_seconds
            while self.seconds < end - 0.5:
                self.begin()
                self.seconds += 0.5
            self.clock.advance(0)
            self.assertEqual(self.syncs, before)
            self.assertTrue(self.on_thread)
            self.on_thread.clear()
            self.seconds = end

    def test_disk_that_recovers(self) -> None:
        """Syncs return to the reactor when the disk is fast again."""
        self.be_slow()
        self.sync_seconds = QUICK_SECONDS / 10
        self.seconds += 10
        before = self.syncs
        done = self.begin()
        self.clock.advance(0)
        self.successResultOf(done)
        self.assertEqual((self.syncs, self.on_thread), (before + 1, []))

    def test_disk_that_is_quick_on_the_thread(self) -> None:
        """Many fast syncs in a row return to the reactor early; a slow one between
        them does not.
        """
        self.be_slow()
        self.sync_seconds = QUICK_SECONDS / 10
        before = self.syncs
        for number in range(QUICK_COUNT + 50):
            self.begin()
            self.clock.advance(0)
            self.assertEqual((self.syncs, len(self.on_thread)), (before, 1), msg=number)
            self.on_thread.pop().callback(QUICK_SECONDS * (2 if number == 49 else 0.5))
        self.begin()
        self.clock.advance(0)
        self.assertEqual((self.syncs, self.on_thread), (before + 1, []))

    def test_one_slow_sync(self) -> None:
        """One slow sync among fast ones changes nothing."""
        for number in range(30):
            self.sync_seconds = 1.0 if number == 15 else QUICK_SECONDS / 10
            self.begin()
            self.clock.advance(0)
        self.assertEqual((self.syncs, self.on_thread), (30, []))

    def test_a_disk_that_fails_fails_the_sync(self) -> None:
        """An error of the disk fails the sync."""

        def prepare() -> object:
            raise OSError(5, "Input/output error")

        done = self.run_sync(prepare)  # type: ignore[arg-type]
        self.clock.advance(0)
        self.failureResultOf(done, OSError)
