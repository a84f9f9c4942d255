"""Results of handlers: messages are finished, sent back, handed out again, or dead.

Source: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from twistmq.broker.codes import ResponseCode
from twistmq.broker.observe.log_rate import LineRate
from twistmq.client.core.client import ClientCore
from twistmq.client.core.handing_out import HandingOut
from twistmq.client.core.held import Held, MemberOptions
from twistmq.client.core.loops import Loop
from twistmq.client.core.retries import DEAD_LEVEL, Retries
from twistmq.client.core.sending import Sender
from twistmq.client.core.stats import MemberStats
from twistmq.client.core.subscriptions import Subscription
from twistmq.client.core.tasks import Future
from twistmq.client.core.window import QueueWindow
from twistmq.client.errors import Busy, Closed
from twistmq.client.handlers import failure_outcome
from twistmq.client.messages import ReceivedMessage

__all__ = ["Results"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a message waits here when it cannot be sent back, ms.
LOCAL_RETRY_MS: Final = 5_000
#: Attempts of concurrent consumption, after the first one.
#: Source: DefaultMQPushConsumer.maxReconsumeTimes.
MAX_ATTEMPTS: Final = 16
_INT32_MAX: Final = 2**31 - 1
#: Messages of tools that may wait at once.
_DIRECT_MAX: Final = 64
#: How often messages that run for too long are looked for, ms at most.
_EXPIRE_MS: Final = 60_000
#: Lines about damaged messages of a minute: each names a message that a person may look for.
_DAMAGED_LINES: Final = 100
#: The delay level of a message whose handler takes too long. Source: cleanExpiredMsg.
_TIMEOUT_LEVEL: Final = 3


class Results(HandingOut[T]):
    """The part of a member that takes the results of handlers.

    :param sender: sends a failed message again when its broker does not take it back.
    """

    def __init__(self, client: ClientCore, options: MemberOptions, sender: Sender) -> None:
        super().__init__(client, options)
        self.sender = sender
        self.retries = Retries(client, self.group, sender, self.max_attempts)
        self.stats = MemberStats()
        #: Damaged messages that were left out.
        self.damaged_count = 0
        self._damaged_lines = LineRate(_DAMAGED_LINES)
        self._idle: Future[None] | None = None
        #: The waits of failed messages for their next attempt here.
        self._pauses: set[Future[None]] = set()
        #: Messages of tools that have no result yet.
        self._direct_count = 0

    def sent_back(self) -> None:
        """A message was sent back: it comes again by the group's retry topic."""

    def log_damaged(self, text: str, *arguments: object) -> None:
        """Log an error about a damaged message: many a minute, then only their number."""
        left_out = self._damaged_lines.left_out(int(self.tasks.now_ms))
        if left_out is not None:
            more = f" ({left_out} more since the last line)" if left_out else ""
            log.error(text + "%s", *arguments, more)

    @property
    def max_attempts(self) -> int:
        """After so many attempts, the first one not counted, a message is dead."""
        if self.options.max_attempts is not None:
            return self.options.max_attempts
        return _INT32_MAX if self.options.in_order else MAX_ATTEMPTS

    def succeed(self, held: Held[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Handlers finished these messages of one queue."""
        self.tell(held, messages, "success")
        if held.outcome is not None:
            held.outcome.set_result(True)
        held.window.done_all(messages)
        self._ended(len(messages), held)

    def release(self, held: Held[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """These were handed out and not begun: they wait again."""
        held.window.put_back(messages)
        self._ended(len(messages), held)

    def fail(
        self, held: Held[T], messages: Sequence[ReceivedMessage[T]], level: int = 0
    ) -> None:
        """Handlers could not process these messages of one queue.

        :param level: the delay level of the next attempt; 0: the broker chooses; -1: no more.
        """
        if messages:
            self.tell(held, messages, failure_outcome(messages[0]))
        if held.outcome is not None:
            held.outcome.set_result(False)
            held.window.done_all(messages)
            self._ended(len(messages), held)
        elif self.options.is_broadcast:
            for message in messages:
                log.warning("%r failed, and is dropped: the group broadcasts", message)
            held.window.done_all(messages)
            self._ended(len(messages), held)
        elif self.options.in_order:
            self._suspend(held, messages, level)
        else:
            for message in messages:
                self.tasks.spawn(self._send_back(held, message, level), "send back")

    def tell(
        self, held: Held[T], messages: Sequence[ReceivedMessage[T]], outcome: str
    ) -> None:
        """Tell traces, statistics and interceptors the result of messages of one handler.

        :param outcome: as interceptors get it, but for the time that the handler took.
        """
        now_ms = self.tasks.now_ms
        begin_ms = held.window.began_ms(messages[0].offset) if messages else None
        if begin_ms is not None:
            self.stats.handled(held.queue.topic, now_ms, len(messages), now_ms - begin_ms,
                               is_success=outcome == "success")
        if self.trace is None and not self.client.interceptors:
            return
        # Those that were sent back when their time was over have their result already.
        messages = [each for each in messages if held.window.began_ms(each.offset) is not None]
        if not messages:
            return
        if (outcome in ("success", "retry") and begin_ms is not None
                and now_ms - begin_ms >= self.options.consume_timeout_ms):
            outcome = "time-out"
        if self.trace is not None:
            self.trace.consumed(held.named, messages, outcome)
        if self.client.interceptors:
            self.client.interceptors.call(
                "after_consume", self.options.group, held.named, messages, outcome)

    def _suspend(
        self, held: Held[T], messages: Sequence[ReceivedMessage[T]], level: int
    ) -> None:
        """Hand out failed messages of an order again after a while, or send away the dead."""
        over = [message for message in messages
                if level == DEAD_LEVEL or message.attempt > self.max_attempts]
        again = [message for message in messages if message not in over]
        for message in again:
            message.earlier_attempts += 1
        held.in_order_until_ms = self.tasks.now_ms + min(max(self.options.suspend_ms, 10), 30_000)
        if over:
            self.tasks.spawn(self._bury(held, over, again), "send back in order")
        else:
            self.release(held, again)
            self.tasks.later(held.in_order_until_ms - self.tasks.now_ms, self.arrived, held)

    async def _bury(
        self, held: Held[T], over: Sequence[ReceivedMessage[T]],
        again: Sequence[ReceivedMessage[T]],
    ) -> None:
        """Send the dead messages of an order away; the queue waits for it."""
        buried = []
        for message in over:
            while not held.window.is_dropped:
                if await self.retries.send_back(message, DEAD_LEVEL):
                    buried.append(message)
                    break
                if self.is_closing:
                    break
                await self._pause()
        held.window.done_all(buried)
        self.running -= len(buried)
        held.in_order_until_ms = 0.0
        self.release(held, [*(each for each in over if each not in buried), *again])

    async def _send_back(self, held: Held[T], message: ReceivedMessage[T], level: int) -> None:
        """Send a message back; without success it is handed out again here."""
        window = held.window
        # Also when its time was over: then it was sent back already.
        if window.is_dropped or window.began_ms(message.offset) is None:
            self.release(held, [message])
            return
        if await self.retries.send_back(message, level):
            self.sent_back()
            window.done(message.offset)
            self._ended(1, held)
            return
        message.earlier_attempts += 1
        await self._pause()
        self.release(held, [message])

    async def _pause(self) -> None:
        """Wait before the next attempt of a message that could not be sent back.

        A close ends the wait: the message is not finished, so the group gets it again.
        """
        if self.is_closing:
            return
        pause: Future[None] = Future()
        self._pauses.add(pause)
        timer = self.tasks.later(LOCAL_RETRY_MS, pause.set_result, None)
        try:
            await pause
        finally:
            timer.cancel()
            self._pauses.discard(pause)

    def _end_pauses(self) -> None:
        """Let failed messages wait no longer, because the member closes."""
        for pause in list(self._pauses):
            pause.set_result(None)

    def _ended(self, count: int, held: Held[T]) -> None:
        self.running -= count
        self.arrived(held)
        if self._idle is not None and self.running <= 0:
            self._idle.set_result(None)

    async def consume_now(self, message: ReceivedMessage[T], timeout_ms: float) -> bool:
        """Hand out a message that a tool sent; :returns: whether it was processed.

        It counts for no offset, and is not sent back.

        :raises Busy: when too many of them wait.
        :raises Closed: when the consumer closes.
        :raises TimeoutError: when there is no result in time; it is handed out no more.
        """
        if self.is_closing:
            raise Closed("the consumer is closed")
        if self._direct_count >= _DIRECT_MAX:
            raise Busy(ResponseCode.SYSTEM_BUSY, f"{_DIRECT_MAX} messages of tools wait already")
        window: QueueWindow[Any] = QueueWindow(
            message.queue, message.offset, int(self.tasks.now_ms), self.total)
        held = Held(message.queue, message.queue, Subscription(message.queue.topic), window,
                    message.offset)
        outcome: Future[bool] = Future()
        held.outcome = outcome
        window.locked(int(self.tasks.now_ms))
        window.put([message])
        self._direct_count += 1
        self.arrived(held)
        try:
            return await self.tasks.within(timeout_ms, outcome, lambda: TimeoutError(
                f"the handler did not end in {timeout_ms:.0f} ms"))
        finally:
            self._direct_count -= 1
            window.drop()

    async def _expire_always(self) -> None:
        """Send back the messages whose handlers take too long; their late results do not count."""
        loop = Loop(f"the time-out of the handlers of group {self.group}", None)
        while True:
            await self.tasks.sleep(min(self.options.consume_timeout_ms, _EXPIRE_MS))
            if not self.options.in_order and not self.options.is_broadcast:
                await loop.turn(self._expire())

    async def _expire(self) -> None:
        timeout_ms = self.options.consume_timeout_ms
        for held in list(self.held.values()):
            for message in held.window.expired(int(self.tasks.now_ms), int(timeout_ms)):
                log.warning("the handler of %r takes longer than %d ms, and it is sent back",
                            message, timeout_ms)
                if await self.retries.send_back(message, _TIMEOUT_LEVEL):
                    # A result that came meanwhile is told already.
                    self.tell(held, [message], "time-out")
                    held.window.done(message.offset)

    def _stop_waiting(self) -> None:
        """Wait for handlers no longer."""
        if self._idle is not None:
            self._idle.set_result(None)

    async def _wait_for_handlers(self, timeout_ms: float) -> None:
        if self.running <= 0:
            return
        self._idle = Future()
        try:
            await self.tasks.within(timeout_ms, self._idle, lambda: TimeoutError())
        except TimeoutError:
            left = [message for held in self.held.values()
                    for message in held.window.expired(int(self.tasks.now_ms), -1, 16)]
            log.warning("%d handlers did not end in %d ms; their messages come again: %s",
                        self.running, timeout_ms, ", ".join(map(repr, left)))
