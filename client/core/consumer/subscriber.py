"""Changes of subscriptions while a member is in its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import AssignedQueues
from twistmq.client.core.consumer.initial_offsets import Beginnings
from twistmq.client.core.consumer.subscription_check import SubscriptionCheck
from twistmq.client.core.consumer.subscriptions import Subscription, SubscriptionTable

__all__ = ["Subscriber"]


class Subscriber:
    """Subscribes one member to topics; the next round of the rebalance follows the change.

    :param wake: requests a round.
    :param beginnings: where the queues of topics begin; None: the brokers decide it.
    :param check: knows whether the group has other members; None: it does not matter.
    """

    def __init__(
        self, client: ClientCore, subscriptions: SubscriptionTable, queues: AssignedQueues[Any],
        wake: Callable[[], object], beginnings: Beginnings | None = None,
        check: SubscriptionCheck | None = None,
    ) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._queues = queues
        self._wake = wake
        self._beginnings = beginnings
        self._check = check

    def subscribe(self, subscription: Subscription) -> None:
        """Add or change a subscription."""
        topic = subscription.topic
        if topic not in self._subscriptions and self._beginnings is not None:
            self._beginnings.forget(topic)
        self._subscriptions[topic] = subscription
        self._client.routes.follow(topic)
        self._subscriptions.renew()
        for assigned in self._queues.values():
            if assigned.queue.topic == topic:
                assigned.subscription = subscription
        self._client.tasks.spawn(self._client.heartbeat_all(), "heartbeat")
        self._wake()

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        if self._subscriptions.pop(topic, None) is not None:
            self._subscriptions.renew()
            if self._check is not None:
                self._check.warn_unsubscribed(topic)
            self._client.tasks.spawn(self._client.heartbeat_all(), "heartbeat")
            self._wake()
