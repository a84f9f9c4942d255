"""The messages that a connection has received, in the form that kombu passes to consumers."""

from __future__ import annotations

import itertools
from typing import Any

from twistmq.client import PopConsumer, ReceivedMessage
from twistmq.integrations.base.holder import HeldMessage
from twistmq.integrations.celery.envelopes import Envelope

__all__ = ["Delivery"]

_numbers = itertools.count(1)


class Delivery(HeldMessage):
    """One message that was received.

    :param queue: the name of the queue in kombu.
    :param envelope: the message in kombu's form; a unique delivery tag is added to it.
    :param consumer: the member that received the message; None: a message for a queue of one
        process, which is not acknowledged.
    """

    __slots__ = ("envelope", "number", "priority", "tag")

    def __init__(
        self, queue: str, envelope: Envelope, message: ReceivedMessage[Any],
        consumer: PopConsumer[Any] | None = None,
    ) -> None:
        super().__init__(queue, message, consumer)
        self.envelope = envelope
        self.number = next(_numbers)
        self.tag = str(self.number)
        properties = envelope["properties"]
        properties["delivery_tag"] = self.tag
        properties["delivery_info"]["redelivered"] = bool(
            envelope.get("redelivered") or message.attempt > 1)
        try:
            self.priority = int(properties.get("priority") or 0)
        except (TypeError, ValueError, OverflowError):
            self.priority = 0

    def __lt__(self, other: Delivery) -> bool:
        """Whether this message is handed out first: by priority, then in the order of arrival."""
        return (-self.priority, self.number) < (-other.priority, other.number)
