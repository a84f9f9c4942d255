"""The consumer of an event loop that reads messages by pop requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.held_queues import Batch
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.core.pop.pop_consumer import PopMember
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.consumer import LoopConsumer
from twistmq.client.event_loop.waits import waits
from twistmq.client.shell.roles import Parts, build_pop_consumer

__all__ = ["LoopPopConsumer"]

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C", bound=LoopClient)


class LoopPopConsumer(LoopConsumer[C, T]):
    """The coroutine version of :class:`twistmq.client.blocking.pop_consumer.PopConsumer`."""

    member: PopMember[T]

    def __init__(self, parts: Parts[C], group: str, topics: Topics) -> None:
        super().__init__(parts, group, topics, build_pop_consumer)

    @waits
    async def receive(
        self, max_count: int = 32, *, invisible_s: float | None = None, wait_s: float = 15.0
    ) -> list[ReceivedMessage[T]]:
        """Wait for messages; the program has to acknowledge each of them.

        A call that is cancelled loses nothing: the next call returns the messages that it took.

        :param invisible_s: how long they are invisible to other members; None: the value of the
            option.
        :returns: at most ``max_count`` messages; an empty list when the time is over.
        :raises Closed: when the consumer is closed.
        """
        receiving = self.member.receiving
        batches: list[Batch[T]] = []
        is_wanted = True

        async def receive() -> None:
            received = await receiving.receive(
                max_count, None if invisible_s is None else invisible_s * 1000, wait_s * 1000)
            if is_wanted:
                batches.extend(received)
            else:
                receiving.unreceive(received)

        try:
            await self._call(receive())
        except BaseException:
            # The wait was cancelled, perhaps just after messages were taken.
            is_wanted = False
            self._post(receiving.unreceive, batches)
            raise
        return [message for batch in batches for message in batch.messages]

    @waits
    async def acknowledge(
        self, messages: ReceivedMessage[T] | Sequence[ReceivedMessage[T]]
    ) -> None:
        """Acknowledge messages: messages that were received, or messages of an iteration.

        See :meth:`twistmq.client.blocking.consumer.Consumer.acknowledge` for the latter.

        :raises ReceiptExpired: when some messages are no longer invisible, or already have their
            result. The other messages are acknowledged.
        :raises RequestRefused, RemotingError: when a broker does not take the request.
        """
        each = [messages] if isinstance(messages, ReceivedMessage) else list(messages)
        await self._call(self.member.receiving.acknowledge(self._handling.succeed_taken(each)))

    @waits
    async def extend(self, message: ReceivedMessage[T], invisible_s: float) -> None:
        """Make a received message invisible for a given time from now on.

        :raises: as :meth:`acknowledge`.
        """
        await self._call(self.member.receiving.extend(message, invisible_s * 1000))

    @waits
    async def retry(self, message: ReceivedMessage[T], delay_s: float | None = None) -> None:
        """Return a message that the program received; it is delivered again.

        :param delay_s: the delay until then; None: the delay depends on the number of attempts, and
            after the last attempt the message is sent to the dead letter queue.
        :raises: as :meth:`acknowledge`.
        """
        await self._call(self.member.receiving.retry(
            message, None if delay_s is None else delay_s * 1000))

    @waits
    async def bury(self, message: ReceivedMessage[T]) -> None:
        """Send a message that the program received to the dead letter queue of the group.

        :raises: as :meth:`acknowledge`.
        """
        await self._call(self.member.receiving.bury(message))
