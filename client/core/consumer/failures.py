"""Failed messages: what becomes of a message that its handler could not process.

    the group          the message
    broadcasts         is dropped
    has no order       is sent back to its broker, or tried again in this member
    keeps an order     is handed out again after a wait, and becomes a dead letter at last

Source: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, MemberOptions
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.retries import DEAD_LEVEL, Retries

__all__ = ["BroadcastFailures", "ConcurrentFailures", "OrderedDeadLetters", "OrderedFailures",
           "SeparateFailures"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a message that cannot be sent back waits in this member, in ms.
LOCAL_RETRY_MS: Final = 5_000
#: The shortest and the longest wait of an ordered queue after a failure, in ms.
_SUSPEND_MIN_MS: Final = 10
_SUSPEND_MAX_MS: Final = 30_000


class BroadcastFailures(Generic[T]):
    """The failed messages of a group that broadcasts: they are dropped."""

    def __init__(self, delivery: Delivery[T]) -> None:
        self._delivery = delivery

    def handle(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int
    ) -> None:
        """See ``Failures``."""
        for message in messages:
            log.warning("%r failed, and is dropped because the group broadcasts", message)
        assigned.window.done_all(messages)
        self._delivery.finished(len(messages), assigned)


class SeparateFailures(Generic[T]):
    """The failed messages of a group without an order: each is handled in a task of its own.

    :param handle_one: a coroutine function that gets a queue, a message of it, and a delay level.
    :param task_name: the name of the tasks, for the log.
    """

    def __init__(
        self, tasks: Scheduler,
        handle_one: Callable[
            [AssignedQueue[T], ReceivedMessage[T], int], Coroutine[Any, Any, None]],
        task_name: str,
    ) -> None:
        self._tasks = tasks
        self._handle_one = handle_one
        self._task_name = task_name

    def handle(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int
    ) -> None:
        """See ``Failures``."""
        for message in messages:
            self._tasks.spawn(self._handle_one(assigned, message, level), self._task_name)


class ConcurrentFailures(SeparateFailures[T]):
    """The failed messages of a group without an order that are pulled: they are sent back.

    :param on_sent_back: called after a message was sent back: it returns through the group's
        retry topic.
    """

    def __init__(
        self, tasks: Scheduler, closing: CloseSignal, delivery: Delivery[T], retries: Retries,
        on_sent_back: Callable[[], object],
    ) -> None:
        super().__init__(tasks, self._send_back, "send back")
        self._closing = closing
        self._delivery = delivery
        self._retries = retries
        self._on_sent_back = on_sent_back

    async def _send_back(
        self, assigned: AssignedQueue[T], message: ReceivedMessage[T], level: int
    ) -> None:
        """Send a message back; if this fails, hand it out again in this member.

        A close ends the wait for the next attempt: the message is not finished, so the group gets
        it again.
        """
        window = assigned.window
        # The message may also have timed out: then it was sent back already.
        if window.is_dropped or window.began_ms(message.offset) is None:
            self._delivery.release(assigned, [message])
            return
        if await self._retries.send_back(message, level):
            self._on_sent_back()
            window.done(message.offset)
            self._delivery.finished(1, assigned)
            return
        message.earlier_attempts += 1
        await self._closing.sleep(LOCAL_RETRY_MS)
        self._delivery.release(assigned, [message])


class OrderedFailures(Generic[T]):
    """The failed messages of a group that keeps an order: their queue waits for them.

    :param max_attempts: the number of further attempts before a failed message is a dead letter.
    :param bury: sends dead letters of a queue away, and releases them and the messages after them
        as far as they are tried again.
    :param release: lets messages wait again.
    """

    def __init__(
        self, tasks: Scheduler, options: MemberOptions, delivery: Delivery[T], max_attempts: int,
        bury: Callable[[AssignedQueue[T], Sequence[ReceivedMessage[T]],
                        Sequence[ReceivedMessage[T]]], Coroutine[Any, Any, None]],
        release: Callable[[AssignedQueue[T], Sequence[ReceivedMessage[T]]], None],
    ) -> None:
        self._tasks = tasks
        self._suspend_ms = min(max(options.suspend_ms, _SUSPEND_MIN_MS), _SUSPEND_MAX_MS)
        self._delivery = delivery
        self._max_attempts = max_attempts
        self._bury = bury
        self._release = release

    def handle(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int
    ) -> None:
        """See ``Failures``."""
        over = [message for message in messages
                if level == DEAD_LEVEL or message.attempt > self._max_attempts]
        again = [message for message in messages if message not in over]
        for message in again:
            message.earlier_attempts += 1
        assigned.in_order_until_ms = self._tasks.now_ms + self._suspend_ms
        if over:
            self._tasks.spawn(self._bury(assigned, over, again), "send back in order")
        else:
            self._release(assigned, again)
            self._tasks.call_later(assigned.in_order_until_ms - self._tasks.now_ms,
                                   self._delivery.arrived, assigned)


class OrderedDeadLetters(Generic[T]):
    """The dead letters of ordered queues that are pulled: a queue waits until they are stored."""

    def __init__(
        self, closing: CloseSignal, delivery: Delivery[T], retries: Retries
    ) -> None:
        self._closing = closing
        self._delivery = delivery
        self._retries = retries

    async def bury(
        self, assigned: AssignedQueue[T], over: Sequence[ReceivedMessage[T]],
        again: Sequence[ReceivedMessage[T]],
    ) -> None:
        """Send dead letters away until their broker accepts them.

        :param over: the dead letters.
        :param again: the messages of the same handler that are tried again.
        """
        buried = []
        for message in over:
            while not assigned.window.is_dropped:
                if await self._retries.send_back(message, DEAD_LEVEL):
                    buried.append(message)
                    break
                if self._closing.is_set:
                    break
                await self._closing.sleep(LOCAL_RETRY_MS)
        assigned.window.done_all(buried)
        self._delivery.running -= len(buried)
        assigned.in_order_until_ms = 0.0
        self._delivery.release(
            assigned, [*(each for each in over if each not in buried), *again])
