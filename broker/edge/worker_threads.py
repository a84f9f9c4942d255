"""Threads for blocking work: fdatasync and file allocation.

Twisted's thread pool uses a team, a coordinator and a lock for each piece of work. A synchronous
send waits for exactly this overhead, so this module uses a single queue and a single wake-up.

Running every sync on a thread is not always the best choice. On a fast disk a sync takes a tenth of
a millisecond, and passing it to a thread and back takes longer than the sync. On a slow disk, or on
one that stalls, a sync on the reactor's thread would stop all connections. :class:`QuickSync`
therefore measures how long syncs take, runs them on the reactor's thread while they are quick, and
moves them to a thread as soon as they are not.
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

#: Syncs are quick if their mean duration is at most this, seconds: a fifth of the duration that
#: counts as a stall.
QUICK_SECONDS: Final = 0.002
#: The largest duration that a single sync adds to the mean, seconds. On every disk one sync in
#: thousands stalls, and only several slow syncs in a row mean that the disk is slow.
STALL_SECONDS: Final = 3 * QUICK_SECONDS
#: How long syncs run on a thread after they were not quick, seconds; the time is doubled each time,
#: up to the maximum.
SLOW_SECONDS_LEAST: Final = 1.0
SLOW_SECONDS_MOST: Final = 60.0
#: The number of consecutive quick syncs on a thread after which the disk counts as quick again.
QUICK_COUNT: Final = 100


class WorkerThreads:
    """A few threads that take work from a common queue.

    :param reactor: the reactor that delivers results.
    :param count: the number of pieces of work that can run at the same time.
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
        """Let the threads finish the queued work, and wait for their end."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def do(self, work: Callable[[], T]) -> Deferred[T]:
        """Run ``work`` on a thread; its result is delivered on the reactor's thread."""
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
    """Runs syncs on the reactor's thread while the disk is quick, and on a thread otherwise.

    With a disk that syncs in a tenth of a millisecond, passing the work to a thread and back costs
    more than the sync, because both threads compete for the interpreter lock. A sync therefore runs
    at the end of a turn of the reactor, after all readable connections were read, and covers the
    sends of all of them. If no other connection is readable, it runs at once. Sends of several
    connections that form one batch run after the reads of a turn, so their sync runs at the end of
    the next turn. If the mean sync is not quick, syncs run on a thread for a while, or until many
    of them were quick there.

    :param monotonic: a clock in seconds.
    :param is_lone: whether the work that is running is the only work.
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
        #: The mean duration of syncs on the reactor's thread, seconds.
        self._mean = 0.0
        #: The number of recent consecutive quick syncs on a thread.
        self._quick_count = 0

    def run(
        self, prepare: Callable[[], Callable[[], None]], done: Callable[[Failure | None], None]
    ) -> None:
        """Run a sync; see RunSync of the store."""
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
        # The mean covers about the last ten syncs.
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
