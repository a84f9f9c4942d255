"""The blocking consumer that reads messages by pop requests.

    with PopConsumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        for message in consumer.receive(10):
            bill(message)
            consumer.acknowledge(message)

``run``, ``run_batches`` and the iteration work as in
:class:`twistmq.client.blocking.consumer.Consumer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.blocking.client import Client
from twistmq.client.blocking.consumer import Consumer
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.core.pop.pop_consumer import PopMember
from twistmq.client.shell.options import POP_CONSUMER, NameServers
from twistmq.client.shell.roles import build_pop_consumer, parts_of

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import PopArguments

__all__ = ["PopConsumer"]

T = TypeVar("T")


class PopConsumer(Consumer[T]):
    """A member of a consumer group that pops: its members share all queues, message by message.

    A popped message is invisible to the other members for ``invisible_s``. Handlers and iterations
    extend this time as needed, and acknowledge the message. A message that :meth:`receive` returned
    is delivered again unless the program acknowledges it in time. The brokers must be of version
    5.0 or later.

    :param name_servers: see ``NameServers`` of ``twistmq.client.shell.options``.
    :param client: a ``Client`` to share, instead of name servers.
    :param group: the consumer group.
    :param topics: the topics to read, in the form that :class:`Consumer` takes.
    :param options: see the page of options. A consumer that does not share a client also takes the
        options of a client.
    :raises Unsupported: when a broker does not support pop consumption.
    """

    member: PopMember[T]

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics,
        **options: Unpack[PopArguments],
    ) -> None:
        self._join(parts_of(name_servers, client, Client, POP_CONSUMER, options), group, topics,
                   build_pop_consumer)

    def receive(
        self, max_count: int = 32, *, invisible_s: float | None = None, wait_s: float = 15.0
    ) -> list[ReceivedMessage[T]]:
        """Wait for messages; the program has to acknowledge each of them.

        :param invisible_s: how long they are invisible to other members; None: the value of the
            option.
        :returns: at most ``max_count`` messages; an empty list when the time is over.
        :raises Closed: when the consumer is closed.
        """
        self._check_open()
        invisible_ms = None if invisible_s is None else invisible_s * 1000
        batches = self.client.run(
            lambda: self.member.receiving.receive(max_count, invisible_ms, wait_s * 1000))
        return [message for batch in batches for message in batch.messages]

    def acknowledge(
        self, messages: ReceivedMessage[T] | Sequence[ReceivedMessage[T]]
    ) -> None:
        """Acknowledge messages: messages that were received, or messages of an iteration.

        See :meth:`twistmq.client.blocking.consumer.Consumer.acknowledge` for the latter.

        :raises ReceiptExpired: when some messages are no longer invisible, or already have their
            result. The other messages are acknowledged.
        :raises RequestRefused, RemotingError: when a broker does not take the request.
        """
        self._check_open()
        each = [messages] if isinstance(messages, ReceivedMessage) else list(messages)
        self._finish()

        async def acknowledge() -> None:
            await self.member.receiving.acknowledge(self._handling.succeed_taken(each))

        self.client.run(acknowledge)

    def extend(self, message: ReceivedMessage[T], invisible_s: float) -> None:
        """Make a received message invisible for a given time from now on.

        :raises: as :meth:`acknowledge`.
        """
        self._check_open()
        self.client.run(lambda: self.member.receiving.extend(message, invisible_s * 1000))

    def retry(self, message: ReceivedMessage[T], delay_s: float | None = None) -> None:
        """Return a message that the program received; it is delivered again.

        :param delay_s: the delay until then; None: the delay depends on the number of attempts,
            and after the last attempt the message is sent to the dead letter queue.
        :raises: as :meth:`acknowledge`.
        """
        self._check_open()
        delay_ms = None if delay_s is None else delay_s * 1000
        self.client.run(lambda: self.member.receiving.retry(message, delay_ms))

    def bury(self, message: ReceivedMessage[T]) -> None:
        """Send a message that the program received to the dead letter queue of the group.

        :raises: as :meth:`acknowledge`.
        """
        self._check_open()
        self.client.run(lambda: self.member.receiving.bury(message))
