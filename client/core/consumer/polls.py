"""The polls of a pull consumer, and which of their messages have reached the program.

A poll takes messages on the client's thread, and the program gets them a moment later. Another poll
may begin in between, from another task or from a signal handler. It must neither acknowledge
messages that the program has not received, nor hand them out a second time. A cancelled poll
returns nothing, so the next one hands out the messages that it took.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Generic, TypeVar

from twistmq.client.core.consumer.assigned_queues import Batch

__all__ = ["Poll", "Polls"]

T = TypeVar("T")


class Poll(Generic[T]):
    """One call of ``poll``, with the batches that it took."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[Batch[T]] = []


class Polls(Generic[T]):
    """The polls of one consumer.

    A blocking consumer begins and ends its polls on the program's thread, while the client's
    thread asks about batches. Therefore each change of a list is a single call that works in place.
    """

    __slots__ = ("_delivered", "_under_way")

    def __init__(self) -> None:
        #: The batches of polls that have returned, until a later poll acknowledges them.
        self._delivered: list[Batch[T]] = []
        self._under_way: list[Poll[T]] = []

    @contextlib.contextmanager
    def begin(self) -> Iterator[Poll[T]]:
        """Begin a poll. Its messages count as delivered once the block ends without an error."""
        poll: Poll[T] = Poll()
        self._under_way.append(poll)
        try:
            yield poll
            self._delivered.extend(poll.batches)
        finally:
            self._under_way.remove(poll)

    def is_under_way(self, batch: Batch[T]) -> bool:
        """Whether the poll that took a batch has not returned yet.

        Call it before :meth:`acknowledge`, so that a poll that ends in between is not missed.
        """
        return any(batch in poll.batches for poll in tuple(self._under_way))

    def acknowledge(self, batch: Batch[T]) -> bool:
        """Forget a batch.

        :returns: whether the program has received it.
        """
        if batch not in self._delivered:
            return False
        self._delivered.remove(batch)
        return True
