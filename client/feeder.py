"""Batches of messages for the threads of a blocking consumer, kept ready in the client's thread."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Generic, TypeVar

from twistmq.client.core.consuming import Member
from twistmq.client.core.held import Batch
from twistmq.client.core.tasks import Future
from twistmq.client.errors import Closed

__all__ = ["Feeder"]

T = TypeVar("T")


class Feeder(Generic[T]):
    """Keeps a line of batches for workers, in the client's thread."""

    def __init__(
        self, member: Member[T], lines: SimpleQueue[Batch[T] | None], workers: int, size: int
    ) -> None:
        self._member = member
        self._lines = lines
        self._most = workers
        self._size = size
        #: Batches in the line.
        self._count = 0
        self._room: Future[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin to feed."""
        self._member.tasks.spawn(self._feed(), "feeder of handlers")

    def taken(self) -> None:
        """A worker took a batch."""
        self._count -= 1
        if self._room is not None:
            self._room.set_result(None)

    def stop(self) -> None:
        """Feed no more; what is in the line waits again."""
        self._is_stopped = True
        if self._room is not None:
            self._room.set_result(None)
        while not self._lines.empty():
            batch = self._lines.get()
            if batch is not None:
                self._member.release(batch.held, batch.messages)

    async def _feed(self) -> None:
        while not self._is_stopped:
            if self._count >= self._most:
                self._room = Future()
                await self._room
                continue
            batch = self._member.take(self._size)
            if batch is not None:
                self._count += 1
                self._lines.put(batch)
                continue
            try:
                await self._member.ready()
            except Closed:
                return
