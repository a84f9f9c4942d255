"""The messages that a process holds, hidden from other workers until they are finished.

One thread extends the invisible time of each message when a third of it is over, so that a task may
take any time. Another thread acknowledges finished messages in batches, so that the call which
finishes a message does not wait for the broker.
"""

from __future__ import annotations

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

__all__ = ["HeldMessage", "Holder"]

log = logging.getLogger("twistmq.integrations")

#: The part of the invisible time after which it is extended.
_EXTEND_AFTER: Final = 1 / 3
#: The delay before a request that failed is sent again, seconds.
_AGAIN_S: Final = 1.0
#: How long a close waits for the acknowledgements, seconds.
_FLUSH_S: Final = 5.0


class HeldMessage:
    """One message that was received.

    :param queue: the name of the queue in the task library.
    :param consumer: the member that received the message; None: the message needs no
        acknowledgement.
    """

    __slots__ = ("consumer", "extend_at", "message", "queue")

    def __init__(
        self, queue: str, message: ReceivedMessage[Any], consumer: PopConsumer[Any] | None
    ) -> None:
        self.queue = queue
        self.message = message
        self.consumer = consumer
        #: When its invisible time is extended, by the monotonic clock.
        self.extend_at = 0.0


class Holder:
    """The messages that one process, or one connection, keeps hidden.

    :param invisible_s: the invisible time of a message, seconds.
    """

    def __init__(self, invisible_s: float) -> None:
        self._invisible_s = invisible_s
        self._held: set[HeldMessage] = set()
        self._finished: deque[HeldMessage] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [threading.Thread(target=target, name=f"twistmq-{name}", daemon=True)
                         for name, target in (("extensions", self._extend_always),
                                              ("acknowledgements", self._acknowledge_always))]
        self._acknowledging = 0
        for thread in self._threads:
            thread.start()

    def hold(self, held: HeldMessage) -> None:
        """Keep a message hidden until it is finished."""
        held.extend_at = time.monotonic() + self._invisible_s * _EXTEND_AFTER
        with self._changed:
            self._held.add(held)

    def forget(self, held: HeldMessage) -> None:
        """Stop extending a message, which becomes visible when its invisible time is over."""
        with self._changed:
            self._held.discard(held)

    def acknowledge(self, held: HeldMessage) -> None:
        """Finish a message; returns before the broker has answered."""
        with self._changed:
            self._held.discard(held)
            if not self._is_closed:
                self._finished.append(held)
                self._changed.notify_all()
            elif held.consumer is not None:
                log.warning("a message of queue %s was acknowledged after the connection closed, "
                            "and is delivered again", held.queue)

    def give_back(self, held: HeldMessage) -> None:
        """Make a message visible to all workers again."""
        self._decide(held, "given back", lambda consumer: consumer.retry(held.message, delay_s=0))

    def bury(self, held: HeldMessage) -> None:
        """Send a message to the dead letters of its queue."""
        self._decide(held, "sent to the dead letters", lambda consumer: consumer.bury(held.message))

    def _decide(
        self, held: HeldMessage, what: str, decide: Callable[[PopConsumer[Any]], object]
    ) -> None:
        self.forget(held)
        if held.consumer is None:
            return
        try:
            decide(held.consumer)
        except (Closed, ForkedError):
            # The consumer gave the message back when it was closed.
            pass
        except ClientError as error:
            log.warning("a message of queue %s is not %s, and is delivered again after its "
                        "invisible time: %s", held.queue, what, error)

    # --- the two threads

    def _extend_always(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                self._changed.wait(min(self._invisible_s * _EXTEND_AFTER / 4, _AGAIN_S))
                now = time.monotonic()
                due = [each for each in self._held if each.extend_at <= now]
            for held in due:
                self._extend(held)

    def _extend(self, held: HeldMessage) -> None:
        consumer = held.consumer
        if consumer is None or held not in self._held:
            return
        held.extend_at = time.monotonic() + self._invisible_s * _EXTEND_AFTER
        try:
            consumer.extend(held.message, self._invisible_s)
        except ReceiptExpired:
            with self._changed:
                was_held = held in self._held
                self._held.discard(held)
            if was_held:
                log.warning("a message of queue %s could not be kept hidden, so another worker "
                            "may run it as well", held.queue)
        except (Closed, ForkedError):
            self.forget(held)
        except ClientError as error:
            log.warning("a message of queue %s is not extended yet: %s", held.queue, error)
            held.extend_at = time.monotonic() + _AGAIN_S

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
            by_consumer: dict[PopConsumer[Any], list[HeldMessage]] = {}
            for held in batch:
                if held.consumer is not None:
                    by_consumer.setdefault(held.consumer, []).append(held)
            for consumer, several in by_consumer.items():
                self._acknowledge(consumer, several)

    def _acknowledge(self, consumer: PopConsumer[Any], several: list[HeldMessage]) -> None:
        """Acknowledge messages of one consumer; this is repeated if the broker does not answer."""
        try:
            consumer.acknowledge([each.message for each in several])
        except ReceiptExpired:
            log.warning("up to %d messages of queue %s were acknowledged too late, and are "
                        "delivered again", len(several), several[0].queue)
        except (Closed, ForkedError):
            log.warning("%d messages of queue %s were not acknowledged before the connection "
                        "closed", len(several), several[0].queue)
        except RequestRefused as error:
            log.warning("the broker refuses an acknowledgement: %s", error)
        except ClientError as error:
            log.warning("the broker does not accept acknowledgements yet: %s", error)
            time.sleep(_AGAIN_S)
            with self._changed:
                if not self._is_closed:
                    self._finished.extend(several)

    def flush(self) -> None:
        """Wait until the broker has the acknowledgements, or for a few seconds."""
        end = time.monotonic() + _FLUSH_S
        with self._changed:
            while (self._finished or self._acknowledging) and (
                    remaining := end - time.monotonic()) > 0:
                self._changed.wait(remaining)

    def close(self) -> None:
        """Wait for the acknowledgements, and end the threads."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._held.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_FLUSH_S)
