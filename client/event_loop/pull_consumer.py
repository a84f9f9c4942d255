"""The consumer of an event loop that is polled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from twistmq.client.base.messages import MessageQueue, ReceivedMessage
from twistmq.client.core.consumer.pull_consumer import PullMember
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.member import LoopMember
from twistmq.client.event_loop.waits import waits
from twistmq.client.shell.roles import Parts, build_pull_consumer

__all__ = ["LoopPullConsumer"]

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C", bound=LoopClient)


class LoopPullConsumer(LoopMember[C, T]):
    """The coroutine version of :class:`twistmq.client.blocking.pull_consumer.PullConsumer`."""

    member: PullMember[T]

    def __init__(self, parts: Parts[C], group: str, topics: Topics | None) -> None:
        super().__init__(parts, build_pull_consumer(
            parts.client.core, group, topics, parts.options))

    @waits
    async def poll(
        self, max_count: int = 100, timeout_s: float = 5.0
    ) -> list[ReceivedMessage[T]]:
        """Acknowledge the messages of the last poll, and wait for more.

        A poll that is cancelled loses nothing: the next poll returns the messages that it took.

        :returns: at most ``max_count`` messages; an empty list when the time is over.
        :raises Closed: when the consumer is closed.
        """
        with self.member.polls.begin() as poll:
            if not self._at_once(self.member.poll_now, poll, max_count):
                await self._call(self.member.poll(poll, max_count, timeout_s * 1000))
            return [message for batch in poll.batches for message in batch.messages]

    @waits
    async def assign(self, queues: Sequence[MessageQueue]) -> None:
        """Read exactly these queues; ``Client.read_queues`` returns the queues of a topic.

        :raises OptionError: when the consumer has subscriptions, or a topic has no such queue.
        """
        await self._call(self.member.assign(queues))

    def assigned(self) -> list[MessageQueue]:
        """The queues that are currently read; new queues appear shortly after the request."""
        return self.member.assigned()

    @waits
    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading a queue at an offset.

        :raises NotAssigned: when the queue is not currently assigned to this consumer.
        :raises OptionError: when the queue has no such offset.
        """
        await self._call(self.member.seek(queue, offset))

    @waits
    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue reading a queue at its first message."""
        await self._call(self.member.seek_to_begin(queue))

    @waits
    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue reading a queue at the message that arrives next."""
        await self._call(self.member.seek_to_end(queue))

    @waits
    async def seek_to_time(self, queue: MessageQueue, time: datetime) -> None:
        """Continue reading a queue at the first message that was stored at this time or later."""
        await self._call(self.member.seek_to_time(queue, int(time.timestamp() * 1000)))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the message that the next poll returns first from a queue.

        :raises NotAssigned: when the queue is not currently assigned to this consumer.
        """
        return self.member.position(queue)

    @waits
    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None when no offset was ever committed."""
        return await self._call(self.member.committed(queue))

    @waits
    async def close(self) -> None:
        """Commit the acknowledged offsets and leave the group; a second call does nothing."""
        await self._leave(self.member.leave())
