"""Moves batches from the client's thread to the threads of a blocking consumer, and results back.

Passing an item from one thread to another costs as much as processing a message. Therefore the
client's thread hands out many batches each time it wakes, and it collects the results of all
batches that have ended since then in one step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch
from twistmq.client.core.consumer.member import Member

__all__ = ["Feeder", "Results"]

T = TypeVar("T")


class Feeder(Generic[T]):
    """Keeps a line of batches for the workers; it runs on the client's thread.

    When the line is full, the feeder waits until half of it has been taken.

    :param size: the number of messages in a batch.
    """

    def __init__(
        self, member: Member[T], lines: SimpleQueue[Batch[T] | None], workers: int, size: int
    ) -> None:
        self._member = member
        self._lines = lines
        self._capacity = workers
        self._low = workers // 2
        self._size = size
        self._room: Future[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Start feeding."""
        self._member.tasks.spawn(self._feed(), "feeder of handlers")

    @property
    def is_needed(self) -> bool:
        """Whether to call :meth:`wake`; workers check this after each batch that they take."""
        return self._room is not None and self._lines.qsize() <= self._low

    def wake(self) -> None:
        """Continue feeding."""
        if self._room is not None:
            self._room.set_result(None)

    def stop(self) -> None:
        """Stop feeding, and return the batches of the line to the waiting messages."""
        self._is_stopped = True
        self.wake()
        # A worker may take the last batch first; the client's thread does not wait for another.
        with suppress(Empty):
            while True:
                batch = self._lines.get_nowait()
                if batch is not None:
                    self._member.release(batch.assigned, batch.messages)

    async def _feed(self) -> None:
        while not self._is_stopped:
            if self._lines.qsize() >= self._capacity:
                self._room = Future()
                # Workers that took batches before this line did not see that the feeder waits.
                if not self.is_needed:
                    await self._room
                self._room = None
                continue
            # With ordered consumption, one worker at a time handles the messages of a queue.
            room = 1 if self._member.options.in_order else self._capacity - self._lines.qsize()
            batch = self._member.take(self._size * room)
            if batch is not None:
                self._put(batch)
                continue
            try:
                await self._member.ready()
            except Closed:
                return

    def _put(self, batch: Batch[T]) -> None:
        """Put the messages of a queue into the line, in batches of the configured size."""
        size, messages = self._size, batch.messages
        if len(messages) <= size:
            self._lines.put(batch)
            return
        for begin in range(0, len(messages), size):
            self._lines.put(Batch(batch.assigned, messages[begin:begin + size]))


class Results(Generic[T]):
    """Passes the calls that workers make on a member to the engine.

    :param post: calls a function in the engine.
    """

    def __init__(self, member: Member[T], post: Callable[..., object]) -> None:
        self._succeed = member.succeed
        self._post = post
        #: The messages that were processed, by batch.
        self._done: deque[tuple[AssignedQueue[T], list[ReceivedMessage[T]]]] = deque()
        self._is_posted = False

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function of the member with arguments; calls of one thread keep their order."""
        if function != self._succeed:
            self._post(function, *arguments)
            return
        assigned, messages = arguments
        self._done.append((assigned, messages))
        if not self._is_posted:
            self._is_posted = True
            self._post(self._flush)

    def _flush(self) -> None:
        # Items that are added from now on are posted again.
        self._is_posted = False
        by_queue: dict[AssignedQueue[T], list[ReceivedMessage[T]]] = {}
        while self._done:
            assigned, messages = self._done.popleft()
            collected = by_queue.get(assigned)
            if collected is None:
                by_queue[assigned] = list(messages)
            else:
                collected += messages
        for assigned, messages in by_queue.items():
            self._succeed(assigned, messages)
