"""Extends the invisible time of popped messages until their handlers end.

A message is hidden for the whole invisible time once more when half of the time has passed. If a
handler takes longer than ``consume_timeout_ms``, its message is delivered again. The invisible time
of a message that the program received is never extended here, only by the program.

While a handler has messages of an ordered queue, the messages after them are hidden longer too.

Source: none in Apache's client; its proxy renews the receipts of its clients in the same way
(ReceiptHandleProcessor @5.3.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from twistmq.client.base.errors import ReceiptExpired, RequestRefused
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import (
    AssignedQueue,
    AssignedQueues,
    PopOptions,
)
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.protocol.errors import BrokerError

__all__ = ["InvisibilityExtender"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")


class InvisibilityExtender(Generic[T]):
    """Extends the invisible times of one member's messages.

    :param lose: called with messages whose receipts are no longer valid.
    """

    def __init__(
        self, tasks: Scheduler, options: PopOptions, queues: AssignedQueues[T], acks: Acknowledger,
        lose: Callable[[AssignedQueue[T], Sequence[PoppedMessage[T]]], None],
    ) -> None:
        self._tasks = tasks
        self._options = options
        self._queues = queues
        self._acks = acks
        self._lose = lose

    async def watch_always(self) -> None:
        """Watch the messages that were handed out, again and again."""
        while True:
            await self._tasks.sleep(min(max(self._options.invisible_ms / 8, 50), 1000))
            for assigned in list(self._queues.values()):
                running = assigned.window.running()
                for message in running:
                    self._watch(assigned, message)
                if self._options.in_order and (
                        running or assigned.in_order_until_ms > self._tasks.now_ms):
                    for message in assigned.window.waiting():
                        self._prolong(assigned, message)

    def _watch(self, assigned: AssignedQueue[T], message: ReceivedMessage[T]) -> None:
        """Check a message that was handed out."""
        if not isinstance(message, PoppedMessage) or message.lost:
            return
        if message.expires_ms <= self._tasks.now_ms:
            log.warning("%r is no longer hidden, and will be delivered again", message)
            self._lose(assigned, [message])
        elif message.is_received:
            return
        elif self._is_late(assigned, message):
            log.warning("the handler of %r takes longer than %d ms, so it will be delivered again",
                        message, self._options.consume_timeout_ms)
            self._lose(assigned, [message])
        else:
            self._prolong(assigned, message)

    def _is_late(self, assigned: AssignedQueue[T], message: PoppedMessage[T]) -> bool:
        begin_ms = assigned.window.began_ms(message.offset)
        return begin_ms is not None and (
            self._tasks.now_ms - begin_ms > self._options.consume_timeout_ms)

    def _prolong(self, assigned: AssignedQueue[T], message: ReceivedMessage[T]) -> None:
        """Hide a message for longer when half of its time has passed."""
        if not isinstance(message, PoppedMessage) or message.changing is not None:
            return
        if message.expires_ms - self._tasks.now_ms < self._options.invisible_ms / 2:
            self._tasks.spawn(self._hide_longer(assigned, message), "hide a message for longer")

    async def _hide_longer(self, assigned: AssignedQueue[T], message: PoppedMessage[T]) -> None:
        try:
            await self._acks.change(message, self._options.invisible_ms)
        except (RequestRefused, ReceiptExpired) as error:
            if not message.lost and not error.retriable:
                log.warning("%r will be delivered again while it is handled: %s", message, error)
                self._lose(assigned, [message])
        except BrokerError as error:
            log.warning("the invisible time of %r could not be extended: %s", message, error)
