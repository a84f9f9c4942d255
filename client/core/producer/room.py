"""Room for messages under way: bounds on how many a producer sends at once, and on their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twistmq.client.base.errors import Full
from twistmq.client.core.connection.tasks import Future, Scheduler

__all__ = ["AwaitedRoom", "Room"]


class Room:
    """The bounds, and what is under way.

    :param bytes_max: does not hold for a message that is under way alone.
    """

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max: Final = count_max
        self._bytes_max: Final = bytes_max
        self.count = 0
        self.bytes = 0

    def fits(self, size: int) -> bool:
        """Whether there is room for a message of so many bytes."""
        return not self.count or (
            self.count < self._count_max and self.bytes + size <= self._bytes_max)

    def take(self, size: int) -> None:
        """A message is under way."""
        self.count += 1
        self.bytes += size

    def give(self, size: int) -> None:
        """A message has ended."""
        self.count -= 1
        self.bytes -= size

    def full(self) -> Full:
        """The error of a message for which there is no room in time."""
        return Full(f"{self.count} messages with {self.bytes} bytes are under way, and not one "
                    "ended in time")


class AwaitedRoom(Room):
    """A room that coroutines of the core wait for."""

    def __init__(self, count_max: int, bytes_max: int, tasks: Scheduler) -> None:
        super().__init__(count_max, bytes_max)
        self._tasks = tasks
        self._changed: Future[None] | None = None

    def give(self, size: int) -> None:
        """A message has ended: those that wait look again."""
        super().give(size)
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.set_result(None)

    async def until_fits(self, size: int, deadline_ms: float) -> None:
        """Wait for room, and do not take it.

        :param deadline_ms: on the steady clock.
        :raises Full: when there is no room by then.
        """
        await self._until(lambda: self.fits(size), deadline_ms)

    async def until_empty(self) -> None:
        """Wait until nothing is under way."""
        await self._until(lambda: not self.count, None)

    async def _until(self, is_so: Callable[[], bool], deadline_ms: float | None) -> None:
        while not is_so():
            if self._changed is None:
                self._changed = Future()
            if deadline_ms is None:
                await self._changed
            else:
                await self._tasks.within(
                    deadline_ms - self._tasks.now_ms, self._changed, self.full)
