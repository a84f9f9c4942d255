"""The shell for Twisted. The reactor is passed as an argument.

    async def main(reactor):
        async with tx.Producer("127.0.0.1:9876", group="shop", reactor=reactor) as producer:
            await producer.send("orders", b"paid")

    react(lambda reactor: Deferred.fromCoroutine(main(reactor)))

Every method that waits returns a ``Deferred``. The only exception is ``send_soon``, whose result is
a Deferred; it is a coroutine function. :class:`ConsumerService` runs a consumer in an application.
``twistmq.client.event_loop`` defines the methods. Messages, errors and other values, such as COMMIT
and ``sql``, are imported from ``twistmq.client``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from twistmq.client.base.messages import SendResult
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.consumer import LoopConsumer
from twistmq.client.event_loop.pop_consumer import LoopPopConsumer
from twistmq.client.event_loop.producer import LoopProducer
from twistmq.client.event_loop.pull_consumer import LoopPullConsumer
from twistmq.client.roles.parts import Value, parts_of
from twistmq.client.shell.options import (
    CLIENT,
    CONSUMER,
    POP_CONSUMER,
    PRODUCER,
    PULL_CONSUMER,
    NameServers,
    lists_options,
)
from twistmq.client.tx.loop import DeferredMethods, TwistedShell
from twistmq.client.tx.service import ConsumerService
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

__all__ = ["Client", "Consumer", "ConsumerService", "PopConsumer", "Producer", "PullConsumer"]

__dir__ = listed_names(__name__, __all__)


@lists_options(CLIENT)
class Client(DeferredMethods, LoopClient):
    """A client of a cluster. Producers and consumers that are given the same client share it.

    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, reactor: Any, **options: Unpack[ClientArguments]
    ) -> None:
        super().__init__(TwistedShell(name_servers, reactor, dict(options)))


@lists_options(PRODUCER)
class Producer(DeferredMethods, LoopProducer[Client, Deferred[SendResult]]):
    """Sends messages.

    :param reactor: the reactor; not needed if a client is given.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None,
        reactor: Any = None,
        **options: Unpack[ProducerArguments],
    ) -> None:
        super().__init__(parts_of(name_servers, client, Client, PRODUCER, options, reactor=reactor))
        self.start()


@lists_options(CONSUMER)
class Consumer(DeferredMethods, LoopConsumer[Client, Value]):
    """A member of a consumer group.

    It joins the group at ``async with``, at :meth:`start` or at its first call that waits, and not
    in its constructor. Until it is closed, it keeps its queues from the other members.

    :param group: the consumer group.
    :param topics: the topics to read: "orders", ["orders", "audits"], or expressions by topic.
    :param reactor: the reactor; not needed if a client is given.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics, reactor: Any = None,
        **options: Unpack[ConsumerArguments],
    ) -> None:
        super().__init__(parts_of(name_servers, client, Client, CONSUMER, options, reactor=reactor),
                         group, topics)


@lists_options(PULL_CONSUMER)
class PullConsumer(DeferredMethods, LoopPullConsumer[Client, Value]):
    """A member of a consumer group that is polled, by one task at a time.

    It joins the group at ``async with``, at :meth:`start` or at its first call that waits, and not
    in its constructor. Until it is closed, it keeps its queues from the other members.

    :param group: the consumer group.
    :param topics: the topics to read; None: see ``subscribe`` and ``assign``.
    :param reactor: the reactor; not needed if a client is given.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics | None = None,
        reactor: Any = None, **options: Unpack[PullArguments],
    ) -> None:
        super().__init__(parts_of(name_servers, client, Client, PULL_CONSUMER, options,
                                  reactor=reactor),
                         group, topics)


@lists_options(POP_CONSUMER)
class PopConsumer(DeferredMethods, LoopPopConsumer[Client, Value]):
    """A member of a consumer group that pops: its members share all queues, message by message.

    It joins the group at ``async with``, at :meth:`start` or at its first call that waits, and not
    in its constructor. Messages are popped only while a caller waits for them.

    :param group: the consumer group.
    :param topics: the topics to read: "orders", ["orders", "audits"], or expressions by topic.
    :param reactor: the reactor; not needed if a client is given.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics, reactor: Any = None,
        **options: Unpack[PopArguments],
    ) -> None:
        super().__init__(parts_of(name_servers, client, Client, POP_CONSUMER, options,
                                  reactor=reactor),
                         group, topics)
