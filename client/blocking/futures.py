"""Futures of requests in flight, for threads: like ``concurrent.futures`` at a tenth of the cost.

The standard class makes a condition with a lock for each future. Here most futures have neither,
because a program that sends many messages usually looks at a future long after it is done.

A signal handler can run between any two steps of the main thread. If the interrupted step held a
lock, the client's thread would wait for that lock while the handler waits for the client, and
neither could continue. Therefore these futures have no lock. A thread that watches a future first
adds its flag or function to the future, and then checks whether the future is done. The thread that
finishes the future first sets the outcome, and then notifies every flag and function that it finds.
Whichever order the two threads run in, no notification is missed, and a second notification does no
harm.

Functions of the standard library, such as ``wait``, take a condition and read the state under it.
Only the futures that a program passes to them get a condition. When the main thread uses that
condition, a separate thread, which is allowed to wait for it, changes the state
(:func:`_tell_always`).

All messages of a batch end at the same time, so their futures share one :class:`Outcomes` object. A
future whose result the program never reads takes nothing from it.
"""

from __future__ import annotations

import _thread
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from twistmq.client.base.errors import client_error
from twistmq.client.shell.flag import Flag

if TYPE_CHECKING:
    from queue import SimpleQueue

__all__ = ["Outcomes", "RunningFuture", "SharedFuture", "finish", "running_future"]

T = TypeVar("T")

#: The standard class reports errors of call-backs to this logger.
log = logging.getLogger("concurrent.futures")

_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"
#: The lock of all conditions. Only functions of the standard library hold it.
_lock = threading.RLock()


class _Public:
    """The part of a future that functions of the standard library use.

    :param is_finished: whether the future is done.
    :param is_of_main: whether the main thread uses the future; signal handlers run in that thread.
    """

    __slots__ = ("condition", "is_finished", "is_of_main", "waiters")

    def __init__(self, *, is_finished: bool, is_of_main: bool) -> None:
        self.condition = threading.Condition(_lock)
        #: The state of the future, as seen by a thread that holds the condition.
        self.is_finished = is_finished
        self.waiters: list[Any] = []
        self.is_of_main = is_of_main

    def finish(self, *, has_failed: bool, future: RunningFuture[Any]) -> None:
        """Notify the functions that wait; takes the condition."""
        with self.condition:
            if self.is_finished:
                return
            self.is_finished = True
            for waiter in self.waiters:
                (waiter.add_exception if has_failed else waiter.add_result)(future)
            self.condition.notify_all()


class RunningFuture(ThreadFuture[T]):
    """A future of running work, which cannot be cancelled."""

    _is_done = False
    _value: T | None = None
    _error: BaseException | None = None
    #: Whether the future has a part that must be notified: one of the three below.
    _is_watched = False
    #: Wakes the threads that wait.
    _flag: Flag | None = None
    #: The functions to call when the future is done.
    _calls: deque[Callable[[ThreadFuture[T]], object]] | None = None
    _public: _Public | None = None
    #: Whether the program has learnt of the error that is the outcome.
    is_seen = False

    def __init__(self) -> None:
        """Make a future without any of the optional parts."""

    # --- the outcome

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._is_done

    def running(self) -> bool:
        """Whether there is neither a result nor an error yet."""
        return not self.done()

    def cancelled(self) -> bool:
        """Always False, because these futures are never cancelled."""
        return False

    def cancel(self) -> bool:
        """A request that is in flight cannot be cancelled."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it.

        :param timeout: seconds.
        :raises TimeoutError: when the result does not arrive in time.
        """
        if not self._is_done:
            self._wait(timeout)
        error = self._error
        if error is None:
            return cast(T, self._value)
        self.is_seen = True
        try:
            raise error
        finally:
            # The error's traceback would otherwise keep the error itself alive.
            del error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome and return the error, or None if there is a result.

        :param timeout: seconds.
        :raises TimeoutError: when neither arrives in time.
        """
        if not self._is_done:
            self._wait(timeout)
        if self._error is not None:
            self.is_seen = True
        return self._error

    def _wait(self, timeout: float | None) -> None:
        """Wait until the future is done; :raises TimeoutError: when it is not done in time."""
        flag: Flag = self._flag or self.__dict__.setdefault("_flag", Flag())
        self._watch()
        if not self.done():
            flag.wait(timeout)
            if not self.done():
                raise TimeoutError

    def add_done_callback(self, fn: Callable[[ThreadFuture[T]], object]) -> None:
        """Call a function with the future when it is done, or at once if it is done already."""
        if not self.done():
            calls: deque[Callable[[ThreadFuture[T]], object]] = (
                self._calls or self.__dict__.setdefault("_calls", deque()))
            calls.append(fn)
            self._watch()
            if self.done():
                self._call_back()
            return
        self._call(fn)

    def _watch(self) -> None:
        """Mark the future as watched, so that its parts are notified of the outcome."""
        self._is_watched = True

    # --- the end

    def set_result(self, result: T) -> None:
        """Finish with a result."""
        self._value = result
        self._is_done = True
        if self._is_watched:
            self.notify_watchers()

    def set_exception(self, exception: BaseException | None) -> None:
        """Finish with an error.

        :raises InvalidStateError: when the future is finished already.
        """
        if self._is_done:
            raise InvalidStateError(f"{_FINISHED}: {self!r}")
        # A program that waits for the future, or added a function to it, learns of the error.
        self.is_seen = self._is_watched
        self._error = exception
        self._is_done = True
        if self._is_watched:
            self.notify_watchers()

    def notify_watchers(self) -> None:
        """Notify all watchers of a future that is done."""
        self.wake()
        if self._calls is not None:
            self._call_back()

    def wake(self) -> None:
        """Wake all threads that wait for a future that is done."""
        if self._flag is not None:
            self._flag.set()
        public = self._public
        if public is None or public.is_finished:
            return
        if public.is_of_main:
            assert _to_tell is not None
            _to_tell.put(self)
        else:
            self.finish_public()

    def finish_public(self) -> None:
        """Notify the functions of the standard library; waits for their locks."""
        if self._public is not None:
            self._public.finish(has_failed=self._failure() is not None, future=self)

    def _failure(self) -> BaseException | None:
        """The error of a future that is done."""
        return self._error

    def _call_back(self) -> None:
        """Call the functions that have not been called yet; two threads may share this work."""
        calls = self._calls
        with suppress(IndexError):
            while calls:
                self._call(calls.popleft())

    def _call(self, function: Callable[[ThreadFuture[T]], object]) -> None:
        try:
            function(self)
        except Exception:
            log.exception("exception calling callback for %r", self)

    # --- for functions of the standard library, by the names that they use

    @property
    def _state(self) -> str:  # type: ignore[override]
        public = self._public
        is_finished = self.done() if public is None else public.is_finished
        return _FINISHED if is_finished else _RUNNING

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        is_of_main = threading.get_ident() == threading.main_thread().ident
        if is_of_main:
            _begin_to_tell()
        public = self._publish(is_of_main=is_of_main)
        public.is_of_main = public.is_of_main or is_of_main
        return public.condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._publish().waiters

    def _publish(self, *, is_of_main: bool = False) -> _Public:
        """The part of the future that functions of the standard library use; it is made once."""
        public = self._public
        if public is None:
            made = _Public(is_finished=self.done(), is_of_main=is_of_main)
            public = cast(_Public, self.__dict__.setdefault("_public", made))
            self._watch()
            if self.done():
                # A thread that did not see this part may have finished the future in the meantime.
                self.finish_public()
        return public

    def _get_snapshot(self) -> tuple[bool, bool, T | None, BaseException | None]:
        """Whether it is done, whether it is cancelled, the result and the error (Python 3.14)."""
        if not self.done():
            return False, False, None, None
        error = self.exception()
        return True, False, None if error is not None else self.result(), error

    def __repr__(self) -> str:
        state = "running"
        if self.done():
            error = self._failure()
            state = "finished" if error is None else f"failed with {type(error).__name__}"
        return f"<future at {id(self):#x}, {state}>"


class Outcomes(Generic[T]):
    """The outcomes of several futures that end at the same time."""

    __slots__ = ("_make", "_results", "error", "is_done", "is_seen", "watched")

    def __init__(self) -> None:
        self.is_done = False
        #: Whether the program has learnt of the error.
        self.is_seen = False
        #: The error, which all futures share.
        self.error: Exception | None = None
        #: Makes the results when the first one is read.
        self._make: Callable[[], Sequence[T]] | None = None
        #: The results, once they are made. Two threads may make them; the first results count.
        self._results: list[Sequence[T]] = []
        #: The futures for which something waits.
        self.watched: list[SharedFuture[T]] = []

    def finish(self, make: Callable[[], Sequence[T]], error: Exception | None = None) -> None:
        """Finish all futures.

        :param make: makes the results, in the order of the futures.
        :param error: the error of all futures; None when there are results.
        """
        self._make = make
        self.error = error
        if self.watched:
            self.is_seen = True
        self.is_done = True
        watched, self.watched = self.watched, []
        # All waiting threads are woken before the first function of a program runs.
        for future in watched:
            future.wake()
        for future in watched:
            future.notify_watchers()

    def result(self, index: int) -> T:
        """The result of one of the futures."""
        results, make = self._results, self._make
        if not results and make is not None:
            results.append(make())
            self._make = None
        return results[0][index]


class SharedFuture(RunningFuture[T]):
    """A future whose outcome is one of several; see :class:`Outcomes`."""

    def __init__(self, outcomes: Outcomes[T], index: int) -> None:
        self._outcomes = outcomes
        self._index = index

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._outcomes.is_done

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it, as in the class above."""
        outcomes = self._outcomes
        if not outcomes.is_done:
            self._wait(timeout)
        if outcomes.error is None:
            return outcomes.result(self._index)
        outcomes.is_seen = True
        raise outcomes.error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome and return the error or None, as in the class above."""
        outcomes = self._outcomes
        if not outcomes.is_done:
            self._wait(timeout)
        outcomes.is_seen = True
        return outcomes.error

    def _failure(self) -> BaseException | None:
        return self._outcomes.error

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._outcomes.watched.append(self)


def running_future() -> ThreadFuture[T]:
    """A future of a request that is in flight and can no longer be cancelled."""
    return RunningFuture()


def finish(future: ThreadFuture[T], outcome: T | Exception) -> None:
    """Finish a future with a result or an error."""
    if isinstance(outcome, Exception):
        future.set_exception(client_error(outcome))
    else:
        future.set_result(outcome)


# --- the thread that waits for conditions instead of the client's thread

#: Finished futures whose conditions the main thread uses; None until the thread is started.
_to_tell: SimpleQueue[RunningFuture[Any]] | None = None


def _begin_to_tell() -> None:
    """Start the thread once; ``threading.Thread`` would take a lock to do so."""
    global _to_tell
    if _to_tell is None:
        # Few programs need this module.
        from queue import SimpleQueue

        line: SimpleQueue[RunningFuture[Any]] = SimpleQueue()
        # A signal handler at this point starts another thread, and both serve their queues.
        _thread.start_new_thread(_tell_always, (line,))
        _to_tell = line


def _tell_always(line: SimpleQueue[RunningFuture[Any]]) -> None:
    while True:
        future = line.get()
        try:
            future.finish_public()
        except Exception:
            log.exception("a function that waits for %r cannot be notified", future)


def _forked() -> None:
    """Replace the lock: a thread that the child does not have may hold the old one."""
    global _lock, _to_tell
    _lock = threading.RLock()
    _to_tell = None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)
