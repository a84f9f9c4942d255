"""The assignment of queues by the program, instead of a division among the members of a group.

Source: DefaultLitePullConsumerImpl.assign @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twistmq.client.base.errors import OptionError
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import AssignedQueues
from twistmq.client.core.consumer.subscriber import Subscriber
from twistmq.client.core.consumer.subscriptions import Subscription, SubscriptionTable
from twistmq.protocol.bodies import MessageQueue

__all__ = ["ProgramAssignment"]


class ProgramAssignment:
    """The queues that a program assigns to its consumer.

    :param wake: requests a round of the rebalance, which takes and drops the queues.
    """

    def __init__(
        self, client: ClientCore, subscriptions: SubscriptionTable, queues: AssignedQueues[Any],
        subscriber: Subscriber, wake: Callable[[], object],
    ) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._queues = queues
        self._subscriber = subscriber
        self._wake = wake

    async def assign(self, queues: Sequence[MessageQueue]) -> None:
        """Read exactly these queues, whatever other members read.

        :param queues: the queues, with their names in the namespace.
        :raises OptionError: when the consumer has subscriptions, or a topic has no such queue.
        :raises RequestRefused, RemotingError: when a topic is not found.
        """
        if self._queues.fixed is None and self._subscriptions:
            raise OptionError("this consumer has subscriptions: no queue can be assigned to it")
        fixed = frozenset(self._client.namespace.queue(queue) for queue in queues)
        topics = {queue.topic for queue in fixed}
        for topic in sorted(topics):
            route = await self._client.routes.find(topic, again=True)
            for queue in sorted(fixed):
                if queue.topic == topic and queue not in route.read_queues:
                    raise OptionError(f"there is no queue {queue} to read")
        self._queues.fixed = fixed
        for topic in set(self._subscriptions) - topics:
            self._subscriber.unsubscribe(topic)
        for topic in sorted(topics - set(self._subscriptions)):
            self._subscriber.subscribe(Subscription(topic))
        self._wake()
