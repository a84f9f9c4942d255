"""The blocking consumer that is polled.

    with PullConsumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        while True:
            for message in consumer.poll(100):
                bill(message)

A poll acknowledges the messages of the poll before. The last ones come again after a close, unless
another poll, perhaps with ``timeout_s=0``, acknowledged them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from twistmq.client.blocking import Client, closing_on_error
from twistmq.client.core.held import Batch
from twistmq.client.core.pull_consumer import PullMember
from twistmq.client.core.subscriptions import Sql, Topics, subscription
from twistmq.client.errors import Closed
from twistmq.client.messages import MessageQueue, ReceivedMessage
from twistmq.client.options import PULL_CONSUMER, Where
from twistmq.client.roles import build_pull_consumer, parts_of

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.arguments import PullArguments

__all__ = ["PullConsumer"]

T = TypeVar("T")


class PullConsumer(Generic[T]):
    """A member of a consumer group that is polled, by one thread at a time.

    :param where: the name servers, or a ``Client`` to share.
    :param group: the consumer group.
    :param topics: what it reads, as :class:`Consumer` takes it; None: see :meth:`subscribe` and
        :meth:`assign`.
    :param options: see the page of options. A consumer without a client to share takes those of
        a client too.
    """

    def __init__(
        self, where: Where | Client = None, *, group: str, topics: Topics | None = None,
        **options: Unpack[PullArguments],
    ) -> None:
        parts = parts_of(where, Client, PULL_CONSUMER, options)
        self.client = parts.client
        self._owns_client = parts.is_own
        #: The messages of the last poll.
        self._delivered: list[Batch[T]] = []
        self._is_closed = False
        with closing_on_error(parts):
            self.member: PullMember[T] = build_pull_consumer(
                self.client.core, group, topics, parts.options)
            self.client.run(self.member.start)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def poll(self, max_count: int = 100, timeout_s: float = 5.0) -> list[ReceivedMessage[T]]:
        """Acknowledge the messages of the last poll, and wait for more.

        :returns: at most so many messages; empty when the time is over.
        :raises Closed: when the consumer is closed.
        """
        self._check_open()
        delivered = self._delivered
        batches = self.client.run(
            lambda: self.member.poll(delivered, max_count, timeout_s * 1000))
        self._delivered = batches
        return [message for batch in batches for message in batch.messages]

    def subscribe(self, topic: str, expression: str | Sql | None = None) -> None:
        """Read one more topic, or change its expression.

        :raises OptionError: when queues are assigned.
        """
        wanted = subscription(self.client.core.namespace.topic(topic), expression)
        self.client.loop.run_there(lambda: self.member.subscribe(wanted))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        name = self.client.core.namespace.topic(topic)
        self.client.loop.run_there(lambda: self.member.unsubscribe(name))

    def assign(self, queues: Sequence[MessageQueue]) -> None:
        """Read these queues and no other; see ``Client.read_queues`` for those of a topic.

        :raises OptionError: when the consumer has subscriptions, or a topic has no such queue.
        """
        self.client.run(lambda: self.member.assign(queues))

    def assigned(self) -> list[MessageQueue]:
        """The queues that are read now: new ones appear a moment after they were asked for."""
        return self.client.loop.run_there(self.member.assigned)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at an offset.

        :raises NotAssigned: when the queue is not one of this consumer's now.
        :raises OptionError: when the queue has no such offset.
        """
        self.client.run(lambda: self.member.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue a queue at its first message."""
        self.client.run(lambda: self.member.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue a queue at the message that comes next."""
        self.client.run(lambda: self.member.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, time: datetime) -> None:
        """Continue a queue at the first message that was stored then or later."""
        self.client.run(lambda: self.member.seek_to_time(queue, int(time.timestamp() * 1000)))

    def position(self, queue: MessageQueue) -> int:
        """The offset from which the next poll returns messages of a queue.

        :raises NotAssigned: when the queue is not one of this consumer's now.
        """
        return self.client.loop.run_there(lambda: self.member.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """The offset that is committed for the group; None when there never was one."""
        return self.client.run(lambda: self.member.committed(queue))

    def commit(self) -> None:
        """Commit now what polls acknowledged; else it happens each five seconds."""
        self.client.run(self.member.commit)

    def pause(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Pull nothing more, of some queues or of all; what was read is still returned."""
        self.client.loop.run_there(lambda: self.member.set_paused(queues, True))

    def resume(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Undo :meth:`pause`."""
        self.client.loop.run_there(lambda: self.member.set_paused(queues, False))

    def close(self) -> None:
        """Commit what polls acknowledged, and leave the group; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self.client.core.is_closed:
            self.client.run(self.member.leave)
        if self._owns_client:
            self.client.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the consumer is closed")
