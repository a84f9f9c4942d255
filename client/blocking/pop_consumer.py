"""The blocking consumer that pops.

    with PopConsumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        for message in consumer.receive(10):
            bill(message)
            consumer.acknowledge(message)

``run``, ``run_batches`` and the iteration are those of
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

    A popped message is hidden from the other members for ``invisible_s``. Handlers and iterations
    hide it for longer as they need it, and acknowledge it. A message that :meth:`receive` returned
    comes again, unless the program acknowledges it in time. Brokers need to be of 5.0 or later.

    :param name_servers: see ``NameServers`` of ``twistmq.client.shell.options``.
    :param client: a ``Client`` to share, in place of name servers.
    :param group: the consumer group.
    :param topics: what it reads, as :class:`Consumer` takes it.
    :param options: see the page of options. A consumer without a client to share takes those of
        a client too.
    :raises Unsupported: when a broker has no pop consumption.
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
        """Wait for messages; each of them is to be acknowledged.

        :param invisible_s: for how long they are hidden from other members; None: as the option
            says.
        :returns: at most ``max_count`` messages; empty when the time is over.
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
        """Say that messages were processed: received ones, or those of an iteration.

        See :meth:`twistmq.client.blocking.consumer.Consumer.acknowledge` for the latter.

        :raises ReceiptExpired: when some were hidden no longer, or have their result already. The
            others are acknowledged.
        :raises RequestRefused, RemotingError: when a broker does not take it.
        """
        self._check_open()
        each = [messages] if isinstance(messages, ReceivedMessage) else list(messages)
        self._finish()

        async def acknowledge() -> None:
            await self.member.receiving.acknowledge(self._handling.succeed_taken(each))

        self.client.run(acknowledge)

    def extend(self, message: ReceivedMessage[T], invisible_s: float) -> None:
        """Hide a message that the program received for so long from now on.

        :raises: as :meth:`acknowledge`.
        """
        self._check_open()
        self.client.run(lambda: self.member.receiving.extend(message, invisible_s * 1000))

    def retry(self, message: ReceivedMessage[T], delay_s: float | None = None) -> None:
        """Give back a message that the program received: it is delivered again.

        :param delay_s: after so long; None: by its attempts, and the dead letters after the last.
        :raises: as :meth:`acknowledge`.
        """
        self._check_open()
        delay_ms = None if delay_s is None else delay_s * 1000
        self.client.run(lambda: self.member.receiving.retry(message, delay_ms))

    def bury(self, message: ReceivedMessage[T]) -> None:
        """Send a message that the program received to the dead letters of the group.

        :raises: as :meth:`acknowledge`.
        """
        self._check_open()
        self.client.run(lambda: self.member.receiving.bury(message))
