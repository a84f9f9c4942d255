"""The lost messages of a member: their receipts expired while their handlers ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.assigned_queues import (
    AssignedQueue,
    AssignedQueues,
    PopOptions,
)
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.outcome_reports import OutcomeReports
from twistmq.client.core.pop.popped_message import PoppedMessage

__all__ = ["LostMessages", "release_kept"]

T = TypeVar("T")


class LostMessages(Generic[T]):
    """Marks messages of one member as lost: they are delivered again, perhaps elsewhere."""

    def __init__(
        self, options: PopOptions, queues: AssignedQueues[T], delivery: Delivery[T],
        reports: OutcomeReports,
    ) -> None:
        self._in_order = options.in_order
        self._queues = queues
        self._delivery = delivery
        self._reports = reports

    def mark_lost(self, assigned: AssignedQueue[T], messages: Sequence[PoppedMessage[T]]) -> None:
        """Mark running messages of one queue as lost.

        For ordered consumption, all later messages of their queue that this member has are
        delivered again after them.
        """
        lost: list[Any] = assigned.window.running() if self._in_order else list(messages)
        if lost:
            self._reports.report(assigned, lost, "time-out")
        if self._in_order:
            assigned.window.drop()
            if self._queues.get(assigned.queue) is assigned:
                del self._queues[assigned.queue]
        for each in lost:
            each.lost = True
            assigned.window.done(each.offset)
        self._delivery.finished(sum(not each.is_received for each in lost), assigned)


def release_kept(
    delivery: Delivery[T], assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]
) -> None:
    """Let messages of one queue wait again, except lost messages."""
    delivery.release(assigned, [message for message in messages if not message.lost])
