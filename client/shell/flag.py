"""An event that a signal handler may set, even while the same thread waits for it.

Python calls a signal handler between two instructions of the main thread. If the main thread is
inside a method of ``threading.Event`` at this moment, it holds the event's lock: a handler that
sets the event would then wait for itself, and another thread that sets it would wait for the
handler. A flag does not have a lock. It relies on list operations that are atomic.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

__all__ = ["Flag"]


class Flag:
    """An event with the methods of ``threading.Event``, except for ``clear``."""

    __slots__ = ("_is_set", "_sleepers")

    def __init__(self) -> None:
        self._is_set = False
        #: A locked lock for each waiting thread; the thread that takes a lock out releases it.
        self._sleepers: list[Any] = []

    def is_set(self) -> bool:
        """Whether the flag was set."""
        return self._is_set

    def set(self) -> None:
        """Set the flag and wake the waiting threads."""
        self._is_set = True
        sleepers = self._sleepers
        with suppress(IndexError):
            while sleepers:
                sleepers.pop().release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set.

        :param timeout: the longest wait, in seconds.
        :returns: whether the flag is set.
        """
        if not self._is_set:
            sleeper = threading.Lock()
            sleeper.acquire()
            self._sleepers.append(sleeper)
            try:
                # The flag may have been set before the lock was added to the list.
                if not self._is_set:
                    sleeper.acquire(timeout=-1 if timeout is None else max(timeout, 0))
            finally:
                with suppress(ValueError):
                    self._sleepers.remove(sleeper)
        return self._is_set
