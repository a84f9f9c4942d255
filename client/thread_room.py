"""The room of a producer for messages under way, for threads that wait for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from twistmq.client.core.room import Room

__all__ = ["ThreadRoom"]

log = logging.getLogger("twistmq.client")

#: How many failures are remembered until the end of the producer.
_FAILURES_MAX: Final = 1000

#: How often a thread without room looks whether there is some, seconds.
_LOOK_S: Final = 0.05


class Watched(Protocol):
    """The outcome of messages, and whether the program has looked at it."""

    is_seen: bool


class ThreadRoom(Room):
    """Bounds on messages under way, for threads.

    A thread that found no room is woken when there is room for many messages, not for one: to wake
    a thread costs as much as to send a message. It also looks by itself every ``_LOOK_S``.

    :param group: the producer's, for the log.
    :param is_own_thread: whether the caller is the client's own thread.
    """

    def __init__(
        self, count_max: int, bytes_max: int, group: str = "",
        is_own_thread: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(count_max, bytes_max)
        self._is_own_thread = is_own_thread
        self._group = group
        #: Messages that failed: their outcome, how many have it, and the error.
        self._failures: list[tuple[Watched, int, Exception]] = []
        self.lock: Final = threading.Lock()
        self._changed: Final = threading.Condition(self.lock)
        #: Threads are woken when no more is under way than this.
        self._count_low: Final = count_max - max(count_max // 4, 1)
        self._bytes_low: Final = bytes_max - bytes_max // 4
        #: Threads that wait for room, or for everything to end.
        self._waiting = 0

    def take(self, size: int, timeout_s: float = 0.0) -> None:
        """Take room for a message; :raises Full: when it does not get any in time."""
        with self.lock:
            if not self.fits(size):
                self.wait_for(size, timeout_s)
            super().take(size)

    def wait_for(self, size: int, timeout_s: float) -> None:
        """Wait for room, with the lock; :raises Full: when it does not come in time.

        The client's own thread does not wait: it is the one that gives room back.
        """
        if self._is_own_thread() or not self._wait(lambda: self.fits(size), timeout_s):
            raise self.full()

    def _wait(self, is_true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for a condition, with the lock; :returns: whether it came in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._waiting += 1
        try:
            while not is_true():
                left = _LOOK_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _LOOK_S))
        finally:
            self._waiting -= 1
        return True

    def give(self, size: int) -> None:
        """Give room back."""
        with self.lock:
            self.give_some(1, size)

    def give_some(self, count: int, byte_count: int) -> None:
        """Give the room of some messages back, with the lock."""
        self.count -= count
        self.bytes -= byte_count
        if self._waiting and (not self.count or (
                self.count <= self._count_low and self.bytes <= self._bytes_low)):
            self._changed.notify_all()

    def wait_empty(self, timeout_s: float | None) -> None:
        """Wait until nothing is under way; :raises TimeoutError: when it is not in time."""
        with self.lock:
            if not self._wait(lambda: not self.count, timeout_s):
                raise TimeoutError(f"{self.count} messages are still under way")

    def failed(self, outcome: Watched, count: int, error: Exception) -> None:
        """Messages failed; they are logged in the end unless the program looks at their futures."""
        with self.lock:
            if len(self._failures) >= _FAILURES_MAX:
                self._failures = [each for each in self._failures if not each[0].is_seen]
            if len(self._failures) < _FAILURES_MAX:
                self._failures.append((outcome, count, error))
            else:
                # The number stays right; these are not looked at any more.
                last, more, first = self._failures[-1]
                self._failures[-1] = last, more + count, first

    def tell_lost(self) -> None:
        """Log what was not stored without the program's knowledge, because the producer ends."""
        with self.lock:
            failures, self._failures = self._failures, []
            left = self.count
        unseen = [(count, error) for outcome, count, error in failures if not outcome.is_seen]
        if unseen:
            log.error("producer group %s: %d messages of send_soon failed, and the program did not "
                      "look at their futures; the first error: %s", self._group,
                      sum(count for count, _ in unseen), unseen[0][1])
        if left:
            log.error("producer group %s: %d messages of send_soon have no answer at the end of "
                      "the producer: they may be lost", self._group, left)
