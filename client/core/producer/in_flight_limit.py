"""The limits of the number and size of the messages that one producer has in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twistmq.client.base.errors import Full
from twistmq.client.core.connection.tasks import Future, Scheduler

__all__ = ["AwaitedInFlightLimit", "InFlightLimit"]


class InFlightLimit:
    """The limits, and the number and size of the messages in flight.

    :param bytes_max: the maximum size; a single message in flight may exceed it.
    """

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max: Final = count_max
        self._bytes_max: Final = bytes_max
        self.count = 0
        self.bytes = 0

    def fits(self, size: int) -> bool:
        """Whether there is room for a message of this size."""
        return not self.count or (
            self.count < self._count_max and self.bytes + size <= self._bytes_max)

    def take(self, size: int) -> None:
        """Count a message that is in flight now."""
        self.count += 1
        self.bytes += size

    def give(self, size: int) -> None:
        """Count a message that has ended."""
        self.count -= 1
        self.bytes -= size

    def leave_no_room(self) -> None:
        """Leave no room from now on, because the producer cannot send any more."""
        self.count = self._count_max

    def full_error(self) -> Full:
        """Return the error for a message that gets no room in time."""
        return Full(f"{self.count} messages with {self.bytes} bytes are in flight, and none "
                    "of them ended in time")


class AwaitedInFlightLimit(InFlightLimit):
    """A limit at which coroutines of the core wait for room."""

    def __init__(self, count_max: int, bytes_max: int, tasks: Scheduler) -> None:
        super().__init__(count_max, bytes_max)
        self._tasks = tasks
        self._changed: Future[None] | None = None

    def give(self, size: int) -> None:
        """Count a message that has ended, and wake the waiting coroutines."""
        super().give(size)
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.set_result(None)

    async def until_fits(self, size: int, deadline_ms: float) -> None:
        """Wait until there is room, without taking it.

        :param deadline_ms: the end of the wait, by the monotonic clock.
        :raises Full: when there is no room by then.
        """
        await self._until(lambda: self.fits(size), deadline_ms)

    async def until_empty(self) -> None:
        """Wait until no message is in flight."""
        await self._until(lambda: not self.count, None)

    async def _until(self, is_so: Callable[[], bool], deadline_ms: float | None) -> None:
        while not is_so():
            if self._changed is None:
                self._changed = Future()
            if deadline_ms is None:
                await self._changed
            else:
                await self._tasks.wait_for(
                    deadline_ms - self._tasks.now_ms, self._changed, self.full_error)
