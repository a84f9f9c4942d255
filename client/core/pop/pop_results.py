"""Results of handlers of popped messages: acknowledgements, further attempts, dead letters.

    succeeded             acknowledged                              acknowledger.py
    failed                hidden until the next attempt             retries.py
    failed in order       waits here until the next attempt         core/consumer/failures.py
    failed too often      sent to the dead letters, and acknowledged
    lost                  only acknowledged: the result comes late  lost_messages.py

Source: ConsumeMessagePopConcurrentlyService @5.3.3; ReceiveMessageResponseStreamWriter of its
proxy, for the dead letters.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import AssignedQueue
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.failures import SeparateFailures
from twistmq.client.core.consumer.results import Results
from twistmq.client.core.consumer.retries import DEAD_LEVEL
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.lost_messages import release_kept
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.client.core.pop.retries import PopRetries, delay_ms
from twistmq.protocol.errors import BrokerError

__all__ = ["PopDeadLetters", "PopFailures", "PopResults"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")


class PopResults(Generic[T]):
    """Handles the results that handlers of one member have.

    :param results: handles results, and has the part that handles failures.
    """

    def __init__(
        self, delivery: Delivery[T], results: Results[T], acks: Acknowledger
    ) -> None:
        self._delivery = delivery
        self._results = results
        self._acks = acks

    def succeed(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Acknowledge messages of one queue that handlers processed.

        Lost messages are acknowledged too, if their receipts are still valid.
        """
        mine = [message for message in messages if not message.lost]
        is_popped = assigned.outcome is None
        if mine:
            self._results.succeed(assigned, mine)
        if is_popped:
            self._acknowledge(messages)

    def _acknowledge(self, messages: Sequence[ReceivedMessage[T]]) -> None:
        for message in messages:
            if isinstance(message, PoppedMessage):
                self._acks.add(message).when_done(lambda done, message=message: _log_late(  # type: ignore[misc]
                    message, done.error))

    def release(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Let messages wait again that were handed out but not begun, except lost messages."""
        release_kept(self._delivery, assigned, messages)

    def fail(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int = 0
    ) -> None:
        """Handle messages of one queue that handlers could not process, except lost messages.

        :param level: the delay level of the next attempt; 0: chosen by the attempts; -1: there is
            no other attempt.
        """
        messages = [message for message in messages if not message.lost]
        if messages:
            self._results.fail(assigned, messages, level)


class PopFailures(SeparateFailures[T]):
    """The failed messages of a group without an order: they are hidden until the next attempt.

    :param max_attempts: the number of further attempts before a failed message is a dead letter.
    """

    def __init__(
        self, tasks: Scheduler, delivery: Delivery[T], acks: Acknowledger, retries: PopRetries,
        max_attempts: int,
    ) -> None:
        super().__init__(tasks, self._come_again, "retry")
        self._delivery = delivery
        self._acks = acks
        self._retries = retries
        self._max_attempts = max_attempts

    async def _come_again(
        self, assigned: AssignedQueue[T], message: ReceivedMessage[T], level: int
    ) -> None:
        assert isinstance(message, PoppedMessage)
        try:
            if level == DEAD_LEVEL or message.attempt > self._max_attempts:
                await self._retries.bury(message)
            else:
                await self._acks.change(message, delay_ms(message, level))
        except BrokerError as error:
            log.warning("%r will be delivered again after its invisible time, not after the wait "
                        "for its next attempt: %s", message, error)
        if assigned.window.done(message.offset):
            self._delivery.finished(1, assigned)


class PopDeadLetters(Generic[T]):
    """The dead letters of ordered queues that are popped."""

    def __init__(self, tasks: Scheduler, delivery: Delivery[T], retries: PopRetries) -> None:
        self._tasks = tasks
        self._delivery = delivery
        self._retries = retries

    async def bury(
        self, assigned: AssignedQueue[T], over: Sequence[ReceivedMessage[T]],
        again: Sequence[ReceivedMessage[T]],
    ) -> None:
        """Send dead letters away; if this fails, they are tried again.

        :param over: the dead letters.
        :param again: the messages of the same handler that are tried again.
        """
        remaining = list(again)
        for message in over:
            assert isinstance(message, PoppedMessage)
            try:
                await self._retries.bury(message)
                self._delivery.running -= assigned.window.done(message.offset)
            except BrokerError as error:
                log.warning("%r is tried again, not sent to the dead letters: %s", message, error)
                remaining.append(message)
        release_kept(self._delivery, assigned, remaining)
        self._tasks.call_later(max(assigned.in_order_until_ms - self._tasks.now_ms, 0),
                               self._delivery.arrived, assigned)


def _log_late(message: PoppedMessage[Any], error: BaseException | None) -> None:
    if error is not None:
        log.warning("%r was not acknowledged, and may be delivered again: %s", message, error)
