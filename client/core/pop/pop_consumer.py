"""A member that pops: it gets messages one by one, from whichever queues they are in.

    assignments    which queues of which brokers are popped      assignments.py
    pop            one task per source, while a caller waits     pop_loop.py
    take           passes messages to handlers                   here, delivery.py
    receive        passes messages to the program                receiver.py
    succeed        acknowledges messages                         acknowledger.py
    fail           hides messages until the next attempt         here, retries.py
    watch          hides messages longer during their handlers   invisible_time.py

In pop consumption, no queue belongs to a member, and the broker keeps track of each message. A pop
returns messages and hides them from all other members for ``invisible_ms``. If the member
acknowledges a message within this time, it is finished; otherwise it becomes visible again, and the
next pop of any member returns it. While a handler has a message, the member hides it again and
again, until ``consume_timeout_ms`` have passed. A message that the program received is hidden
longer only when the program asks for it.

The messages of one queue are in one window, like the messages of a ``Member``, so all consumers
share the code for delivery, order, counts and traces. The window's commit offset is not used here.

Source: ConsumeMessagePopConcurrentlyService, DefaultMQPushConsumerImpl.processPopResult @5.3.3;
ReceiveMessageResponseStreamWriter of its proxy, for the dead letters. Differs from Apache: its
client never hides a message for longer, and does not pop in order.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from twistmq.client.base.handlers import failure_outcome
from twistmq.client.base.messages import MessageQueue, ReceivedMessage
from twistmq.client.core.connection.tasks import Cancelled, Future
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch, PopOptions
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.retries import DEAD_LEVEL
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.consumer.window import QueueWindow
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.assignments import PopAssignments
from twistmq.client.core.pop.invisible_time import InvisibilityExtender
from twistmq.client.core.pop.pop_loop import HOLD_MS, PopLoop, Source
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.client.core.pop.receiver import Receiver
from twistmq.client.core.pop.retries import PopRetries, delay_ms
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.topic_names import retry_topic

__all__ = ["PopMember"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: Waiting messages with less than this part of their invisible time left are not handed out.
_LEAST_PART: Final = 0.25
#: The time for which a close waits for the brokers, in ms.
_CLOSE_MS: Final = 3000


class PopMember(Member[T]):
    """A member that pops."""

    options: PopOptions
    has_offsets = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Brokers know the topics of the group's retries.
        self.subscriptions.pop(retry_topic(self.group), None)
        # The broker keeps the order, so no queue is locked.
        self.locks = None
        self.acks = Acknowledger(self.client, self.group)
        self.pop_retries = PopRetries(self.retries, self.acks)
        self.popping: PopLoop[T] = PopLoop(self, self.options, self.popped)
        self.receiving: Receiver[T] = Receiver(
            self, self.options, self.popping, self.acks, self.pop_retries)
        self.popping.on_end.append(self.receiving.pop_ended)
        self.rebalance: PopAssignments[T] = PopAssignments(
            self, self.popping, self.forget_lines)
        self.hiding: InvisibilityExtender[T] = InvisibilityExtender(self, self.options, self.acks,
                                                                    self.mark_lost)

    # --- the group

    async def start(self) -> None:
        """Join the group.

        :raises Closed: when the client is closed.
        :raises OptionError: when the client has a member of the group.
        :raises Unsupported: when a broker does not support pop consumption.
        """
        try:
            await self._join()
            await self.rebalance.require_pop()
            await self.rebalance.round()
        except (Exception, Cancelled):
            await self.close(0)
            raise
        self._loops.append(self.tasks.spawn(self.hiding.watch_always(), "times of popped messages"))

    def subscribe(self, subscription: Subscription) -> None:
        """Add or change a subscription."""
        super().subscribe(subscription)
        self.popping.wake()

    def assigned(self) -> list[MessageQueue]:
        """Return the queues that are popped, in order; id -1 stands for all queues of a broker."""
        return sorted(source.public_queue for source in self.popping.sources.values())

    def set_paused(self, queues: Sequence[MessageQueue] | None, paused: bool) -> None:
        """Pause or resume the pops of some sources, as ``assigned`` names them, or of all."""
        if queues is None:
            self.is_paused = paused
        for source in self.popping.sources.values():
            if queues is None or source.public_queue in queues:
                source.is_paused = paused
        self.popping.wake()

    async def commit(
        self, queues: Sequence[AssignedQueue[T]] | None = None, *, again: bool = False
    ) -> bool:
        """Wait until the acknowledgements in flight have ended."""
        await self.acks.flush()
        return True

    def pop_table(self) -> dict[MessageQueue, dict[str, int | bool]]:
        """Return the state of each source, with the fields of Apache's PopProcessQueueInfo."""
        counts: Counter[str] = Counter()
        for assigned in self.assigned_queues.values():
            counts[assigned.queue.broker_name] += assigned.window.count
        return {queue: {"waitAckCount": counts[queue.broker_name], "droped": source.is_dropped,
                        "lastPopTimestamp": source.popped_ms}
                for queue, source in self.popping.sources.items()}

    async def move_to(self, offsets: Any) -> None:
        """Ignore a reset of offsets by a tool: the broker itself pops from the new offsets."""

    # --- arrival of messages

    def popped(
        self, source: Source, subscription: Subscription, messages: list[PoppedMessage[T]],
        duration_ms: float,
    ) -> None:
        """Process the messages that a pop returned."""
        if self.is_closing:
            self.tasks.spawn(self._give_back(messages), "popped too late")
            return
        matching = []
        for message in messages:
            if not subscription.tags or message.tags in subscription.tags:
                matching.append(message)
            else:
                # A broker only compares hashes of tags.
                _forget_error(self.acks.add(message))
        self.stats.pulled(source.queue.topic, self.tasks.now_ms, len(matching), duration_ms)
        lines: dict[MessageQueue, list[PoppedMessage[T]]] = {}
        for message in matching:
            lines.setdefault(message.line, []).append(message)
        for line, each in lines.items():
            assigned = self._line(line, each[0].queue, subscription)
            assigned.window.put(each)
            self.arrived(assigned)

    def _line(
        self, line: MessageQueue, public_queue: MessageQueue, subscription: Subscription
    ) -> AssignedQueue[T]:
        assigned = self.assigned_queues.get(line)
        if assigned is not None and self.options.in_order and assigned.window.count:
            # The broker returns the same messages again: their old receipts are void.
            self.mark_lost(assigned, ())
            assigned = None
        if assigned is None:
            window: QueueWindow[Any] = QueueWindow(line, 0, int(self.tasks.now_ms), self.total)
            assigned = self.assigned_queues[line] = AssignedQueue(line, public_queue, subscription,
                                                                  window, 0)
        return assigned

    def forget_lines(self) -> None:
        """Forget queues without messages, and give back waiting messages of unsubscribed topics."""
        for line, assigned in list(self.assigned_queues.items()):
            topic = self.client.namespace.topic(assigned.public_queue.topic)
            if topic not in self.subscriptions:
                waiting: list[Any] = assigned.window.waiting()
                assigned.window.forget(waiting)
                self.tasks.spawn(self._give_back(waiting), "of a topic that is not wanted")
            if not assigned.window.count and not assigned.window.running_count:
                del self.assigned_queues[line]

    # --- delivery

    def take(self, max_count: int) -> Batch[T] | None:
        """Hand out the next messages of one queue that are still hidden for long enough."""
        for assigned in list(self._ready):
            waiting: list[Any] = assigned.window.waiting()
            stale = [message for message in waiting if self._is_stale(message)]
            if stale:
                log.info("group %s: %d messages of %s waited here for too long, and will be "
                         "delivered again", self.group, len(stale), assigned.public_queue)
            # A message of an ordered queue must not come before an earlier one.
            assigned.window.forget(waiting if stale and self.options.in_order else stale)
        batch = super().take(max_count)
        if not self._ready:
            self.popping.wake()
        return batch

    def _is_stale(self, message: ReceivedMessage[T]) -> bool:
        if not isinstance(message, PoppedMessage):
            return False
        # The receipt has the broker's time, which can be any number.
        least_ms = message.requested_invisible_ms * _LEAST_PART
        return message.expires_ms - self.tasks.now_ms < min(least_ms, HOLD_MS)

    async def ready(self) -> None:
        """Wait until there may be messages to hand out; the sources are popped during the wait.

        :raises Closed: when the consumer closes.
        """
        with self.popping.pop_until(float("inf")):
            await super().ready()

    # --- results of handlers

    def succeed(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Acknowledge messages of one queue that handlers processed.

        Lost messages are acknowledged too, if their receipts are still valid.
        """
        mine = [message for message in messages if not message.lost]
        is_popped = assigned.outcome is None
        if mine:
            super().succeed(assigned, mine)
        if is_popped:
            self._acknowledge(messages)

    def release(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Let messages wait again that were handed out but not begun, except lost messages."""
        super().release(assigned, [message for message in messages if not message.lost])

    def mark_lost(self, assigned: AssignedQueue[T], messages: Sequence[PoppedMessage[T]]) -> None:
        """Mark running messages as lost, because their receipts are no longer valid.

        They are delivered again. For ordered consumption, all later messages of their queue that
        this member has are delivered again after them.
        """
        lost: list[Any] = assigned.window.running() if self.options.in_order else list(messages)
        if lost:
            self.report_outcome(assigned, lost, "time-out")
        if self.options.in_order:
            assigned.window.drop()
            if self.assigned_queues.get(assigned.queue) is assigned:
                del self.assigned_queues[assigned.queue]
        for each in lost:
            each.lost = True
            assigned.window.done(each.offset)
        self._ended(sum(not each.is_received for each in lost), assigned)

    def _acknowledge(self, messages: Sequence[ReceivedMessage[T]]) -> None:
        for message in messages:
            if isinstance(message, PoppedMessage):
                self.acks.add(message).when_done(lambda done, message=message: _log_late(  # type: ignore[misc]
                    message, done.error))

    def fail(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int = 0
    ) -> None:
        """Handle messages of one queue that handlers could not process.

        :param level: the delay level of the next attempt; 0: chosen by the attempts; -1: there is
            no other attempt.
        """
        messages = [message for message in messages if not message.lost]
        if not messages:
            return
        if assigned.outcome is not None or self.options.in_order:
            super().fail(assigned, messages, level)
            return
        self.report_outcome(assigned, messages, failure_outcome(messages[0]))
        for message in messages:
            self.tasks.spawn(self._come_again(assigned, message, level), "retry")

    async def _come_again(
        self, assigned: AssignedQueue[T], message: ReceivedMessage[T], level: int
    ) -> None:
        assert isinstance(message, PoppedMessage)
        try:
            if level == DEAD_LEVEL or message.attempt > self.max_attempts:
                await self.pop_retries.bury(message)
            else:
                await self.acks.change(message, delay_ms(message, level))
        except BrokerError as error:
            log.warning("%r will be delivered again after its invisible time, not after the wait "
                        "for its next attempt: %s", message, error)
        if assigned.window.done(message.offset):
            self._ended(1, assigned)

    async def _bury(
        self, assigned: AssignedQueue[T], over: Sequence[ReceivedMessage[T]],
        again: Sequence[ReceivedMessage[T]],
    ) -> None:
        """Send the dead letters of an ordered queue away; if this fails, they are tried again."""
        remaining = list(again)
        for message in over:
            assert isinstance(message, PoppedMessage)
            try:
                await self.pop_retries.bury(message)
                self.running -= assigned.window.done(message.offset)
            except BrokerError as error:
                log.warning("%r is tried again, not sent to the dead letters: %s", message, error)
                remaining.append(message)
        self.release(assigned, remaining)
        self.tasks.call_later(max(assigned.in_order_until_ms - self.tasks.now_ms, 0), self.arrived,
                         assigned)

    def _ended(self, count: int, assigned: AssignedQueue[T]) -> None:
        super()._ended(count, assigned)
        self.popping.wake()

    # --- the end

    async def finish(self) -> None:
        """See ``GroupMember``: waits until finished messages are acknowledged."""
        await self.acks.flush()
        if self.trace is not None:
            await self.trace.flush()

    async def close(self, timeout_ms: float = 10_000) -> None:
        """Stop popping, wait for the handlers, acknowledge, give back, and leave the group.

        Unfinished messages become visible again at once.
        """
        await super().close(timeout_ms)

    def _stop_reading(self) -> None:
        self.popping.change([])

    async def _leave_queues(self) -> None:
        """Acknowledge finished messages, and make all other messages visible again."""
        unfinished: list[Any] = []
        for assigned in self.assigned_queues.values():
            unfinished += assigned.window.waiting()
            for message in assigned.window.drop():
                message.lost = True
                # The program's acknowledgement may still reach the broker.
                if not (isinstance(message, PoppedMessage) and message.is_ending):
                    unfinished.append(message)
        await self._within_close(self.acks.flush())
        await self._within_close(self._give_back(unfinished))

    async def _within_close(self, coroutine: Any) -> None:
        task = self.tasks.spawn(coroutine, "end of a consumer")
        try:
            await self.tasks.wait_for(_CLOSE_MS, task, TimeoutError)
        except TimeoutError:
            task.cancel()
            log.warning("brokers do not answer: popped messages of group %s will be delivered "
                        "again later", self.group)

    async def _give_back(self, messages: Sequence[ReceivedMessage[T]]) -> None:
        """Make messages visible again at once."""
        mine = [each for each in messages if isinstance(each, PoppedMessage)
                and each.expires_ms > self.tasks.now_ms]
        for error in await self.acks.change_all(mine, 0):
            log.warning("a popped message will be delivered again later, not now: %s", error)


def _forget_error(future: Future[None]) -> None:
    """Ignore a failed acknowledgement: the message comes again, and is ignored again."""
    future.when_done(lambda _: None)


def _log_late(message: PoppedMessage[Any], error: BaseException | None) -> None:
    if error is not None:
        log.warning("%r was not acknowledged, and may be delivered again: %s", message, error)
