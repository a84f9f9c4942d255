"""Futures of what is under way, for threads: as those of ``concurrent.futures``, at a tenth of
the cost.

The standard class makes a condition with a lock for each future. Here all futures share one lock,
and a condition is made when something waits for a future that is not done, which few callers do:
those that send many messages look at a future when it is done long since.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Any, Final, TypeVar, cast

__all__ = ["RunningFuture", "finish", "running_future"]

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
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None; waits for either.

        :param timeout: seconds.
        :raises TimeoutError: when neither comes in time.
        """
        if self._state == _FINISHED:
            return self._exception
        return super().exception(timeout)

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
        # Errors are rare; of the standard way only the part is missing that it asks for first.
        _ = self._condition
        super().set_exception(exception)


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
