"""Threads for work that blocks: fdatasync and file allocation.

Twisted's thread pool does the same with a team, a coordinator and a lock for each piece of work;
a synchronous send waits for just that, so this is one queue and one wake-up.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

__all__ = ["WorkerThreads"]

T = TypeVar("T")


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
