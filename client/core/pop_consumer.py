"""A member that pops: its messages come one by one, whatever queue they are in.

    assignments    which queues of which brokers are popped      pop_assignments.py
    pop            one task a source, while something waits      popping.py
    take           messages go to handlers                       here, consuming.py
    receive        messages go to the program                    receiving.py
    succeed        acknowledged                                  acknowledging.py
    fail           hidden for the wait before the next attempt   here, pop_retries.py
    watch          hidden for longer while a handler has them    hiding.py

A popped message is hidden from the other members for ``invisible_ms``. While a handler has it, it
is hidden for longer again and again, until ``consume_timeout_ms`` are over. A message that the
program received is hidden for longer when the program says so.

The messages of one queue are in one window, as a ``Member`` has it, so handing out, order, counts
and traces are those of all consumers. Its offset to commit means nothing here.

Source: ConsumeMessagePopConcurrentlyService, DefaultMQPushConsumerImpl.processPopResult @5.3.3;
ReceiveMessageResponseStreamWriter of its proxy, for the dead letters. Differs from Apache: its
client hides no message for longer, and does not pop in order.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from twistmq.broker.errors import BrokerError
from twistmq.broker.topic_names import retry_topic
from twistmq.client.core.acknowledging import Acknowledging
from twistmq.client.core.consuming import Member
from twistmq.client.core.held import Batch, Held, PopOptions
from twistmq.client.core.hiding import Hiding
from twistmq.client.core.pop_assignments import PopAssignments
from twistmq.client.core.pop_retries import PopRetries, delay_ms
from twistmq.client.core.popped_message import PoppedMessage
from twistmq.client.core.popping import HOLD_MS, Popping, Source
from twistmq.client.core.receiving import Receiving
from twistmq.client.core.retries import DEAD_LEVEL
from twistmq.client.core.subscriptions import Subscription
from twistmq.client.core.tasks import Cancelled, Future
from twistmq.client.core.window import QueueWindow
from twistmq.client.handlers import failure_outcome
from twistmq.client.messages import MessageQueue, ReceivedMessage

__all__ = ["PopMember"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: Messages that waited here until less of their time than this part is left are not handed out.
_LEAST_PART: Final = 0.25
#: A close waits so long for the brokers, ms.
_CLOSE_MS: Final = 3000


class PopMember(Member[T]):
    """A member that pops."""

    options: PopOptions
    has_offsets = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Brokers know the topics of its retries.
        self.subscriptions.pop(retry_topic(self.group), None)
        # A broker keeps the order: nothing is locked.
        self.locks = None
        self.acks = Acknowledging(self.client, self.group)
        self.pop_retries = PopRetries(self.retries, self.acks)
        self.popping: Popping[T] = Popping(self, self.options, self.popped)
        self.receiving: Receiving[T] = Receiving(
            self, self.options, self.popping, self.acks, self.pop_retries)
        self.popping.on_end.append(self.receiving.pop_ended)
        self.rebalance: PopAssignments[T] = PopAssignments(
            self, self.popping, self.forget_lines)
        self.hiding: Hiding[T] = Hiding(self, self.options, self.acks, self.lose)

    # --- the group

    async def start(self) -> None:
        """Join the group.

        :raises Closed: when the client is closed.
        :raises OptionError: when the client has a member of the group.
        :raises Unsupported: when a broker has no pop consumption.
        """
        try:
            await self._join()
            await self.rebalance.require_pop()
            await self.rebalance.round()
        except (Exception, Cancelled):
            await self.close(0)
            raise
        self._loops.append(self.tasks.spawn(self.hiding.watch_always(), "times of popped messages"))

    def subscribe(self, wanted: Subscription) -> None:
        """Add or change a subscription."""
        super().subscribe(wanted)
        self.popping.wake()

    def assigned(self) -> list[MessageQueue]:
        """The queues that are popped, in order; the id -1 stands for all queues of a broker."""
        return sorted(source.named for source in self.popping.sources.values())

    def set_paused(self, queues: Sequence[MessageQueue] | None, paused: bool) -> None:
        """Stop or resume the pops of some sources, as ``assigned`` names them, or of all."""
        if queues is None:
            self.is_paused = paused
        for source in self.popping.sources.values():
            if queues is None or source.named in queues:
                source.is_paused = paused
        self.popping.wake()

    async def commit(
        self, queues: Sequence[Held[T]] | None = None, *, again: bool = False
    ) -> bool:
        """Wait until the acknowledgements under way have ended."""
        await self.acks.flush()
        return True

    def pop_table(self) -> dict[MessageQueue, dict[str, int | bool]]:
        """The state of each source, with the fields of Apache's PopProcessQueueInfo."""
        counts: Counter[str] = Counter()
        for held in self.held.values():
            counts[held.queue.broker_name] += held.window.count
        return {queue: {"waitAckCount": counts[queue.broker_name], "droped": source.is_dropped,
                        "lastPopTimestamp": source.popped_ms}
                for queue, source in self.popping.sources.items()}

    async def move_to(self, offsets: Any) -> None:
        """A tool reset the offsets: the broker pops from there, whatever is done here."""

    # --- messages come

    def popped(
        self, source: Source, subscription: Subscription, messages: list[PoppedMessage[T]],
        duration_ms: float,
    ) -> None:
        """A pop brought messages."""
        if self.is_closing:
            self.tasks.spawn(self._give_back(messages), "popped too late")
            return
        wanted = []
        for message in messages:
            if not subscription.tags or message.tags in subscription.tags:
                wanted.append(message)
            else:
                # A broker compares hashes of tags.
                _forget_error(self.acks.add(message))
        self.stats.pulled(source.queue.topic, self.tasks.now_ms, len(wanted), duration_ms)
        lines: dict[MessageQueue, list[PoppedMessage[T]]] = {}
        for message in wanted:
            lines.setdefault(message.line, []).append(message)
        for line, each in lines.items():
            held = self._line(line, each[0].queue, subscription)
            held.window.put(each)
            self.arrived(held)

    def _line(
        self, line: MessageQueue, named: MessageQueue, subscription: Subscription
    ) -> Held[T]:
        held = self.held.get(line)
        if held is not None and self.options.in_order and held.window.count:
            # The broker gives out the same messages again: their receipts are void.
            self.lose(held, ())
            held = None
        if held is None:
            window: QueueWindow[Any] = QueueWindow(line, 0, int(self.tasks.now_ms), self.total)
            held = self.held[line] = Held(line, named, subscription, window, 0)
        return held

    def forget_lines(self) -> None:
        """Forget queues without messages, and give back what waits of topics that are gone."""
        for line, held in list(self.held.items()):
            topic = self.client.namespace.topic(held.named.topic)
            if topic not in self.subscriptions:
                waiting: list[Any] = held.window.waiting()
                held.window.forget(waiting)
                self.tasks.spawn(self._give_back(waiting), "of a topic that is not wanted")
            if not held.window.count and not held.window.running_count:
                del self.held[line]

    # --- handing out

    def take(self, most: int) -> Batch[T] | None:
        """Hand out the next messages of one queue, those that are still hidden for long enough."""
        for held in list(self._ready):
            waiting: list[Any] = held.window.waiting()
            stale = [message for message in waiting if self._is_stale(message)]
            if stale:
                log.info("group %s: %d messages of %s waited here for too long, and come again",
                         self.group, len(stale), held.named)
            # A message of an order does not come before the one ahead of it.
            held.window.forget(waiting if stale and self.options.in_order else stale)
        batch = super().take(most)
        if not self._ready:
            self.popping.wake()
        return batch

    def _is_stale(self, message: ReceivedMessage[T]) -> bool:
        if not isinstance(message, PoppedMessage):
            return False
        # Not the time of the receipt: it is the broker's, which may say anything.
        least_ms = message.hidden_ms * _LEAST_PART
        return message.expires_ms - self.tasks.now_ms < min(least_ms, HOLD_MS)

    async def ready(self) -> None:
        """Wait until there may be something to hand out; meanwhile the sources are popped.

        :raises Closed: when the consumer closes.
        """
        with self.popping.wanted(float("inf")):
            await super().ready()

    # --- results of handlers

    def succeed(self, held: Held[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Handlers finished these messages of one queue: they are acknowledged.

        Also the lost ones, if their receipts are still valid.
        """
        mine = [message for message in messages if not message.lost]
        is_popped = held.outcome is None
        if mine:
            super().succeed(held, mine)
        if is_popped:
            self._acknowledge(messages)

    def release(self, held: Held[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """These were handed out and not begun: they wait again, but for the lost ones."""
        super().release(held, [message for message in messages if not message.lost])

    def lose(self, held: Held[T], messages: Sequence[PoppedMessage[T]]) -> None:
        """The receipts of messages that run are worth nothing any more: they come again.

        In order, all that is here of their queue comes again, after them.
        """
        lost: list[Any] = held.window.running() if self.options.in_order else list(messages)
        if lost:
            self.tell(held, lost, "time-out")
        if self.options.in_order:
            held.window.drop()
            if self.held.get(held.queue) is held:
                del self.held[held.queue]
        for each in lost:
            each.lost = True
            held.window.done(each.offset)
        self._ended(sum(not each.is_received for each in lost), held)

    def _acknowledge(self, messages: Sequence[ReceivedMessage[T]]) -> None:
        for message in messages:
            if isinstance(message, PoppedMessage):
                self.acks.add(message).when_done(lambda done, message=message: _log_late(  # type: ignore[misc]
                    message, done.error))

    def fail(
        self, held: Held[T], messages: Sequence[ReceivedMessage[T]], level: int = 0
    ) -> None:
        """Handlers could not process these messages of one queue.

        :param level: the delay level of the next attempt; 0: by the attempts; -1: no more.
        """
        messages = [message for message in messages if not message.lost]
        if not messages:
            return
        if held.outcome is not None or self.options.in_order:
            super().fail(held, messages, level)
            return
        self.tell(held, messages, failure_outcome(messages[0]))
        for message in messages:
            self.tasks.spawn(self._come_again(held, message, level), "retry")

    async def _come_again(self, held: Held[T], message: ReceivedMessage[T], level: int) -> None:
        assert isinstance(message, PoppedMessage)
        try:
            if level == DEAD_LEVEL or message.attempt > self.max_attempts:
                await self.pop_retries.bury(message)
            else:
                await self.acks.change(message, delay_ms(message, level))
        except BrokerError as error:
            log.warning("%r comes again when it is hidden no longer, not after the wait for its "
                        "next attempt: %s", message, error)
        if held.window.done(message.offset):
            self._ended(1, held)

    async def _bury(
        self, held: Held[T], over: Sequence[ReceivedMessage[T]],
        again: Sequence[ReceivedMessage[T]],
    ) -> None:
        """Send the dead messages of an order away; without success they are tried again."""
        left = list(again)
        for message in over:
            assert isinstance(message, PoppedMessage)
            try:
                await self.pop_retries.bury(message)
                self.running -= held.window.done(message.offset)
            except BrokerError as error:
                log.warning("%r is tried again, not sent to the dead letters: %s", message, error)
                left.append(message)
        self.release(held, left)
        self.tasks.later(max(held.in_order_until_ms - self.tasks.now_ms, 0), self.arrived, held)

    def _ended(self, count: int, held: Held[T]) -> None:
        super()._ended(count, held)
        self.popping.wake()

    # --- the end

    async def finish(self) -> None:
        """See ``GroupMember``: messages that are finished are acknowledged."""
        await self.acks.flush()
        if self.trace is not None:
            await self.trace.flush()

    async def close(self, timeout_ms: float = 10_000) -> None:
        """Stop popping, wait for the handlers, acknowledge, give back, and leave the group.

        Messages that are not finished are visible again at once.
        """
        await super().close(timeout_ms)

    def _stop_reading(self) -> None:
        self.popping.change([])

    async def _leave_queues(self) -> None:
        """Acknowledge the messages that are finished, and make the others visible again."""
        unfinished: list[Any] = []
        for held in self.held.values():
            unfinished += held.window.waiting()
            for message in held.window.drop():
                message.lost = True
                # The acknowledgement of the program may still reach the broker.
                if not (isinstance(message, PoppedMessage) and message.is_ending):
                    unfinished.append(message)
        await self._within_close(self.acks.flush())
        await self._within_close(self._give_back(unfinished))

    async def _within_close(self, coroutine: Any) -> None:
        task = self.tasks.spawn(coroutine, "end of a consumer")
        try:
            await self.tasks.within(_CLOSE_MS, task, TimeoutError)
        except TimeoutError:
            task.cancel()
            log.warning("brokers do not answer: popped messages of group %s come again later",
                        self.group)

    async def _give_back(self, messages: Sequence[ReceivedMessage[T]]) -> None:
        """Make messages visible again at once."""
        mine = [each for each in messages if isinstance(each, PoppedMessage)
                and each.expires_ms > self.tasks.now_ms]
        for error in await self.acks.change_all(mine, 0):
            log.warning("a popped message comes again later, not now: %s", error)


def _forget_error(future: Future[None]) -> None:
    """The message of an acknowledgement that fails comes again; it is not wanted then either."""
    future.when_done(lambda _: None)


def _log_late(message: PoppedMessage[Any], error: BaseException | None) -> None:
    if error is not None:
        log.warning("%r is not acknowledged, and may come again: %s", message, error)
