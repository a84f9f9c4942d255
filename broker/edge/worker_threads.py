"""Threads for work that blocks: fdatasync and file allocation.

Twisted's thread pool does the same with a team, a coordinator and a lock for each piece of work;
a synchronous send waits for just that, so this is one queue and one wake-up.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

__all__ = ["QuickSync", "WorkerThreads"]

T = TypeVar("T")

#: Syncs that take longer in the mean are not quick, seconds: a fifth of what counts as a stall.
QUICK_SECONDS: Final = 0.002
#: The most that one sync adds to the mean, seconds: one sync in thousands stalls on every disk, and
#: only several in a row make a disk slow.
STALL_SECONDS: Final = 3 * QUICK_SECONDS
#: How long syncs go to a thread when they were not quick, seconds; doubled each time, to the most.
SLOW_SECONDS_LEAST: Final = 1.0
SLOW_SECONDS_MOST: Final = 60.0
#: Syncs on a thread, one after the other, that show that the disk is quick again.
QUICK_COUNT: Final = 100


class WorkerThreads:
    """A few threads that take work from one queue.

    :param reactor: where results are delivered.
    :param count: how many pieces of work can run at once.
    """

    def __init__(self, reactor: IReactorFromThreads, count: int, name: str) -> None:
        self._reactor = reactor
        self._queue: SimpleQueue[tuple[Callable[[], Any], Deferred[Any]] | None] = SimpleQueue()
        self._threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True)
                         for number in range(count)]

    @property
    def started(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the threads end after what is queued, and wait for that."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def do(self, work: Callable[[], T]) -> Deferred[T]:
        """Run ``work`` on a thread; fires on the reactor's thread with what it returns."""
        done: Deferred[T] = Deferred()
        self._queue.put((work, done))
        return done

    def _run(self) -> None:
        call = self._reactor.callFromThread
        while (item := self._queue.get()) is not None:
            work, done = item
            try:
                result = work()
            except BaseException:
                call(done.errback, Failure())
            else:
                call(done.callback, result)


class QuickSync:
    """Runs syncs where they are done soonest: on the reactor's thread while the disk is quick.

    With a disk that syncs in a tenth of a millisecond the way to a thread and back costs more
    than the sync, because both threads fight for one lock. So a sync runs at the end of the
    reactor's turn, after all connections that have something to read were read, and covers what
    all of them sent; when no other connection has anything to read, it runs at once. Sends of
    several connections that are one batch run after a turn's reads, so their sync runs at the end
    of the next turn. When syncs are not quick in the mean, they go to a thread for a while, or
    until many were quick there.

    :param monotonic: a clock in seconds.
    :param is_lone: whether what is being run is all there is to run.
    """

    def __init__(
        self, reactor: Any, threads: WorkerThreads, monotonic: Callable[[], float],
        is_lone: Callable[[], bool],
    ) -> None:
        self._reactor = reactor
        self._threads = threads
        self._monotonic = monotonic
        self._is_lone = is_lone
        self._slow_until = 0.0
        self._slow_seconds = SLOW_SECONDS_LEAST
        #: Of how long syncs here took, seconds.
        self._mean = 0.0
        #: How many of the last syncs on a thread were quick.
        self._quick_count = 0

    def run(
        self, prepare: Callable[[], Callable[[], None]], done: Callable[[Failure | None], None]
    ) -> None:
        """Run a sync, see RunSync of the store."""
        if self._monotonic() < self._slow_until:
            self._run_on_thread(prepare(), done)
        elif self._is_lone():
            self._run_here(prepare, done)
        else:
            self._reactor.callLater(0, self._run_here, prepare, done)

    def _run_here(
        self, prepare: Callable[[], Callable[[], None]], done: Callable[[Failure | None], None]
    ) -> None:
        begin = self._monotonic()
        try:
            prepare()()
        except Exception:
            done(Failure())
            return
        now = self._monotonic()
        # A mean over the last ten or so.
        self._mean += (min(now - begin, STALL_SECONDS) - self._mean) / 10
        if self._mean > QUICK_SECONDS:
            self._slow_until = now + self._slow_seconds
            self._slow_seconds = min(self._slow_seconds * 2, SLOW_SECONDS_MOST)
            self._mean = 0.0
            self._quick_count = 0
        elif now > self._slow_until + SLOW_SECONDS_MOST:
            self._slow_seconds = SLOW_SECONDS_LEAST
        done(None)

    def _run_on_thread(
        self, job: Callable[[], None], done: Callable[[Failure | None], None]
    ) -> None:
        def work() -> float:
            begin = self._monotonic()
            job()
            return self._monotonic() - begin

        def synced(seconds: float) -> None:
            self._quick_count = self._quick_count + 1 if seconds < QUICK_SECONDS else 0
            if self._quick_count >= QUICK_COUNT:
                self._slow_until = min(self._slow_until, self._monotonic())
            done(None)

        self._threads.do(work).addCallbacks(synced, done)
