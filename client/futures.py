"""Futures of what is under way, for threads: as those of ``concurrent.futures``, at a tenth of
the cost.

The standard class makes a condition with a lock for each future. Here all futures share one lock,
and a condition is made when something waits for a future that is not done, which few callers do:
those that send many messages look at a future when it is done long since.

The messages of a batch end at once: their futures share :class:`Outcomes`, and one that is never
asked takes nothing from it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from typing import Any, Final, Generic, TypeVar, cast

__all__ = ["Outcomes", "RunningFuture", "SharedFuture", "finish", "running_future"]

T = TypeVar("T")

_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"
#: Guards the state of all futures. It is held for moments only, and no function of a caller runs
#: under it.
_lock = threading.RLock()
#: The parts of the standard class that are made when they are asked for.
_PARTS: Final[dict[str, Callable[[], Any]]] = {
    "_condition": lambda: threading.Condition(_lock), "_waiters": list, "_done_callbacks": list}


class RunningFuture(ThreadFuture[T]):
    """A future that is running, and cannot be cancelled."""

    # The names are those of the standard class, which its methods and functions such as ``wait``
    # use.
    _state: str = _RUNNING
    _result: T | None = None
    _exception: BaseException | None = None
    #: Whether a part was made, which may have to be told.
    _is_watched = False
    #: Whether the program learnt of the error that is the outcome.
    is_seen = False

    def __init__(self) -> None:
        """Make no condition yet."""

    def __getattr__(self, name: str) -> Any:
        """Make a part of the standard class; only one of several threads succeeds."""
        make = _PARTS.get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        with _lock:
            self._is_watched = True
            return self.__dict__.setdefault(name, make())

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._state == _FINISHED

    def result(self, timeout: float | None = None) -> T:
        """The result; waits for it.

        :param timeout: seconds.
        :raises TimeoutError: when it does not come in time.
        """
        if self._state == _FINISHED and self._exception is None:
            return cast(T, self._result)
        try:
            return super().result(timeout)
        finally:
            self._note_seen()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None; waits for either.

        :param timeout: seconds.
        :raises TimeoutError: when neither comes in time.
        """
        try:
            if self._state == _FINISHED:
                return self._exception
            return super().exception(timeout)
        finally:
            self._note_seen()

    def _note_seen(self) -> None:
        """The program asked for the outcome."""
        if self._exception is not None:
            self.is_seen = True

    def set_result(self, result: T) -> None:
        """Finish with a result."""
        with _lock:
            self._result = result
            self._state = _FINISHED
            is_watched = self._is_watched
            if is_watched:
                for waiter in self._waiters:
                    waiter.add_result(self)
                self._condition.notify_all()
        if is_watched:
            self._invoke_callbacks()

    def set_exception(self, exception: BaseException | None) -> None:
        """Finish with an error."""
        # Whoever waits for it, or gave it a function to call, learns of the error.
        self.is_seen = self._is_watched
        # Errors are rare; of the standard way only the part is missing that it asks for first.
        _ = self._condition
        super().set_exception(exception)


class Outcomes(Generic[T]):
    """The outcomes of several futures, which come at the same time."""

    __slots__ = ("_make", "_results", "error", "is_done", "is_seen", "watched")

    def __init__(self) -> None:
        self.is_done = False
        #: Whether the program learnt of the error.
        self.is_seen = False
        #: The error of all of them.
        self.error: Exception | None = None
        #: Makes the results when one is asked for.
        self._make: Callable[[], Sequence[T]] | None = None
        self._results: Sequence[T] = ()
        #: The futures that something waits for.
        self.watched: list[SharedFuture[T]] = []

    def finish(self, make: Callable[[], Sequence[T]], error: Exception | None = None) -> None:
        """End all futures.

        :param make: makes the results, in the order of the futures.
        :param error: None: there are results.
        """
        with _lock:
            self._make = make
            self.error = error
            self.is_done = True
            watched, self.watched = self.watched, []
            self.is_seen = bool(watched)
            # All have their outcome before the first function of a program runs.
            for future in watched:
                future.settle()
        for future in watched:
            future._invoke_callbacks()

    def result(self, index: int) -> T:
        """The result of a future."""
        with _lock:
            if self._make is not None:
                self._results = self._make()
                self._make = None
            return self._results[index]


class SharedFuture(RunningFuture[T]):
    """A future whose outcome is one of several; see :class:`Outcomes`.

    It gets a state of its own when it is asked for its result, or watched.
    """

    def __init__(self, outcomes: Outcomes[T], index: int) -> None:
        self._outcomes = outcomes
        self._index = index

    def __getattr__(self, name: str) -> Any:
        """As the class above; a future that is watched is told its outcome."""
        with _lock:
            was_watched = self._is_watched
            part = super().__getattr__(name)
            if self._outcomes.is_done:
                self.settle()
            elif not was_watched:
                self._outcomes.watched.append(self)
        return part

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._outcomes.is_done

    def result(self, timeout: float | None = None) -> T:
        """The result; waits for it, as in the class above."""
        if self._outcomes.is_done:
            self.settle()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None; waits for either, as in the class above."""
        outcomes = self._outcomes
        if not outcomes.is_done:
            return super().exception(timeout)
        outcomes.is_seen = True
        return outcomes.error

    def _note_seen(self) -> None:
        self._outcomes.is_seen = True

    def settle(self) -> None:
        """Take the outcome, which is there, as the state of its own, and tell what waits."""
        with _lock:
            if self._state == _FINISHED:
                return
            error = self._exception = self._outcomes.error
            if error is None:
                self._result = self._outcomes.result(self._index)
            self._state = _FINISHED
            if self._is_watched:
                for waiter in self._waiters:
                    (waiter.add_result if error is None else waiter.add_exception)(self)
                self._condition.notify_all()


def running_future() -> ThreadFuture[T]:
    """A future of what is under way, which cannot be cancelled any more."""
    return RunningFuture()


def finish(future: ThreadFuture[T], outcome: T | Exception) -> None:
    """End a future by a result or an error."""
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _forked() -> None:
    """Begin with a free lock: a thread that the child does not have may hold the other."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)
