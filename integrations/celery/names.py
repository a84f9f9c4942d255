"""The names of topics for the exchanges of AMQP.

    queue Q       the topic prefix-Q, and the group of the same name
    exchange E    the topic prefix_x-E; the default exchange has an empty name
"""

from __future__ import annotations

from twistmq.integrations.base.names import prefixed_topic, queue_topic

__all__ = ["exchange_topic", "queue_topic"]


def exchange_topic(prefix: str, exchange: str) -> str:
    """Return the name of an exchange's topic."""
    return prefixed_topic(f"{prefix}_x-", exchange)
