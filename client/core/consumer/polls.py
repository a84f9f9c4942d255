"""The polls of a pull consumer, and which of their messages have reached the program.

A poll acknowledges the messages of the previous poll.

A poll takes messages on the client's thread, and the program gets them a moment later. Another poll
may begin in between, from another task or from a signal handler. It must neither acknowledge
messages that the program has not received, nor hand them out a second time. A cancelled poll
returns nothing, so the next one hands out the messages that it took.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Generic, TypeVar

from twistmq.client.base.errors import Closed, OptionError
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import Batch
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.results import Results

__all__ = ["Poll", "Poller", "Polls"]

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


class Poller(Generic[T]):
    """Hands out messages to the polls of one consumer."""

    def __init__(
        self, tasks: Scheduler, closing: CloseSignal, delivery: Delivery[T], results: Results[T]
    ) -> None:
        self._tasks = tasks
        self._closing = closing
        self._delivery = delivery
        self._results = results
        #: The batches that polls handed out and that no later poll has acknowledged.
        self._out: list[Batch[T]] = []
        self.polls: Polls[T] = Polls()

    async def poll(self, poll: Poll[T], max_count: int, timeout_ms: float) -> list[Batch[T]]:
        """Wait for messages; see :meth:`poll_now`.

        :returns: the messages by queue; empty when the time is over.
        """
        deadline_ms = self._tasks.now_ms + timeout_ms
        batches = self.poll_now(poll, max_count)
        while not batches and (remaining_ms := deadline_ms - self._tasks.now_ms) > 0:
            waiting = self._tasks.spawn(self._delivery.ready(), "poll")
            try:
                await self._tasks.wait_for(remaining_ms, waiting, TimeoutError)
            except TimeoutError:
                return []
            finally:
                waiting.cancel()
            batches = self._take_all(poll, max_count)
        return batches

    def poll_now(self, poll: Poll[T], max_count: int) -> list[Batch[T]]:
        """Hand out the messages that are available.

        The messages of earlier polls that reached the program are acknowledged. Messages whose
        poll was cancelled are handed out again.

        :param poll: the poll that this call belongs to, from :attr:`polls`.
        :param max_count: the maximum number of messages, of all queues together.
        :returns: the messages by queue, which ``poll`` notes.
        :raises Closed: when the consumer closes.
        """
        if max_count < 1:
            raise OptionError(f"a poll asks for {max_count} messages; it must ask for at least 1")
        self._settle()
        if self._closing.is_set:
            raise Closed("the consumer is closed")
        return self._take_all(poll, max_count)

    def _settle(self) -> None:
        out, self._out = self._out, []
        for batch in out:
            if self.polls.is_under_way(batch):
                self._out.append(batch)
            elif self.polls.acknowledge(batch):
                self._results.succeed(batch.assigned, batch.messages)
            else:
                self._delivery.release(batch.assigned, batch.messages)

    def _take_all(self, poll: Poll[T], max_count: int) -> list[Batch[T]]:
        batches: list[Batch[T]] = []
        count = 0
        while count < max_count and (
                batch := self._delivery.take(max_count - count)) is not None:
            batches.append(batch)
            count += len(batch.messages)
        poll.batches += batches
        self._out += batches
        return batches

    def release_all(self) -> None:
        """Let the messages of the last poll wait again: they are not acknowledged."""
        out, self._out = self._out, []
        for batch in out:
            self._delivery.release(batch.assigned, batch.messages)
