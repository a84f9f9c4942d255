"""Coroutines, timers and a clock for the client's core, without a thread or an event loop.

The flows of the client (find a route, retry, rebalance, close) are ``async def`` functions, which
a :class:`Scheduler` runs. A shell calls :meth:`Scheduler.run` when bytes have arrived or time has
passed, and gets the time of the next timer in return. The same code therefore runs on a thread
with blocking callers, on asyncio, on Twisted and in the simulator, which sets the clock itself.

Nothing in this module is thread-safe.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar, cast

__all__ = ["Cancelled", "Clock", "Future", "Scheduler", "Task", "Timer"]

T = TypeVar("T")

#: Cancelled timers stay in the heap until they are due, unless there are more than this number.
_CANCELLED_MAX: Final = 1024


class Cancelled(BaseException):
    """Raised in a task, where it waits, when the task is cancelled.

    It is not an ``Exception``, so that code that handles errors does not swallow it.
    """


class Clock(Protocol):
    """The two clocks of a process."""

    def monotonic_ms(self) -> float:
        """Milliseconds for measuring durations; this clock never jumps."""

    def wall_ms(self) -> int:
        """Unix time in ms, for time stamps."""


class Future(Generic[T]):
    """A result that comes later. Awaiting it returns the result or raises the error."""

    __slots__ = ("_callbacks", "_error", "_result", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], object]] | None = None

    def set_result(self, result: T) -> None:
        """Finish with a result; has no effect on a future that is done."""
        if not self.is_done:
            self._result = result
            self._finish()

    def set_error(self, error: BaseException) -> None:
        """Finish with an error; has no effect on a future that is done."""
        if not self.is_done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)

    def when_done(self, callback: Callable[[Future[T]], object]) -> None:
        """Call back with the future when it is done, or at once if it is already done."""
        if self.is_done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def forget(self, callback: Callable[[Future[T]], object]) -> None:
        """Remove a callback that :meth:`when_done` added."""
        if self._callbacks is not None and callback in self._callbacks:
            self._callbacks.remove(callback)

    @property
    def error(self) -> BaseException | None:
        """The error of a future that is done, or None."""
        return self._error

    def result(self) -> T:
        """Return the result of a future that is done; :raises BaseException: its error."""
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def __await__(self) -> Generator[Future[Any], None, T]:
        if not self.is_done:
            yield self
        return self.result()


class Task(Future[T]):
    """A coroutine that a scheduler runs; as a future, it has the coroutine's result."""

    __slots__ = ("_coroutine", "_is_awaited", "_scheduler", "_waits_for", "name")

    def __init__(self, scheduler: Scheduler, coroutine: Coroutine[Any, Any, T], name: str) -> None:
        super().__init__()
        self.name = name
        self._scheduler = scheduler
        self._coroutine = coroutine
        self._waits_for: Future[Any] | None = None
        self._is_awaited = False

    def cancel(self) -> None:
        """Raise :class:`Cancelled` in the coroutine where it waits; no effect when it is done."""
        if self.is_done:
            return
        if self._waits_for is not None:
            self._waits_for.forget(self._wake)
            self._waits_for = None
        self._scheduler.call_soon(self.step, Cancelled())

    def _wake(self, _: Future[Any]) -> None:
        self._scheduler.call_soon(self.step)

    def step(self, error: BaseException | None = None) -> None:
        """Run the coroutine up to its next wait."""
        if self.is_done:
            return
        self._waits_for = None
        try:
            if error is None:
                waits_for = self._coroutine.send(None)
            else:
                waits_for = self._coroutine.throw(error)
        except StopIteration as stop:
            self._end()
            self.set_result(stop.value)
        except Cancelled as cancelled:
            self._end()
            self.set_error(cancelled)
        except Exception as failure:
            self._end()
            self.set_error(failure)
            if self._scheduler.on_failure is not None and not self._is_awaited:
                self._scheduler.on_failure(self, failure)
        else:
            self._waits_for = waits_for
            waits_for.when_done(self._wake)

    def _end(self) -> None:
        self._is_awaited = bool(self._callbacks)
        self._scheduler.tasks.discard(self)


class Timer:
    """A call at a later time."""

    __slots__ = ("_arguments", "_function", "_scheduler", "due_ms")

    def __init__(
        self, scheduler: Scheduler, due_ms: float, function: Callable[..., object],
        arguments: tuple[Any, ...],
    ) -> None:
        self.due_ms = due_ms
        self._scheduler = scheduler
        self._function: Callable[..., object] | None = function
        self._arguments = arguments

    @property
    def is_pending(self) -> bool:
        """Whether the call is still due."""
        return self._function is not None

    def cancel(self) -> None:
        """Cancel the call; no effect if it has already happened."""
        if self._function is not None:
            self._function = None
            self._arguments = ()
            self._scheduler.timer_cancelled()

    def fire(self) -> None:
        """Make the call now, unless it was cancelled."""
        function, self._function = self._function, None
        if function is not None:
            function(*self._arguments)


class Scheduler:
    """Runs tasks and timers by the given clock.

    :param clock: the process's clocks, or a test's.

    ``on_failure`` is called with each task that ends with an error while nothing awaits its result.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.now_ms = clock.monotonic_ms()
        self.tasks: set[Task[Any]] = set()
        self.on_failure: Callable[[Task[Any], Exception], object] | None = None
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled = 0

    # --- tasks

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "task") -> Task[T]:
        """Run a coroutine; it starts in the next :meth:`run`."""
        task = Task(self, coroutine, name)
        self.tasks.add(task)
        self.call_soon(task.step)
        return task

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in this :meth:`run` or the next, after all calls that already wait."""
        self._ready.append((function, arguments))

    # --- time

    def call_later(
        self, delay_ms: float, function: Callable[..., object], *arguments: Any
    ) -> Timer:
        """Call a function after some milliseconds."""
        timer = Timer(self, self.now_ms + max(delay_ms, 0), function, arguments)
        heapq.heappush(self._timers, (timer.due_ms, next(self._order), timer))
        return timer

    def sleep(self, delay_ms: float) -> Future[None]:
        """Return a future that is done after some milliseconds."""
        future: Future[None] = Future()
        self.call_later(delay_ms, future.set_result, None)
        return future

    async def wait_for(
        self, delay_ms: float, future: Future[T], error: Callable[[], Exception]
    ) -> T:
        """Wait for a future, at most for some milliseconds.

        :param error: makes the exception to raise when the time is over. The future itself
            continues.
        """
        if future.is_done:
            return future.result()
        either: Future[None] = Future()

        def wake(_: Future[T]) -> None:
            either.set_result(None)

        future.when_done(wake)
        timer = self.call_later(delay_ms, either.set_result, None)
        try:
            await either
        finally:
            timer.cancel()
            future.forget(wake)
        if not future.is_done:
            raise error()
        return future.result()

    async def all_of(self, futures: Iterable[Future[T]]) -> list[T | BaseException]:
        """Wait until all futures are done; :returns: the result or error of each, in order."""
        waiting = list(futures)
        for future in waiting:
            # Mark the errors as handled: one may occur while an earlier future is awaited.
            future.when_done(_mark_awaited)
        outcomes: list[T | BaseException] = []
        for future in waiting:
            if not future.is_done:
                done: Future[None] = Future()
                future.when_done(lambda _, done=done: done.set_result(None))  # type: ignore[misc]
                await done
            outcomes.append(future.error if future.error is not None else future.result())
        return outcomes

    @property
    def timer_count(self) -> int:
        """The number of pending timers."""
        return sum(entry[2].is_pending for entry in self._timers)

    def timer_cancelled(self) -> None:
        """Count a cancelled timer, and remove them all from the heap when there are many."""
        self._cancelled += 1
        if self._cancelled > _CANCELLED_MAX and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if entry[2].is_pending]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def run(self) -> float | None:
        """Fire the timers that are due and run all tasks that can continue.

        :returns: the time of the next run, in monotonic ms; None: run when something happens.
        """
        self.now_ms = self.clock.monotonic_ms()
        timers = self._timers
        while timers and timers[0][0] <= self.now_ms:
            timer = heapq.heappop(timers)[2]
            if timer.is_pending:
                timer.fire()
            elif self._cancelled:
                self._cancelled -= 1
            timers = self._timers
        ready = self._ready
        while ready:
            function, arguments = ready.popleft()
            function(*arguments)
        return self.next_due_ms

    @property
    def next_due_ms(self) -> float | None:
        """The time of the next timer, in monotonic ms; None without a timer."""
        while self._timers and not self._timers[0][2].is_pending:
            heapq.heappop(self._timers)
            self._cancelled = max(self._cancelled - 1, 0)
        return self._timers[0][0] if self._timers else None


def _mark_awaited(_: Future[Any]) -> None:
    """Do nothing; as a callback, it marks the future's outcome as awaited."""
