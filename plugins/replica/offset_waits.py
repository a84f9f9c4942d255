"""Waits for offsets of the commit log, for acknowledgements that depend on other replicas."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from twisted.internet.defer import Deferred

__all__ = ["OffsetWaits"]


class OffsetWaits:
    """Waits that end when an offset is reached, the lowest offset first."""

    def __init__(self) -> None:
        #: A heap of (offset, number, time of giving up, Deferred that fires).
        self._waiting: list[tuple[int, int, int, Deferred[None]]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, offset: int, due_ms: int) -> Deferred[None]:
        """Wait until an offset is reached.

        :param due_ms: the time at which the wait is given up, on the caller's clock, ms.
        """
        waiting: Deferred[None] = Deferred()
        heappush(self._waiting, (offset, next(self._numbers), due_ms, waiting))
        return waiting

    def end_up_to(self, offset: int) -> None:
        """End the waits for offsets up to this one."""
        while self._waiting and self._waiting[0][0] <= offset:
            heappop(self._waiting)[3].callback(None)

    def drop_late(self, now_ms: int) -> int:
        """Drop the waits with the lowest offsets that are given up, without a result.

        The wait for a lower offset began earlier, so the following ones are not late either.

        :returns: the number of waits that were dropped.
        """
        return len(self._take_late(now_ms))

    def fail_late(self, now_ms: int, error: Exception) -> int:
        """End the waits that are given up with an error.

        :returns: the number of waits that ended, see :meth:`drop_late`.
        """
        late = self._take_late(now_ms)
        for each in late:
            each.errback(error)
        return len(late)

    def _take_late(self, now_ms: int) -> list[Deferred[None]]:
        late: list[Deferred[None]] = []
        while self._waiting and self._waiting[0][2] <= now_ms:
            late.append(heappop(self._waiting)[3])
        return late

    def fail_all(self, error: Exception) -> None:
        """End all waits with an error, as after a change of role."""
        waiting, self._waiting = self._waiting, []
        for _, _, _, fires in waiting:
            fires.errback(error)
