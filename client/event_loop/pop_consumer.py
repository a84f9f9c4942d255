"""The consumer of an event loop that pops."""

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
    """A coroutine's form of :class:`twistmq.client.blocking.pop_consumer.PopConsumer`."""

    member: PopMember[T]

    def __init__(self, parts: Parts[C], group: str, topics: Topics) -> None:
        super().__init__(parts, group, topics, build_pop_consumer)

    @waits
    async def receive(
        self, max_count: int = 32, *, invisible_s: float | None = None, wait_s: float = 15.0
    ) -> list[ReceivedMessage[T]]:
        """Wait for messages; each of them is to be acknowledged.

        One that is cancelled loses nothing: what it took comes with the next one.

        :param invisible_s: for how long they are hidden from other members; None: as the option
            says.
        :returns: at most ``max_count`` messages; empty when the time is over.
        :raises Closed: when the consumer is closed.
        """
        receiving = self.member.receiving
        taken: list[Batch[T]] = []
        is_wanted = True

        async def receive() -> None:
            found = await receiving.receive(
                max_count, None if invisible_s is None else invisible_s * 1000, wait_s * 1000)
            if is_wanted:
                taken.extend(found)
            else:
                receiving.unreceive(found)

        try:
            await self._call(receive())
        except BaseException:
            # Cancelled, perhaps at the moment at which it had some.
            is_wanted = False
            self._post(receiving.unreceive, taken)
            raise
        return [message for batch in taken for message in batch.messages]

    @waits
    async def acknowledge(
        self, messages: ReceivedMessage[T] | Sequence[ReceivedMessage[T]]
    ) -> None:
        """Say that messages were processed: received ones, or those of an iteration.

        See :meth:`twistmq.client.blocking.consumer.Consumer.acknowledge` for the latter.

        :raises ReceiptExpired: when some were hidden no longer, or have their result already. The
            others are acknowledged.
        :raises RequestRefused, RemotingError: when a broker does not take it.
        """
        each = [messages] if isinstance(messages, ReceivedMessage) else list(messages)
        await self._call(self.member.receiving.acknowledge(self._handling.succeed_taken(each)))

    @waits
    async def extend(self, message: ReceivedMessage[T], invisible_s: float) -> None:
        """Hide a message that the program received for so long from now on.

        :raises: as :meth:`acknowledge`.
        """
        await self._call(self.member.receiving.extend(message, invisible_s * 1000))

    @waits
    async def retry(self, message: ReceivedMessage[T], delay_s: float | None = None) -> None:
        """Give back a message that the program received: it is delivered again.

        :param delay_s: after so long; None: by its attempts, and the dead letters after the last.
        :raises: as :meth:`acknowledge`.
        """
        await self._call(self.member.receiving.retry(
            message, None if delay_s is None else delay_s * 1000))

    @waits
    async def bury(self, message: ReceivedMessage[T]) -> None:
        """Send a message that the program received to the dead letters of the group.

        :raises: as :meth:`acknowledge`.
        """
        await self._call(self.member.receiving.bury(message))
