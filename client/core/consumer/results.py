"""Results of handlers: messages are finished, or their failures are handled.

Source: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from twistmq.client.base.handlers import failure_outcome
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.assigned_queues import AssignedQueue
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.outcome_reports import OutcomeReports

__all__ = ["Failures", "Results"]

T = TypeVar("T")


class Failures(Protocol[T]):
    """Decides what becomes of messages that handlers could not process."""

    def handle(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int
    ) -> None:
        """Handle failed messages of one queue.

        :param level: the delay level of the next attempt; 0: it is not given; -1: there is no
            other attempt.
        """


class Results(Generic[T]):
    """Handles the results that handlers, iterations and polls of one member have.

    :param failures: handles the failed messages, except messages that a tool sent.
    """

    def __init__(
        self, delivery: Delivery[T], reports: OutcomeReports, failures: Failures[T]
    ) -> None:
        self._delivery = delivery
        self._reports = reports
        self._failures = failures

    def succeed(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Handle messages of one queue that handlers processed."""
        self._reports.report(assigned, messages, "success")
        if assigned.outcome is not None:
            assigned.outcome.set_result(True)
        assigned.window.done_all(messages)
        self._delivery.finished(len(messages), assigned)

    def release(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Let messages wait again that were handed out but not begun."""
        self._delivery.release(assigned, messages)

    def fail(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int = 0
    ) -> None:
        """Handle messages of one queue that handlers could not process.

        :param level: the delay level of the next attempt; 0: the broker chooses; -1: there is
            no other attempt.
        """
        if messages:
            self._reports.report(assigned, messages, failure_outcome(messages[0]))
        if assigned.outcome is not None:
            assigned.outcome.set_result(False)
            assigned.window.done_all(messages)
            self._delivery.finished(len(messages), assigned)
        else:
            self._failures.handle(assigned, messages, level)
