"""The shell for asyncio.

    async with aio.Producer("127.0.0.1:9876", group="shop") as producer:
        await producer.send("orders", b"paid")
    async with aio.Consumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        async for message in consumer:
            await bill(message)

Objects belong to the loop in which ``async with`` or :meth:`start` ran. The sockets are asyncio's
own. A loop that is blocked for long sends no heartbeats, and after two minutes the brokers give the
member's queues to other members. The client logs a warning after one second.
``twistmq.client.event_loop`` defines the methods. Messages, errors and other values, such as COMMIT
and ``sql``, are imported from ``twistmq.client``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twistmq.client.aio.loop import AsyncioShell
from twistmq.client.base.messages import SendResult
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.consumer import LoopConsumer
from twistmq.client.event_loop.pop_consumer import LoopPopConsumer
from twistmq.client.event_loop.producer import LoopProducer
from twistmq.client.event_loop.pull_consumer import LoopPullConsumer
from twistmq.client.roles.parts import Value, parts_of
from twistmq.client.roles.waits import ForAsyncio
from twistmq.client.shell.options import (
    CLIENT,
    CONSUMER,
    POP_CONSUMER,
    PRODUCER,
    PULL_CONSUMER,
    NameServers,
    lists_options,
)
from twistmq.protocol.lazy_exports import listed_names

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.core.consumer.subscriptions import Topics
    from twistmq.client.shell.arguments import (
        ClientArguments,
        ConsumerArguments,
        PopArguments,
        ProducerArguments,
        PullArguments,
    )

__all__ = ["Client", "Consumer", "PopConsumer", "Producer", "PullConsumer"]

__dir__ = listed_names(__name__, __all__)


@lists_options(CLIENT)
class Client(ForAsyncio, LoopClient):
    """A client of a cluster. Producers and consumers that are given the same client share it.

    :param options: see below.
    """

    def __init__(self, name_servers: NameServers = None,
                 **options: Unpack[ClientArguments]) -> None:
        super().__init__(AsyncioShell(name_servers, dict(options)))


@lists_options(PRODUCER)
class Producer(ForAsyncio, LoopProducer[Client, asyncio.Future[SendResult]]):
    """Sends messages.

    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None,
        **options: Unpack[ProducerArguments]
    ) -> None:
        super().__init__(parts_of(name_servers, client, Client, PRODUCER, options))


@lists_options(CONSUMER)
class Consumer(ForAsyncio, LoopConsumer[Client, Value]):
    """A member of a consumer group.

    It joins the group at ``async with``, at :meth:`start` or at its first call that waits, and not
    in its constructor. Until it is closed, it keeps its queues from the other members.

    :param group: the consumer group.
    :param topics: the topics to read: "orders", ["orders", "audits"], or expressions by topic.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics,
        **options: Unpack[ConsumerArguments],
    ) -> None:
        super().__init__(parts_of(name_servers, client, Client, CONSUMER, options), group, topics)


@lists_options(PULL_CONSUMER)
class PullConsumer(ForAsyncio, LoopPullConsumer[Client, Value]):
    """A member of a consumer group that is polled, by one task at a time.

    It joins the group at ``async with``, at :meth:`start` or at its first call that waits, and not
    in its constructor. Until it is closed, it keeps its queues from the other members.

    :param group: the consumer group.
    :param topics: the topics to read; None: see ``subscribe`` and ``assign``.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics | None = None,
        **options: Unpack[PullArguments],
    ) -> None:
        super().__init__(parts_of(name_servers, client, Client, PULL_CONSUMER, options), group,
                         topics)


@lists_options(POP_CONSUMER)
class PopConsumer(ForAsyncio, LoopPopConsumer[Client, Value]):
    """A member of a consumer group that pops: its members share all queues, message by message.

    It joins the group at ``async with``, at :meth:`start` or at its first call that waits, and not
    in its constructor. Messages are popped only while a caller waits for them.

    :param group: the consumer group.
    :param topics: the topics to read: "orders", ["orders", "audits"], or expressions by topic.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics,
        **options: Unpack[PopArguments],
    ) -> None:
        super().__init__(parts_of(name_servers, client, Client, POP_CONSUMER, options), group,
                         topics)
