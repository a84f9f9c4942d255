"""Counts of messages that are given out and not acknowledged, under enablePopMessageThreshold.

Source: PopInflightMessageCounter @5.3.3.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from twistmq.plugins.pop.offsets import QueueKey

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["InFlightCounts"]


class InFlightCounts:
    """The counts of one broker.

    :param enabled: whether messages are counted.
    """

    def __init__(self, broker: Broker, enabled: bool) -> None:
        self._broker = broker
        self._enabled = enabled
        self._counts: dict[QueueKey, int] = {}

    def count(self, key: QueueKey) -> int:
        return self._counts.get(key, 0)

    def is_too_many(self, key: QueueKey) -> bool:
        return self._enabled and self.count(key) > self._broker.settings.int(
            "popInflightMessageThreshold")

    def add(self, key: QueueKey, count: int) -> None:
        """Add messages that were given out."""
        if self._enabled:
            self._counts[key] = self.count(key) + count

    def remove(self, key: QueueKey, count: int, pop_time: int) -> None:
        """Subtract messages that were acknowledged or will be retried.

        :param pop_time: Unix ms; messages popped before the broker's start were never counted.
        """
        if self._enabled and pop_time >= self._broker.started_ms:
            remaining = self.count(key) - count
            if remaining > 0:
                self._counts[key] = remaining
            else:
                self._counts.pop(key, None)

    def clear(self, key: QueueKey) -> None:
        """Reset the count of a queue that an ordered group pops again."""
        self._counts.pop(key, None)

    def forget_topics(self, topics: Container[str]) -> None:
        """Forget the queues of deleted topics."""
        for key in [key for key in self._counts if key[0] in topics]:
            del self._counts[key]

    def forget_gone(self) -> None:
        """Forget the queues of topics and groups that no longer exist."""
        broker = self._broker
        for key in [key for key in self._counts if broker.topic_config.get(key[0]) is None
                    or not broker.subscription_group.has(key[1])]:
            del self._counts[key]
