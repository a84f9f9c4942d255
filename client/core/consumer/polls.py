"""The polls of a pull consumer: which of the messages that they took have reached the program.

A poll takes messages where the client runs, and the program gets them a moment later. Another poll
may begin in between, of another task or of a signal handler. It must neither acknowledge messages
that the program has not got, nor hand them out a second time. A poll that was cancelled returns
nothing, so the next one hands out what it took.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Generic, TypeVar

from twistmq.client.core.consumer.held_queues import Batch

__all__ = ["Poll", "Polls"]

T = TypeVar("T")


class Poll(Generic[T]):
    """One call of ``poll``, with the batches that it took."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken: list[Batch[T]] = []


class Polls(Generic[T]):
    """The polls of one consumer.

    A blocking consumer begins and ends its polls in the program's thread, while the thread of the
    client asks about batches. Therefore the lists are changed in place, by one call each.
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
            self._delivered.extend(poll.taken)
        finally:
            self._under_way.remove(poll)

    def is_under_way(self, batch: Batch[T]) -> bool:
        """Whether the poll that took a batch has not returned yet.

        To be asked before :meth:`acknowledge`: a poll that ends in between is not missed then.
        """
        return any(batch in poll.taken for poll in tuple(self._under_way))

    def acknowledge(self, batch: Batch[T]) -> bool:
        """Forget a batch.

        :returns: whether the program has got it.
        """
        if batch not in self._delivered:
            return False
        self._delivered.remove(batch)
        return True
