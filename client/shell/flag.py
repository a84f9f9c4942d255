"""An event that may be set and waited for in the middle of any step of a thread.

Python calls a signal handler between two instructions of the main thread. When these are in
``threading.Event``, the main thread has the event's lock: a handler that sets the event waits for
itself, and another thread that sets it waits for the handler. A flag has no lock. It relies on
operations of lists that are one step each.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

__all__ = ["Flag"]


class Flag:
    """An event, with the methods of ``threading.Event`` but for ``clear``."""

    __slots__ = ("_is_set", "_sleepers")

    def __init__(self) -> None:
        self._is_set = False
        #: A locked lock for each thread that waits; the thread that takes it out releases it.
        self._sleepers: list[Any] = []

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake the threads that wait."""
        self._is_set = True
        sleepers = self._sleepers
        with suppress(IndexError):
            while sleepers:
                sleepers.pop().release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set.

        :param timeout: seconds.
        :returns: whether it is set.
        """
        if not self._is_set:
            sleeper = threading.Lock()
            sleeper.acquire()
            self._sleepers.append(sleeper)
            try:
                # It may have been set before the lock was in the list.
                if not self._is_set:
                    sleeper.acquire(timeout=-1 if timeout is None else max(timeout, 0))
            finally:
                with suppress(ValueError):
                    self._sleepers.remove(sleeper)
        return self._is_set
