"""The blocking consumer that is polled.

    with PullConsumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        while True:
            for message in consumer.poll(100):
                bill(message)

A poll acknowledges the messages of the previous poll. The last messages are delivered again after a
close, unless another poll, perhaps with ``timeout_s=0``, acknowledged them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from twistmq.client.base.messages import MessageQueue, ReceivedMessage
from twistmq.client.blocking.client import Client
from twistmq.client.blocking.member import BlockingMember
from twistmq.client.core.consumer.pull_consumer import PullMember
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.shell.options import PULL_CONSUMER, NameServers
from twistmq.client.shell.roles import build_pull_consumer, parts_of

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import PullArguments

__all__ = ["PullConsumer"]

T = TypeVar("T")


class PullConsumer(BlockingMember[T]):
    """A member of a consumer group that is polled, by one thread at a time.

    :param name_servers: see ``NameServers`` of ``twistmq.client.shell.options``.
    :param client: a ``Client`` to share, instead of name servers.
    :param group: the consumer group.
    :param topics: the topics to read, in the form that :class:`Consumer` takes; None: see
        :meth:`subscribe` and :meth:`assign`.
    :param options: see the page of options. A consumer that does not share a client also takes the
        options of a client.
    """

    member: PullMember[T]

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics | None = None,
        **options: Unpack[PullArguments],
    ) -> None:
        self._join(parts_of(name_servers, client, Client, PULL_CONSUMER, options), group, topics,
                   build_pull_consumer)

    def poll(self, max_count: int = 100, timeout_s: float = 5.0) -> list[ReceivedMessage[T]]:
        """Acknowledge the messages of the last poll, and wait for more.

        :returns: at most ``max_count`` messages; an empty list when the time is over.
        :raises Closed: when the consumer is closed.
        """
        self._check_open()
        with self.member.polls.begin() as poll:
            self.client.run(lambda: self.member.poll(poll, max_count, timeout_s * 1000))
            return [message for batch in poll.batches for message in batch.messages]

    def assign(self, queues: Sequence[MessageQueue]) -> None:
        """Read exactly these queues; ``Client.read_queues`` returns the queues of a topic.

        :raises OptionError: when the consumer has subscriptions, or a topic has no such queue.
        """
        self.client.run(lambda: self.member.assign(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading a queue at an offset.

        :raises NotAssigned: when the queue is not currently assigned to this consumer.
        :raises OptionError: when the queue has no such offset.
        """
        self.client.run(lambda: self.member.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue reading a queue at its first message."""
        self.client.run(lambda: self.member.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue reading a queue at the message that arrives next."""
        self.client.run(lambda: self.member.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, time: datetime) -> None:
        """Continue reading a queue at the first message that was stored at this time or later."""
        self.client.run(lambda: self.member.seek_to_time(queue, int(time.timestamp() * 1000)))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the message that the next poll returns first from a queue.

        :raises NotAssigned: when the queue is not currently assigned to this consumer.
        """
        return self.client.loop.run_there(lambda: self.member.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None when no offset was ever committed."""
        return self.client.run(lambda: self.member.committed(queue))

    def close(self) -> None:
        """Commit the acknowledged offsets and leave the group; a second call does nothing."""
        self._leave(self.member.leave)
