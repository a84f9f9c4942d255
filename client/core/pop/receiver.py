"""Receptions: a program requests messages and decides about each of them itself.

    acknowledge    the message is finished
    extend         the message is hidden for longer
    retry          the message is delivered again, after a wait
    bury           the message goes to the dead letters

A message about which the program does not decide is delivered again after its invisible time.

Source: SimpleConsumer of rocketmq-clients 5.0, whose calls these are; Apache's Java client for
this protocol does not have them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from twistmq.client.base.errors import Closed, OptionError, ReceiptExpired
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import (
    AssignedQueue,
    AssignedQueues,
    Batch,
    PopOptions,
)
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.outcome_reports import OutcomeReports
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.pop_delivery import PopDelivery
from twistmq.client.core.pop.pop_loop import PopLoop
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.client.core.pop.retries import PopRetries
from twistmq.client.core.pop.retries import delay_ms as delay_of

__all__ = ["Receiver"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The longest time for which a message can be hidden, because a broker's timer is limited, in ms.
_INVISIBLE_MAX_MS: Final = 3 * 86_400_000


class Receiver(Generic[T]):
    """The calls of programs to one member.

    :param delivery: counts the messages that were handed out.
    :param source: hands the messages out.
    :param reports: reports the decisions of the program.
    """

    def __init__(
        self, client: ClientCore, options: PopOptions, closing: CloseSignal,
        queues: AssignedQueues[T], delivery: Delivery[T], source: PopDelivery[T],
        popping: PopLoop[T], acks: Acknowledger, retries: PopRetries, reports: OutcomeReports,
    ) -> None:
        self._client = client
        self._tasks = client.tasks
        self._options = options
        self._closing = closing
        self._queues = queues
        self._delivery = delivery
        self._source = source
        self._popping = popping
        self._acks = acks
        self._retries = retries
        self._reports = reports
        #: The callers that wait for the end of any pop.
        self._ends: list[Future[None]] = []

    # --- receiving

    async def receive(
        self, max_count: int, invisible_ms: float | None, wait_ms: float
    ) -> list[Batch[T]]:
        """Wait for messages.

        :param max_count: the maximum number of messages, of all queues together.
        :param invisible_ms: the time for which they are hidden; with None, the option applies.
        :returns: the messages by queue; empty when the time is over.
        :raises OptionError: when the number of messages or a time is invalid.
        :raises Closed: when the consumer closes.
        """
        popping = self._popping
        if max_count < 1 or wait_ms < 0:
            raise OptionError(f"{max_count} messages within {wait_ms / 1000:g} s cannot be "
                              "received: ask for at least 1 message, within 0 s or more")
        popping.invisible_ms = (self._options.invisible_ms if invisible_ms is None
                                else _checked(invisible_ms, 1))
        until_ms, begun = self._tasks.now_ms + wait_ms, popping.begun
        while True:
            if self._closing.is_set:
                raise Closed("the consumer is closed")
            batches = self._take_all(max_count)
            if batches or self._is_over(until_ms, begun):
                await self._hide_as_asked(batches)
                return batches
            await self._wait(until_ms, begun)

    def _take_all(self, max_count: int) -> list[Batch[T]]:
        batches: list[Batch[T]] = []
        count = 0
        while count < max_count and (batch := self._source.take(max_count - count)) is not None:
            batches.append(batch)
            count += len(batch.messages)
            for message in batch.messages:
                if isinstance(message, PoppedMessage):
                    message.is_received = True
        # A close does not wait for these messages, because no handler has them.
        self._delivery.running -= count
        return batches

    def unreceive(self, batches: Sequence[Batch[T]]) -> None:
        """Hand out messages again that did not reach the program."""
        for batch in batches:
            for message in batch.messages:
                if isinstance(message, PoppedMessage):
                    message.is_received = False
            batch.assigned.window.put_back(batch.messages)
            self._delivery.arrived(batch.assigned)

    def _is_over(self, until_ms: float, begun: int) -> bool:
        """Whether a wait has ended: each source was asked at least once, or does not answer."""
        now_ms, popping = self._tasks.now_ms, self._popping
        if now_ms < until_ms:
            return False
        return (not popping.sources or (popping.begun > begun and not popping.under_way)
                or now_ms >= until_ms + self._client.options.timeout_ms)

    async def _wait(self, until_ms: float, first: int) -> None:
        """Wait for messages, for the end of a pop, or until the time is over.

        :param first: the number of the first pop of this demand. After the time is over, a pop that
            has ended is not repeated.
        """
        end: Future[None] = Future()
        self._ends.append(end)
        remaining_ms = until_ms - self._tasks.now_ms
        if remaining_ms <= 0:
            remaining_ms += self._client.options.timeout_ms
        timer = self._tasks.call_later(remaining_ms, end.set_result, None)
        try:
            with self._popping.pop_until(until_ms, first), self._delivery.waiting(end):
                await end
        finally:
            timer.cancel()

    def pop_ended(self) -> None:
        """Wake the waiting callers, because a pop has ended, with messages or without."""
        ends, self._ends = self._ends, []
        for each in ends:
            each.set_result(None)

    async def _hide_as_asked(self, batches: Sequence[Batch[T]]) -> None:
        """Change the time of messages that were popped for an earlier caller with another time."""
        invisible_ms = int(self._popping.invisible_ms)
        late = [message for batch in batches for message in batch.messages
                if isinstance(message, PoppedMessage)
                and message.receipt.invisible_ms != invisible_ms
                and not self._options.in_order]
        try:
            for error in await self._acks.change_all(late, invisible_ms):
                log.warning("a message is not hidden for as long as requested: %s", error)
        except BaseException:
            self.unreceive(batches)
            raise

    # --- decisions about messages

    async def acknowledge(self, messages: Sequence[ReceivedMessage[Any]]) -> None:
        """Acknowledge messages.

        :raises ReceiptExpired: when some are already acknowledged or given back, or are no longer
            hidden; all other messages are acknowledged.
        :raises RequestRefused, RemotingError, NoRoute: when a broker does not accept it. These
            messages may be acknowledged again.
        """
        mine, expired = self._received(messages)
        futures = []
        for assigned, message in mine:
            if message.is_ending:
                expired.append(message)
                continue
            message.is_ending = True
            future = self._acks.add(message, is_patient=False)
            future.when_done(partial(self._answered, assigned, message))
            futures.append(future)
        outcomes = await self._tasks.all_of(futures)
        errors = [each for each in outcomes if isinstance(each, BaseException)]
        if errors:
            raise errors[0]
        if expired:
            raise _receipt_expired(expired)

    def _answered(
        self, assigned: AssignedQueue[T], message: PoppedMessage[Any], acknowledged: Future[None]
    ) -> None:
        """Process the broker's response to the acknowledgement of a message."""
        message.is_ending = False
        if acknowledged.error is None:
            self.finish(assigned, message, "success")

    async def extend(self, message: ReceivedMessage[Any], invisible_ms: float) -> None:
        """Hide a message for ``invisible_ms`` from now on.

        :raises: like :meth:`acknowledge`.
        """
        await self._acks.change(self._one(message)[1], _checked(invisible_ms, 1))

    async def retry(self, message: ReceivedMessage[Any], delay_ms: float | None) -> None:
        """Give a message back, so that it is delivered again.

        :param delay_ms: the wait before that; with None, it is chosen by the message's attempts,
            and after the last attempt the message goes to the dead letters.
        :raises: like :meth:`acknowledge`.
        """
        assigned, mine = self._one(message)
        if delay_ms is None and mine.attempt > self._options.attempts_max:
            await self._retries.bury(mine)
        else:
            await self._acks.change(
                mine, delay_of(mine) if delay_ms is None else _checked(delay_ms, 0))
        self.finish(assigned, mine, "retry")

    async def bury(self, message: ReceivedMessage[Any]) -> None:
        """Send a message to the dead letters.

        :raises: like :meth:`acknowledge`.
        """
        assigned, mine = self._one(message)
        await self._retries.bury(mine)
        self.finish(assigned, mine, "retry")

    def _received(
        self, messages: Sequence[ReceivedMessage[Any]]
    ) -> tuple[list[tuple[AssignedQueue[T], PoppedMessage[Any]]], list[PoppedMessage[Any]]]:
        """Divide messages into those that the program may still decide about, and all others."""
        mine: list[tuple[AssignedQueue[T], PoppedMessage[Any]]] = []
        expired = []
        for message in messages:
            if not isinstance(message, PoppedMessage):
                raise OptionError(f"{message!r} was not popped")
            assigned = self._queues.get(message.line)
            if assigned is None or message.lost or message.is_ending or (
                    message not in assigned.window.running()
                    or message.expires_ms <= self._tasks.now_ms):
                expired.append(message)
            else:
                mine.append((assigned, message))
        return mine, expired

    def _one(self, message: ReceivedMessage[Any]) -> tuple[AssignedQueue[T], PoppedMessage[Any]]:
        mine, expired = self._received([message])
        if expired:
            raise _receipt_expired(expired)
        return mine[0]

    def finish(self, assigned: AssignedQueue[T], message: PoppedMessage[Any], outcome: str) -> None:
        """Finish a received message; ``outcome`` is the result for interceptors."""
        self._reports.report(assigned, [message], outcome)
        assigned.window.done(message.offset)
        self._delivery.arrived(assigned)
        self._popping.wake()


def _receipt_expired(messages: Sequence[PoppedMessage[Any]]) -> ReceiptExpired:
    return ReceiptExpired("these have their result already, or are no longer hidden and will be "
                          "delivered again: " + ", ".join(map(repr, messages)))


def _checked(time_ms: float, least_ms: float) -> float:
    """:raises OptionError: when a message cannot be hidden for this time."""
    if not least_ms <= time_ms <= _INVISIBLE_MAX_MS:
        raise OptionError(f"a message cannot be hidden for {time_ms / 1000:g} s")
    return time_ms
