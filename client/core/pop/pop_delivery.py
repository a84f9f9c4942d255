"""The delivery of popped messages: they are popped on demand, and handed out while hidden."""

from __future__ import annotations

import logging
from typing import Any, Final, Generic, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import Batch, PopOptions
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.pop.pop_loop import HOLD_MS, PopLoop
from twistmq.client.core.pop.popped_message import PoppedMessage

__all__ = ["PopDelivery"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: Waiting messages with less than this part of their invisible time left are not handed out.
_LEAST_PART: Final = 0.25


class PopDelivery(Generic[T]):
    """Hands out the popped messages of one member.

    :param group: the group's name at brokers.
    :param delivery: has the queues with messages, and the callers that wait.
    :param popping: pops messages while a caller waits.
    """

    def __init__(
        self, tasks: Scheduler, group: str, options: PopOptions, delivery: Delivery[T],
        popping: PopLoop[T],
    ) -> None:
        self._tasks = tasks
        self._group = group
        self._in_order = options.in_order
        self._delivery = delivery
        self._popping = popping

    def take(self, max_count: int) -> Batch[T] | None:
        """Hand out the next messages of one queue that are still hidden for long enough."""
        for assigned in list(self._delivery.ready_queues):
            waiting: list[Any] = assigned.window.waiting()
            stale = [message for message in waiting if self._is_stale(message)]
            if stale:
                log.info("group %s: %d messages of %s waited here for too long, and will be "
                         "delivered again", self._group, len(stale), assigned.public_queue)
            # A message of an ordered queue must not come before an earlier one.
            assigned.window.forget(waiting if stale and self._in_order else stale)
        batch = self._delivery.take(max_count)
        if not self._delivery.ready_queues:
            self._popping.wake()
        return batch

    def _is_stale(self, message: ReceivedMessage[T]) -> bool:
        if not isinstance(message, PoppedMessage):
            return False
        # The receipt has the broker's time, which can be any number.
        least_ms = message.requested_invisible_ms * _LEAST_PART
        return message.expires_ms - self._tasks.now_ms < min(least_ms, HOLD_MS)

    async def ready(self) -> None:
        """Wait until there may be messages to hand out; the sources are popped during the wait.

        :raises Closed: when the consumer stops or closes.
        """
        with self._popping.pop_until(float("inf")):
            await self._delivery.ready()
