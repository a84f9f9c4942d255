"""The room of a producer for messages in flight, with threads that wait for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from twistmq.client.core.producer.in_flight_limit import InFlightLimit

__all__ = ["ThreadInFlightLimit"]

log = logging.getLogger("twistmq.client")

#: The maximum number of failures that are remembered until the end of the producer.
_FAILURES_MAX: Final = 1000

#: How often a thread that waits for room checks whether there is some, seconds.
_LOOK_S: Final = 0.05
#: How long the client's thread waits for a thread that is in the middle of a step, seconds.
_STUCK_S: Final = 0.05


class Watched(Protocol):
    """The outcome of messages, and whether the program has looked at it."""

    is_seen: bool


class ThreadInFlightLimit(InFlightLimit):
    """Limits the messages in flight, for producers that threads use.

    A thread that found no room is woken only when there is room for many messages, because waking a
    thread costs as much as sending a message. The thread also checks for room every ``_LOOK_S``.

    :param group: the producer group, for the log.
    :param is_own_thread: whether the caller is the client's own thread.
    """

    def __init__(
        self, count_max: int, bytes_max: int, group: str = "",
        is_own_thread: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(count_max, bytes_max)
        self._is_own_thread = is_own_thread
        self._group = group
        #: The messages that failed: their outcome, their number, and the error.
        self._failures: list[tuple[Watched, int, Exception]] = []
        #: Reentrant, because a signal handler may send while it interrupts a send of its thread.
        self.lock: Final = threading.RLock()
        self._changed: Final = threading.Condition(self.lock)
        #: Waiting threads are woken when the messages in flight fall to these limits.
        self._count_low: Final = count_max - max(count_max // 4, 1)
        self._bytes_low: Final = bytes_max - bytes_max // 4
        #: Threads that wait for room, or for everything to end.
        self._waiting = 0
        #: Messages that ended while a thread was stuck in the middle of a step: count and bytes.
        self._late: deque[tuple[int, int]] = deque()
        self._is_stuck = False

    def take(self, size: int, timeout_s: float = 0.0) -> None:
        """Take room for a message; :raises Full: when there is no room in time."""
        with self.lock:
            if self._late:
                self._settle()
            if not self.fits(size):
                self.wait_for(size, timeout_s)
            super().take(size)

    def wait_for(self, size: int, timeout_s: float) -> None:
        """Wait for room while holding the lock; :raises Full: when there is no room in time.

        The client's own thread does not wait, because it is the thread that gives room back.
        """
        if self._is_own_thread() or not self._wait(lambda: self.fits(size), timeout_s):
            raise self.full_error()

    def _wait(self, is_true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for a condition while holding the lock; :returns: whether it became true in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._waiting += 1
        try:
            while True:
                self._settle()
                if is_true():
                    return True
                remaining_s = _LOOK_S if deadline is None else deadline - time.monotonic()
                if remaining_s <= 0:
                    return False
                self._changed.wait(min(remaining_s, _LOOK_S))
        finally:
            self._waiting -= 1

    def enter(self) -> bool:
        """Take the lock on the client's own thread, unless the thread that has it is stuck.

        A signal handler may interrupt its thread in the middle of a step. When the handler waits
        for the client, the client must not wait for that thread.
        """
        entered = self.lock.acquire(blocking=False) or (
            not self._is_stuck and self.lock.acquire(timeout=_STUCK_S))
        self._is_stuck = not entered
        return entered

    def give(self, size: int) -> None:
        """Give room back; called on the client's own thread."""
        if not self.enter():
            self._late.append((1, size))
            return
        try:
            self.give_some(1, size)
            if self._late:
                self._settle()
        finally:
            self.lock.release()

    def _settle(self) -> None:
        """Apply the give-backs that were postponed; the caller holds the lock."""
        while self._late:
            try:
                count, byte_count = self._late.popleft()
            except IndexError:
                # A signal handler, which may hold the same lock, applied the rest meanwhile.
                return
            self.give_some(count, byte_count)

    def give_some(self, count: int, byte_count: int) -> None:
        """Give the room of some messages back; the caller holds the lock."""
        self.count -= count
        self.bytes -= byte_count
        if self._waiting and (not self.count or (
                self.count <= self._count_low and self.bytes <= self._bytes_low)):
            self._changed.notify_all()

    def wait_empty(self, timeout_s: float | None, but: int = 0) -> None:
        """Wait until no message is in flight; :raises TimeoutError: when that takes too long.

        :param but: the number of messages that the wait ignores.
        """
        with self.lock:
            if not self._wait(lambda: self.count <= but, timeout_s):
                raise TimeoutError(f"{self.count} messages are still in flight")

    def failed(self, outcome: Watched, count: int, error: Exception) -> None:
        """Remember failed messages; those that the program never looks at are logged at the end."""
        if not self.enter():
            self._failures.append((outcome, count, error))
            return
        try:
            if len(self._failures) >= _FAILURES_MAX:
                self._failures = [each for each in self._failures if not each[0].is_seen]
            if len(self._failures) < _FAILURES_MAX:
                self._failures.append((outcome, count, error))
            else:
                # The total stays right, but it is no longer checked whether the program saw these.
                last, earlier_count, first = self._failures[-1]
                self._failures[-1] = last, earlier_count + count, first
        finally:
            self.lock.release()

    def tell_lost(self) -> None:
        """Log the messages that were lost unnoticed by the program, because the producer ends."""
        with self.lock:
            self._settle()
            failures, self._failures = self._failures, []
            unanswered_count = self.count
        unseen = [(count, error) for outcome, count, error in failures if not outcome.is_seen]
        if unseen:
            log.error("producer group %s: %d messages of send_soon failed, and the program did not "
                      "look at their futures; the first error: %s", self._group,
                      sum(count for count, _ in unseen), unseen[0][1])
        if unanswered_count:
            log.error("producer group %s: %d messages of send_soon have no answer at the end of "
                      "the producer: they may be lost", self._group, unanswered_count)
