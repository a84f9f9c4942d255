"""Results of handlers: messages are finished, sent back, handed out again, or become dead letters.

Source: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from twistmq.client.base.errors import Busy, Closed
from twistmq.client.base.handlers import failure_outcome
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, MemberOptions
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.retries import DEAD_LEVEL, Retries
from twistmq.client.core.consumer.stats import MemberStats
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.consumer.window import QueueWindow
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.log_rate import LineRate, lines_left_out

__all__ = ["Results"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a message that cannot be sent back waits in this member, in ms.
LOCAL_RETRY_MS: Final = 5_000
#: The number of attempts of concurrent consumption after the first one.
#: Source: DefaultMQPushConsumer.maxReconsumeTimes.
MAX_ATTEMPTS: Final = 16
_INT32_MAX: Final = 2**31 - 1
#: The maximum number of waiting messages that tools sent.
_DIRECT_MAX: Final = 64
#: The longest interval at which messages that run for too long are searched, in ms.
_EXPIRE_MS: Final = 60_000
#: The number of lines about damaged messages in a minute; each names a message, which a person may
#: look for.
_DAMAGED_LINES: Final = 100
#: The delay level of a message whose handler takes too long. Source: cleanExpiredMsg.
_TIMEOUT_LEVEL: Final = 3


class Results(Delivery[T]):
    """The part of a member that handles the results of handlers.

    :param sender: sends a failed message again when its broker does not accept it back.
    """

    def __init__(self, client: ClientCore, options: MemberOptions, sender: Sender) -> None:
        super().__init__(client, options)
        self.sender = sender
        self.retries = Retries(client, self.group, sender, self.max_attempts)
        self.stats = MemberStats()
        #: The number of damaged messages that were left out.
        self.damaged_count = 0
        self._damaged_lines = LineRate(_DAMAGED_LINES)
        self._idle: Future[None] | None = None
        #: The waits of failed messages for their next attempt in this member.
        self._pauses: set[Future[None]] = set()
        #: The number of messages from tools that have no result yet.
        self._direct_count = 0

    def sent_back(self) -> None:
        """Called after a message was sent back: it returns through the group's retry topic."""

    def log_damaged(self, text: str, *arguments: object) -> None:
        """Log an error about a damaged message; above a rate, only the number of lines is kept."""
        left_out = self._damaged_lines.left_out(int(self.tasks.now_ms))
        if left_out is not None:
            log.error(text + "%s", *arguments, lines_left_out(left_out))

    @property
    def max_attempts(self) -> int:
        """The number of attempts after the first one before a message becomes a dead letter."""
        if self.options.max_attempts is not None:
            return self.options.max_attempts
        return _INT32_MAX if self.options.in_order else MAX_ATTEMPTS

    def succeed(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Handle messages of one queue that handlers processed."""
        self.report_outcome(assigned, messages, "success")
        if assigned.outcome is not None:
            assigned.outcome.set_result(True)
        assigned.window.done_all(messages)
        self._ended(len(messages), assigned)

    def release(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Let messages wait again that were handed out but not begun."""
        assigned.window.put_back(messages)
        self._ended(len(messages), assigned)

    def fail(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int = 0
    ) -> None:
        """Handle messages of one queue that handlers could not process.

        :param level: the delay level of the next attempt; 0: the broker chooses; -1: there is
            no other attempt.
        """
        if messages:
            self.report_outcome(assigned, messages, failure_outcome(messages[0]))
        if assigned.outcome is not None:
            assigned.outcome.set_result(False)
            assigned.window.done_all(messages)
            self._ended(len(messages), assigned)
        elif self.options.is_broadcast:
            for message in messages:
                log.warning("%r failed, and is dropped because the group broadcasts", message)
            assigned.window.done_all(messages)
            self._ended(len(messages), assigned)
        elif self.options.in_order:
            self._suspend(assigned, messages, level)
        else:
            for message in messages:
                self.tasks.spawn(self._send_back(assigned, message, level), "send back")

    def report_outcome(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], outcome: str
    ) -> None:
        """Report the result of messages of one handler to traces, statistics and interceptors.

        :param outcome: the outcome for interceptors, before the handler's time is checked.
        """
        now_ms = self.tasks.now_ms
        begin_ms = assigned.window.began_ms(messages[0].offset) if messages else None
        if begin_ms is not None:
            self.stats.handled(assigned.queue.topic, now_ms, len(messages), now_ms - begin_ms,
                               is_success=outcome == "success")
        if self.trace is None and not self.client.interceptors:
            return
        # Messages that were sent back after their time-out already have a result.
        messages = [each for each in messages if assigned.window.began_ms(each.offset) is not None]
        if not messages:
            return
        if (outcome in ("success", "retry") and begin_ms is not None
                and now_ms - begin_ms >= self.options.consume_timeout_ms):
            outcome = "time-out"
        if self.trace is not None:
            self.trace.consumed(assigned.public_queue, messages, outcome)
        if self.client.interceptors:
            self.client.interceptors.call(
                "after_consume", self.options.group, assigned.public_queue, messages, outcome)

    def _suspend(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int
    ) -> None:
        """Hand out failed messages of an ordered queue again later, or send dead ones away."""
        over = [message for message in messages
                if level == DEAD_LEVEL or message.attempt > self.max_attempts]
        again = [message for message in messages if message not in over]
        for message in again:
            message.earlier_attempts += 1
        assigned.in_order_until_ms = self.tasks.now_ms + min(max(self.options.suspend_ms, 10),
                                                             30_000)
        if over:
            self.tasks.spawn(self._bury(assigned, over, again), "send back in order")
        else:
            self.release(assigned, again)
            self.tasks.call_later(assigned.in_order_until_ms - self.tasks.now_ms, self.arrived,
                                  assigned)

    async def _bury(
        self, assigned: AssignedQueue[T], over: Sequence[ReceivedMessage[T]],
        again: Sequence[ReceivedMessage[T]],
    ) -> None:
        """Send the dead letters of an ordered queue away; the queue waits until this is done."""
        buried = []
        for message in over:
            while not assigned.window.is_dropped:
                if await self.retries.send_back(message, DEAD_LEVEL):
                    buried.append(message)
                    break
                if self.is_closing:
                    break
                await self._pause()
        assigned.window.done_all(buried)
        self.running -= len(buried)
        assigned.in_order_until_ms = 0.0
        self.release(assigned, [*(each for each in over if each not in buried), *again])

    async def _send_back(
        self, assigned: AssignedQueue[T], message: ReceivedMessage[T], level: int
    ) -> None:
        """Send a message back; if this fails, hand it out again in this member."""
        window = assigned.window
        # The message may also have timed out: then it was sent back already.
        if window.is_dropped or window.began_ms(message.offset) is None:
            self.release(assigned, [message])
            return
        if await self.retries.send_back(message, level):
            self.sent_back()
            window.done(message.offset)
            self._ended(1, assigned)
            return
        message.earlier_attempts += 1
        await self._pause()
        self.release(assigned, [message])

    async def _pause(self) -> None:
        """Wait before the next attempt of a message that could not be sent back.

        A close ends the wait: the message is not finished, so the group gets it again.
        """
        if self.is_closing:
            return
        pause: Future[None] = Future()
        self._pauses.add(pause)
        timer = self.tasks.call_later(LOCAL_RETRY_MS, pause.set_result, None)
        try:
            await pause
        finally:
            timer.cancel()
            self._pauses.discard(pause)

    def _end_pauses(self) -> None:
        """End the waits of failed messages, because the member closes."""
        for pause in list(self._pauses):
            pause.set_result(None)

    def _ended(self, count: int, assigned: AssignedQueue[T]) -> None:
        self.running -= count
        self.arrived(assigned)
        if self._idle is not None and self.running <= 0:
            self._idle.set_result(None)

    async def consume_now(self, message: ReceivedMessage[T], timeout_ms: float) -> bool:
        """Hand out a message that a tool sent; :returns: whether it was processed.

        The message does not affect offsets, and is not sent back.

        :raises Busy: when too many such messages wait.
        :raises Closed: when the consumer closes.
        :raises TimeoutError: when there is no result in time; the message is then dropped.
        """
        if self.is_closing:
            raise Closed("the consumer is closed")
        if self._direct_count >= _DIRECT_MAX:
            raise Busy(ResponseCode.SYSTEM_BUSY,
                       f"{_DIRECT_MAX} messages from tools are already waiting")
        window: QueueWindow[Any] = QueueWindow(
            message.queue, message.offset, int(self.tasks.now_ms), self.total)
        assigned = AssignedQueue(message.queue, message.queue, Subscription(message.queue.topic),
                                 window,
                    message.offset)
        outcome: Future[bool] = Future()
        assigned.outcome = outcome
        window.locked(int(self.tasks.now_ms))
        window.put([message])
        self._direct_count += 1
        self.arrived(assigned)
        try:
            return await self.tasks.wait_for(timeout_ms, outcome, lambda: TimeoutError(
                f"the handler did not end in {timeout_ms:.0f} ms"))
        finally:
            self._direct_count -= 1
            window.drop()

    async def _expire_always(self) -> None:
        """Send back messages whose handlers take too long; their late results do not count."""
        loop = Loop(f"the time-out of the handlers of group {self.group}", None)
        while True:
            await self.tasks.sleep(min(self.options.consume_timeout_ms, _EXPIRE_MS))
            if not self.options.in_order and not self.options.is_broadcast:
                await loop.turn(self._expire())

    async def _expire(self) -> None:
        timeout_ms = self.options.consume_timeout_ms
        for assigned in list(self.assigned_queues.values()):
            for message in assigned.window.expired(int(self.tasks.now_ms), int(timeout_ms)):
                log.warning("the handler of %r takes longer than %d ms, so it is sent back",
                            message, timeout_ms)
                if await self.retries.send_back(message, _TIMEOUT_LEVEL):
                    # A result that came in the meantime was reported already.
                    self.report_outcome(assigned, [message], "time-out")
                    assigned.window.done(message.offset)

    def _stop_waiting(self) -> None:
        """Stop waiting for handlers."""
        if self._idle is not None:
            self._idle.set_result(None)

    async def _wait_for_handlers(self, timeout_ms: float) -> None:
        if self.running <= 0:
            return
        self._idle = Future()
        try:
            await self.tasks.wait_for(timeout_ms, self._idle, lambda: TimeoutError())
        except TimeoutError:
            unfinished = [message for assigned in self.assigned_queues.values()
                          for message in assigned.window.expired(int(self.tasks.now_ms), -1, 16)]
            log.warning("%d handlers did not end in %d ms; their messages will be delivered again: "
                        "%s", self.running, timeout_ms, ", ".join(map(repr, unfinished)))
