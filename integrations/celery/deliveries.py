"""The messages that a connection holds, hidden from other workers until they are finished.

One thread extends the invisible time of each message when a third of it is over, so that a task may
take any time. Another thread acknowledges finished messages in batches, so that the call which
finishes a message does not wait for the broker.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from twistmq.client import (
    ClientError,
    Closed,
    ForkedError,
    PopConsumer,
    ReceiptExpired,
    ReceivedMessage,
    RequestRefused,
)
from twistmq.integrations.celery.envelopes import Envelope

__all__ = ["Delivery", "Holder"]

log = logging.getLogger("twistmq.integrations.celery")

#: The part of the invisible time after which it is extended.
_EXTEND_AFTER: Final = 1 / 3
#: The delay before a request that failed is sent again, seconds.
_AGAIN_S: Final = 1.0
#: How long a close waits for the acknowledgements, seconds.
_FLUSH_S: Final = 5.0

_numbers = itertools.count(1)


class Delivery:
    """One message that was received.

    :param queue: the name of the queue in kombu.
    :param envelope: the message in kombu's form; a unique delivery tag is added to it.
    :param consumer: the member that received the message; None: a message for a queue of one
        process, which is not acknowledged.
    """

    __slots__ = ("consumer", "envelope", "extend_at", "message", "priority", "queue", "tag")

    def __init__(
        self, queue: str, envelope: Envelope, message: ReceivedMessage[Any],
        consumer: PopConsumer[Any] | None = None,
    ) -> None:
        self.queue = queue
        self.envelope = envelope
        self.message = message
        self.consumer = consumer
        self.tag = str(next(_numbers))
        #: When its invisible time is extended, by the monotonic clock.
        self.extend_at = 0.0
        properties = envelope["properties"]
        properties["delivery_tag"] = self.tag
        properties["delivery_info"]["redelivered"] = bool(
            envelope.get("redelivered") or message.attempt > 1)
        try:
            self.priority = int(properties.get("priority") or 0)
        except (TypeError, ValueError):
            self.priority = 0

    def __lt__(self, other: Delivery) -> bool:
        """Whether this message is handed out first: by priority, then in the order of arrival."""
        return (-self.priority, int(self.tag)) < (-other.priority, int(other.tag))


class Holder:
    """The messages that one connection holds.

    :param invisible_s: the invisible time of a message, seconds.
    """

    def __init__(self, invisible_s: float) -> None:
        self._invisible_s = invisible_s
        self._held: dict[str, Delivery] = {}
        self._finished: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [threading.Thread(target=target, name=f"twistmq-{name}", daemon=True)
                         for name, target in (("extensions", self._extend_always),
                                              ("acknowledgements", self._acknowledge_always))]
        self._acknowledging = 0
        for thread in self._threads:
            thread.start()

    def hold(self, delivery: Delivery) -> None:
        """Keep a message hidden until it is finished."""
        delivery.extend_at = time.monotonic() + self._invisible_s * _EXTEND_AFTER
        with self._changed:
            self._held[delivery.tag] = delivery

    def acknowledge(self, delivery: Delivery) -> None:
        """Finish a message; returns before the broker has answered."""
        with self._changed:
            self._held.pop(delivery.tag, None)
            if not self._is_closed:
                self._finished.append(delivery)
                self._changed.notify_all()
            elif delivery.consumer is not None:
                log.warning("a message of queue %s was acknowledged after the connection closed, "
                            "and is delivered again", delivery.queue)

    def give_back(self, delivery: Delivery) -> None:
        """Make a message visible to all workers again."""
        self._decide(delivery, "given back", lambda consumer: consumer.retry(
            delivery.message, delay_s=0))

    def bury(self, delivery: Delivery) -> None:
        """Send a message to the dead letters of its queue."""
        self._decide(delivery, "sent to the dead letters",
                     lambda consumer: consumer.bury(delivery.message))

    def _decide(
        self, delivery: Delivery, what: str, decide: Callable[[PopConsumer[Any]], object]
    ) -> None:
        with self._changed:
            self._held.pop(delivery.tag, None)
        if delivery.consumer is None:
            return
        try:
            decide(delivery.consumer)
        except (Closed, ForkedError):
            # The consumer gave the message back when it was closed.
            pass
        except ClientError as error:
            log.warning("a message of queue %s is not %s, and is delivered again after its "
                        "invisible time: %s", delivery.queue, what, error)

    # --- the two threads

    def _extend_always(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                self._changed.wait(min(self._invisible_s * _EXTEND_AFTER / 4, _AGAIN_S))
                now = time.monotonic()
                due = [each for each in self._held.values() if each.extend_at <= now]
            for delivery in due:
                self._extend(delivery)

    def _extend(self, delivery: Delivery) -> None:
        consumer = delivery.consumer
        if consumer is None or delivery.tag not in self._held:
            return
        delivery.extend_at = time.monotonic() + self._invisible_s * _EXTEND_AFTER
        try:
            consumer.extend(delivery.message, self._invisible_s)
        except ReceiptExpired:
            if self._held.pop(delivery.tag, None) is not None:
                log.warning("a message of queue %s could not be kept hidden, so another worker "
                            "may run it as well", delivery.queue)
        except (Closed, ForkedError):
            self._held.pop(delivery.tag, None)
        except ClientError as error:
            log.warning("a message of queue %s is not extended yet: %s", delivery.queue, error)
            delivery.extend_at = time.monotonic() + _AGAIN_S

    def _acknowledge_always(self) -> None:
        while True:
            with self._changed:
                self._acknowledging = 0
                self._changed.notify_all()
                while not self._finished:
                    if self._is_closed:
                        return
                    self._changed.wait()
                batch = list(self._finished)
                self._finished.clear()
                self._acknowledging = len(batch)
            by_consumer: dict[PopConsumer[Any], list[Delivery]] = {}
            for delivery in batch:
                if delivery.consumer is not None:
                    by_consumer.setdefault(delivery.consumer, []).append(delivery)
            for consumer, deliveries in by_consumer.items():
                self._acknowledge(consumer, deliveries)

    def _acknowledge(self, consumer: PopConsumer[Any], deliveries: list[Delivery]) -> None:
        """Acknowledge messages of one consumer; this is repeated if the broker does not answer."""
        try:
            consumer.acknowledge([each.message for each in deliveries])
        except ReceiptExpired:
            log.warning("%d or fewer messages of queue %s were acknowledged too late, and are "
                        "delivered again", len(deliveries), deliveries[0].queue)
        except (Closed, ForkedError):
            log.warning("%d messages of queue %s were not acknowledged before the connection "
                        "closed", len(deliveries), deliveries[0].queue)
        except RequestRefused as error:
            log.warning("the broker refuses an acknowledgement: %s", error)
        except ClientError as error:
            log.warning("the broker does not take acknowledgements yet: %s", error)
            time.sleep(_AGAIN_S)
            with self._changed:
                if not self._is_closed:
                    self._finished.extend(deliveries)

    def close(self) -> None:
        """Wait for the acknowledgements, and end the threads."""
        end = time.monotonic() + _FLUSH_S
        with self._changed:
            while (self._finished or self._acknowledging) and (
                    remaining := end - time.monotonic()) > 0:
                self._changed.wait(remaining)
            self._is_closed = True
            self._held.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_FLUSH_S)
