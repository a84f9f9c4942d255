"""Receiving: a program asks for messages, and says itself what becomes of each of them.

    acknowledge    it is finished
    extend         it is hidden for longer
    retry          it is delivered again, after a wait
    bury           it goes to the dead letters

A message about which nothing is said is delivered again when it is hidden no longer.

Source: SimpleConsumer of rocketmq-clients 5.0, whose calls these are; Apache's Java client for
this protocol does not have them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from twistmq.client.core.acknowledging import Acknowledging
from twistmq.client.core.held import Batch, Held, PopOptions
from twistmq.client.core.pop_retries import PopRetries
from twistmq.client.core.pop_retries import delay_ms as delay_of
from twistmq.client.core.popped_message import PoppedMessage
from twistmq.client.core.popping import Popping
from twistmq.client.core.tasks import Future
from twistmq.client.errors import Closed, OptionError, ReceiptExpired
from twistmq.client.messages import ReceivedMessage

if TYPE_CHECKING:
    from twistmq.client.core.consuming import Member

__all__ = ["Receiving"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The longest time for which a message can be hidden: a broker's timer keeps it for so long, ms.
_INVISIBLE_MAX_MS: Final = 3 * 86_400_000


class Receiving(Generic[T]):
    """The calls of programs on one member."""

    def __init__(
        self, member: Member[T], options: PopOptions, popping: Popping[T], acks: Acknowledging,
        retries: PopRetries,
    ) -> None:
        self._member = member
        self._options = options
        self._client = member.client
        self._popping = popping
        self._acks = acks
        self._retries = retries
        #: Those that wait for the end of any pop.
        self._ends: list[Future[None]] = []

    # --- receiving

    async def receive(
        self, most: int, invisible_ms: float | None, wait_ms: float
    ) -> list[Batch[T]]:
        """Wait for messages.

        :param most: messages of all queues together.
        :param invisible_ms: for how long they are hidden; None: as the options say.
        :returns: the messages by queue; empty when the time is over.
        :raises OptionError: for a number of messages or a time that has no meaning.
        :raises Closed: when the consumer closes.
        """
        member, popping = self._member, self._popping
        if most < 1 or wait_ms < 0:
            raise OptionError(f"receive {most} messages within {wait_ms / 1000:g} s: at least 1 "
                              "message, and no time below 0")
        popping.invisible_ms = (self._options.invisible_ms if invisible_ms is None
                                else _checked(invisible_ms, 1))
        until_ms, begun = member.tasks.now_ms + wait_ms, popping.begun
        while True:
            if member.is_closing:
                raise Closed("the consumer is closed")
            found = self._take_all(most)
            if found or self._is_over(until_ms, begun):
                await self._hide_as_asked(found)
                return found
            await self._wait(until_ms, begun)

    def _take_all(self, most: int) -> list[Batch[T]]:
        found: list[Batch[T]] = []
        count = 0
        while count < most and (batch := self._member.take(most - count)) is not None:
            found.append(batch)
            count += len(batch.messages)
            for message in batch.messages:
                if isinstance(message, PoppedMessage):
                    message.is_received = True
        # They are no handler's that a close waits for.
        self._member.running -= count
        return found

    def unreceive(self, batches: Sequence[Batch[T]]) -> None:
        """These did not reach the program: they are handed out again."""
        for batch in batches:
            for message in batch.messages:
                if isinstance(message, PoppedMessage):
                    message.is_received = False
            batch.held.window.put_back(batch.messages)
            self._member.arrived(batch.held)

    def _is_over(self, until_ms: float, begun: int) -> bool:
        """Whether a wait has ended: sources were asked once at least, or do not answer."""
        now_ms, popping = self._member.tasks.now_ms, self._popping
        if now_ms < until_ms:
            return False
        return (not popping.sources or (popping.begun > begun and not popping.under_way)
                or now_ms >= until_ms + self._client.options.timeout_ms)

    async def _wait(self, until_ms: float, first: int) -> None:
        """Wait for messages, the end of a pop, or the time.

        :param first: the number of the first pop of this demand. One that ended is not made again
            once the time is over.
        """
        member = self._member
        end: Future[None] = Future()
        self._ends.append(end)
        left_ms = until_ms - member.tasks.now_ms
        if left_ms <= 0:
            left_ms += self._client.options.timeout_ms
        timer = member.tasks.later(left_ms, end.set_result, None)
        try:
            with self._popping.wanted(until_ms, first), member.waiting(end):
                await end
        finally:
            timer.cancel()

    def pop_ended(self) -> None:
        """A pop has ended, with messages or without."""
        ends, self._ends = self._ends, []
        for each in ends:
            each.set_result(None)

    async def _hide_as_asked(self, found: Sequence[Batch[T]]) -> None:
        """Hide those for the time that was asked for that were popped for an earlier demand."""
        wanted = int(self._popping.invisible_ms)
        late = [message for batch in found for message in batch.messages
                if isinstance(message, PoppedMessage) and message.receipt.invisible_ms != wanted
                and not self._options.in_order]
        try:
            for error in await self._acks.change_all(late, wanted):
                log.warning("a message is not hidden for as long as was asked for: %s", error)
        except BaseException:
            self.unreceive(found)
            raise

    # --- what becomes of messages

    async def acknowledge(self, messages: Sequence[ReceivedMessage[Any]]) -> None:
        """Acknowledge messages.

        :raises ReceiptExpired: when some are acknowledged or given back already, or hidden no
            longer; the others are acknowledged.
        :raises RequestRefused, RemotingError, NoRoute: when a broker does not take it. Those may be
            acknowledged again.
        """
        mine, gone = self._received(messages)
        futures = []
        for held, message in mine:
            if message.is_ending:
                gone.append(message)
                continue
            message.is_ending = True
            future = self._acks.add(message, is_patient=False)
            future.when_done(partial(self._answered, held, message))
            futures.append(future)
        outcomes = await self._member.tasks.all_of(futures)
        errors = [each for each in outcomes if isinstance(each, BaseException)]
        if errors:
            raise errors[0]
        if gone:
            raise _gone(gone)

    def _answered(
        self, held: Held[T], message: PoppedMessage[Any], acknowledged: Future[None]
    ) -> None:
        """A broker took the acknowledgement of a message, or did not."""
        message.is_ending = False
        if acknowledged.error is None:
            self.finish(held, message, "success")

    async def extend(self, message: ReceivedMessage[Any], invisible_ms: float) -> None:
        """Hide a message for so long from now on.

        :raises: as :meth:`acknowledge`.
        """
        await self._acks.change(self._one(message)[1], _checked(invisible_ms, 1))

    async def retry(self, message: ReceivedMessage[Any], delay_ms: float | None) -> None:
        """Give a message back: it is delivered again.

        :param delay_ms: after so long; None: by its attempts, and the dead letters after the last.
        :raises: as :meth:`acknowledge`.
        """
        member = self._member
        held, mine = self._one(message)
        if delay_ms is None and mine.attempt > member.max_attempts:
            await self._retries.bury(mine)
        else:
            await self._acks.change(
                mine, delay_of(mine) if delay_ms is None else _checked(delay_ms, 0))
        self.finish(held, mine, "retry")

    async def bury(self, message: ReceivedMessage[Any]) -> None:
        """Send a message to the dead letters.

        :raises: as :meth:`acknowledge`.
        """
        held, mine = self._one(message)
        await self._retries.bury(mine)
        self.finish(held, mine, "retry")

    def _received(
        self, messages: Sequence[ReceivedMessage[Any]]
    ) -> tuple[list[tuple[Held[T], PoppedMessage[Any]]], list[PoppedMessage[Any]]]:
        """Those of these messages that the program may still decide about, and the others."""
        mine: list[tuple[Held[T], PoppedMessage[Any]]] = []
        gone = []
        for message in messages:
            if not isinstance(message, PoppedMessage):
                raise OptionError(f"{message!r} was not popped")
            held = self._member.held.get(message.line)
            if held is None or message.lost or message.is_ending or (
                    message not in held.window.running()
                    or message.expires_ms <= self._member.tasks.now_ms):
                gone.append(message)
            else:
                mine.append((held, message))
        return mine, gone

    def _one(self, message: ReceivedMessage[Any]) -> tuple[Held[T], PoppedMessage[Any]]:
        mine, gone = self._received([message])
        if gone:
            raise _gone(gone)
        return mine[0]

    def finish(self, held: Held[T], message: PoppedMessage[Any], outcome: str) -> None:
        """A received message has its result; ``outcome`` as interceptors get it."""
        self._member.tell(held, [message], outcome)
        held.window.done(message.offset)
        self._member.arrived(held)
        self._popping.wake()


def _gone(messages: Sequence[PoppedMessage[Any]]) -> ReceiptExpired:
    return ReceiptExpired("these have their result already, or are hidden no longer and come "
                          "again: " + ", ".join(map(repr, messages)))


def _checked(time_ms: float, least_ms: float) -> float:
    """:raises OptionError: when a message cannot be hidden for so long."""
    if not least_ms <= time_ms <= _INVISIBLE_MAX_MS:
        raise OptionError(f"a message cannot be hidden for {time_ms / 1000:g} s")
    return time_ms
