"""The methods of the consumer that is polled."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from twistmq.client.base.argument_checks import check_whole
from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import MessageQueue, ReceivedMessage, check_queue
from twistmq.client.base.times import Time, unix_ms
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.pull_consumer import PullMember
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.roles.member import BaseMember, check_queues
from twistmq.client.roles.parts import build_pull_consumer
from twistmq.client.roles.waits import waits
from twistmq.client.shell.options import milliseconds

__all__ = ["BasePullConsumer"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class BasePullConsumer(BaseMember[T]):
    """A member of a consumer group that is polled."""

    #: The core of the consumer: its member, and the parts of a member that is polled.
    _pull: PullMember[T]

    def _build(
        self, core: ClientCore, group: str, topics: Topics | None, options: Mapping[str, Any]
    ) -> Member[T]:
        self._pull = build_pull_consumer(core, group, topics, options)
        return self._pull.member

    @abstractmethod
    def _call_inline(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a function of the core without a wait, if the style and the moment allow it.

        :returns: None when the function was not called.
        """

    @waits
    async def poll(self, max_count: int = 100, timeout_s: float = 5.0) -> list[ReceivedMessage[T]]:
        """Acknowledge the messages of the last poll, and wait for more.

        A poll that is cancelled or interrupted loses nothing: the next poll returns the messages
        that it took.

        :returns: at most ``max_count`` messages; an empty list when the time is over.
        :raises Closed: when the consumer is closed.
        """
        check_whole(max_count, "max_count", 1)
        timeout_ms = milliseconds(timeout_s)
        poller = self._pull.poller
        with poller.polls.begin() as poll:
            if not self._call_inline(poller.poll_now, poll, max_count):
                await self._call(poller.poll, poll, max_count, timeout_ms)
            return [message for batch in poll.batches for message in batch.messages]

    @waits
    async def assign(self, queues: Sequence[MessageQueue]) -> None:
        """Read exactly these queues; ``Client.read_queues`` returns the queues of a topic.

        :raises OptionError: when the consumer has subscriptions, or a topic has no such queue.
        """
        if queues is None:
            raise OptionError("queues are None: give a list of queues")
        check_queues(queues)
        await self._call(self._pull.assignment.assign, queues)

    @waits
    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading a queue at an offset.

        :raises NotAssigned: when the queue is not currently assigned to this consumer.
        :raises OptionError: when the queue has no such offset.
        """
        check_queue(queue)
        check_whole(offset, "offset")
        await self._call(self._pull.positions.seek, queue, offset)

    @waits
    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue reading a queue at its first message."""
        check_queue(queue)
        await self._call(self._pull.positions.seek_to_begin, queue)

    @waits
    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue reading a queue at the message that arrives next."""
        check_queue(queue)
        await self._call(self._pull.positions.seek_to_end, queue)

    @waits
    async def seek_to_time(self, queue: MessageQueue, time: Time) -> None:
        """Continue reading a queue at the first message that was stored at a time or later.

        :param time: a datetime, or seconds since 1970.
        """
        check_queue(queue)
        time_ms = unix_ms(time, "time")
        await self._call(self._pull.positions.seek_to_time, queue, time_ms)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the message that the next poll returns first from a queue.

        :raises NotAssigned: when the queue is not currently assigned to this consumer.
        """
        check_queue(queue)
        return self._apply(self._pull.positions.position, queue)

    @waits
    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None when no offset was ever committed."""
        check_queue(queue)
        return await self._call(self._pull.positions.committed, queue)
