"""Calls checks each time before the reactor waits for events, while the process is idle.

A periodic task that rests has to continue as soon as it has work. Work comes from requests, other
servers, threads and timers, in many modules, and all of their code runs between two waits of the
reactor. A check before each wait notices all of this work, so none of these modules has to report
it, and none of them can forget to. Under load the checks would cost more than they save. Once the
reactor is busy, the watch therefore ends and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, proxy

from twisted.internet.base import ReactorBase
from twisted.logger import Logger

__all__ = ["IDLE_SECONDS", "ROUNDS_MAX", "ReactorWatch", "RestingTasks"]

#: A reactor is idle while it waits at most ``ROUNDS_MAX`` times in ``IDLE_SECONDS``.
ROUNDS_MAX: Final = 50
IDLE_SECONDS: Final = 1.0

#: The watch of each reactor.
_watches: Final[WeakKeyDictionary[Any, ReactorWatch]] = WeakKeyDictionary()


class RestingTasks(Protocol):
    """An object with tasks that rest."""

    def check(self) -> None:
        """Let the tasks that have work continue."""

    def end_rests(self) -> None:
        """Let all tasks continue, because the reactor is busy."""


class ReactorWatch:
    """The watch over one reactor; :meth:`find` returns it.

    :param monotonic: a clock in seconds that never jumps.
    """

    log = Logger()

    def __init__(self, reactor: Any, monotonic: Callable[[], float]) -> None:
        self._reactor: Any = proxy(reactor)
        self._monotonic = monotonic
        #: The objects with resting tasks.
        self._resting: dict[RestingTasks, None] = {}
        #: The step of the reactor that the watch replaces while there are such objects.
        self._wait: Callable[[float | None], object] | None = None
        #: The number of waits since ``_since``, and that time, seconds.
        self._rounds = 0
        self._since = monotonic()
        #: Until this time the reactor counts as busy, seconds.
        self._busy_end = self._since

    @classmethod
    def find(cls, reactor: Any, monotonic: Callable[[], float]) -> ReactorWatch | None:
        """Return the watch over a reactor, which is the same for all callers.

        :returns: None for a reactor that does not wait in ``doIteration``, such as asyncio's.
        """
        step = getattr(type(reactor), "doIteration", ReactorBase.doIteration)
        if step is ReactorBase.doIteration:
            return None
        watch = _watches.get(reactor)
        if watch is None:
            watch = _watches[reactor] = cls(reactor, monotonic)
        return watch

    @property
    def is_idle(self) -> bool:
        """Whether tasks may rest."""
        return self._monotonic() >= self._busy_end

    def begin(self, resting: RestingTasks) -> None:
        """Call the checks of an object from now on."""
        self._resting[resting] = None
        if self._wait is None:
            self._wait = self._reactor.doIteration
            self._reactor.doIteration = self._check_and_wait

    def end(self, resting: RestingTasks) -> None:
        """Stop calling the checks of an object."""
        self._resting.pop(resting, None)
        if self._wait is not None and not self._resting:
            self._wait = None
            del self._reactor.doIteration

    def _check_and_wait(self, delay: float | None) -> None:
        """Call the checks, then wait for events; takes the place of ``doIteration``.

        :param delay: how long to wait at most, seconds; None: without a limit.
        """
        wait = self._wait
        assert wait is not None
        self._rounds += 1
        if self._rounds > ROUNDS_MAX and self._is_busy():
            for resting in list(self._resting):
                self.end(resting)
                self._call(resting, resting.end_rests)
        else:
            for resting in list(self._resting):
                self._call(resting, resting.check)
        # A task that continues may be due before the end of the wait.
        due = self._reactor.timeout()
        wait(due if delay is None else delay if due is None else min(delay, due))

    def _call(self, resting: RestingTasks, check: Callable[[], None]) -> None:
        """Call a method of an object with resting tasks, and watch it no longer if it fails.

        The reactor would otherwise never reach its wait again, and serve nobody.
        """
        try:
            check()
        except Exception:
            self.log.failure("the periodic tasks that rest cannot be checked")
            self.end(resting)

    def _is_busy(self) -> bool:
        """Begin to count again; :returns: whether the reactor has waited too often."""
        now = self._monotonic()
        is_busy = now - self._since < IDLE_SECONDS
        self._rounds, self._since = 0, now
        if is_busy:
            self._busy_end = now + IDLE_SECONDS
        return is_busy
