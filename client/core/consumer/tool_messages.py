"""Messages that tools send to a member, which one of its handlers processes at once.

Such a message waits in a separate queue, so that every style of consumption handles it. It does
not affect offsets, and is not sent back.

Source: ConsumeMessageDirectlyResult, ConsumeMessageService.consumeMessageDirectly @5.3.3.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

from twistmq.client.base.errors import Busy, Closed
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Future, Scheduler
from twistmq.client.core.consumer.assigned_queues import AssignedQueue
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.consumer.window import ByteTotal, QueueWindow
from twistmq.protocol.codes import ResponseCode

__all__ = ["ToolMessages"]

T = TypeVar("T")

#: The maximum number of waiting messages that tools sent.
_COUNT_MAX: Final = 64


class ToolMessages(Generic[T]):
    """The messages that tools sent to one member.

    :param total: counts their bytes together with the bytes of the member's queues.
    """

    def __init__(
        self, tasks: Scheduler, closing: CloseSignal, delivery: Delivery[T], total: ByteTotal
    ) -> None:
        self._tasks = tasks
        self._closing = closing
        self._delivery = delivery
        self._total = total
        #: The number of messages that have no result yet.
        self._count = 0

    async def consume(self, message: ReceivedMessage[T], timeout_ms: float) -> bool:
        """Hand out a message; :returns: whether it was processed.

        :raises Busy: when too many such messages wait.
        :raises Closed: when the consumer closes.
        :raises TimeoutError: when there is no result in time; the message is then dropped.
        """
        if self._closing.is_set:
            raise Closed("the consumer is closed")
        if self._count >= _COUNT_MAX:
            raise Busy(ResponseCode.SYSTEM_BUSY,
                       f"{_COUNT_MAX} messages from tools are already waiting")
        now_ms = int(self._tasks.now_ms)
        window: QueueWindow[Any] = QueueWindow(message.queue, message.offset, now_ms, self._total)
        assigned: AssignedQueue[T] = AssignedQueue(
            message.queue, message.queue, Subscription(message.queue.topic), window,
            message.offset)
        outcome: Future[bool] = Future()
        assigned.outcome = outcome
        window.locked(now_ms)
        window.put([message])
        self._count += 1
        self._delivery.arrived(assigned)
        try:
            return await self._tasks.wait_for(timeout_ms, outcome, lambda: TimeoutError(
                f"the handler did not end in {timeout_ms:.0f} ms"))
        finally:
            self._count -= 1
            window.drop()
