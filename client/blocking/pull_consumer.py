"""The blocking consumer that is polled.

    with PullConsumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        while True:
            for message in consumer.poll(100):
                bill(message)

A poll acknowledges the messages of the previous poll. The last messages are delivered again after a
close, unless another poll, perhaps with ``timeout_s=0``, acknowledged them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from twistmq.client.blocking.client import Client
from twistmq.client.blocking.member import BlockingMember
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.roles.parts import Value, parts_of
from twistmq.client.roles.pull_consumer import BasePullConsumer
from twistmq.client.shell.options import PULL_CONSUMER, NameServers, lists_options

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import PullArguments

__all__ = ["PullConsumer"]

R = TypeVar("R")
P = ParamSpec("P")


@lists_options(PULL_CONSUMER)
class PullConsumer(BlockingMember[Value], BasePullConsumer[Value]):
    """A member of a consumer group that is polled, by one thread at a time.

    The constructor joins the group, so that queues may be assigned before a ``with`` block begins.
    A consumer that is not read keeps its queues from the other members until it is closed.

    :param group: the consumer group.
    :param topics: the topics to read, in the form that :class:`Consumer` takes; None: see
        :meth:`subscribe` and :meth:`assign`.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics | None = None,
        **options: Unpack[PullArguments],
    ) -> None:
        self._join(parts_of(name_servers, client, Client, PULL_CONSUMER, options), group, topics)

    def _call_inline(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        # The core runs on the client's own thread, so a call of it always waits.
        self._check_open()
        return None

    def close(self) -> None:
        """Commit the acknowledged offsets and leave the group; a second call does nothing.

        In a child of ``fork`` it does nothing, because everything belongs to the parent.
        """
        self._leave(self._pull.leave)
