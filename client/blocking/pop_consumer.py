"""The blocking consumer that reads messages by pop requests.

    with PopConsumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        for message in consumer.receive(10):
            bill(message)
            consumer.acknowledge(message)

``run``, ``run_batches`` and the iteration work as in
:class:`twistmq.client.blocking.consumer.Consumer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.client.blocking.client import Client
from twistmq.client.blocking.consumer import Consumer
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.roles.parts import Value, parts_of
from twistmq.client.roles.pop_consumer import BasePopConsumer
from twistmq.client.shell.options import POP_CONSUMER, NameServers, lists_options

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import PopArguments

__all__ = ["PopConsumer"]


@lists_options(POP_CONSUMER)
class PopConsumer(BasePopConsumer[Value], Consumer[Value]):
    """A member of a consumer group that pops: its members share all queues, message by message.

    A popped message is invisible to the other members for ``invisible_s``. Handlers and iterations
    extend this time as needed, and acknowledge the message. A message that :meth:`receive` returned
    is delivered again unless the program acknowledges it in time. The brokers must be of version
    5.0 or later.

    The constructor joins the group. Messages are popped only while a caller waits for them.

    :param group: the consumer group.
    :param topics: the topics to read, in the form that :class:`Consumer` takes.
    :param options: see below.
    :raises Unsupported: when a broker does not support pop consumption.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics,
        **options: Unpack[PopArguments],
    ) -> None:
        self._join(parts_of(name_servers, client, Client, POP_CONSUMER, options), group, topics)
