"""The lines of popped messages: the messages of one queue wait in one window.

A line is kept as long as it has messages. Its window hands out, orders and counts the messages as
the window of a queue that is pulled does. The commit offset of the window is not used.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from twistmq.client.base.messages import MessageQueue, ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import (
    AssignedQueue,
    AssignedQueues,
    PopOptions,
)
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.stats import MemberStats
from twistmq.client.core.consumer.subscriptions import Subscription, SubscriptionTable
from twistmq.client.core.consumer.window import QueueWindow
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.lost_messages import LostMessages
from twistmq.client.core.pop.pop_loop import Source
from twistmq.client.core.pop.popped_message import PoppedMessage

__all__ = ["PoppedLines"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")


class PoppedLines(Generic[T]):
    """The lines of one member.

    :param queues: the lines, by the names of their queues at brokers.
    """

    def __init__(
        self, client: ClientCore, options: PopOptions, closing: CloseSignal,
        subscriptions: SubscriptionTable, queues: AssignedQueues[T], delivery: Delivery[T],
        stats: MemberStats, acks: Acknowledger, losses: LostMessages[T],
    ) -> None:
        self._client = client
        self._tasks = client.tasks
        self._in_order = options.in_order
        self._closing = closing
        self._subscriptions = subscriptions
        self._queues = queues
        self._delivery = delivery
        self._stats = stats
        self._acks = acks
        self._losses = losses

    def put(
        self, source: Source, subscription: Subscription, messages: list[PoppedMessage[T]],
        duration_ms: float,
    ) -> None:
        """Put the messages that a pop returned into their lines."""
        if self._closing.is_set:
            self._tasks.spawn(self.give_back(messages), "popped too late")
            return
        matching = []
        for message in messages:
            if not subscription.tags or message.tags in subscription.tags:
                matching.append(message)
            else:
                # A broker only compares hashes of tags.
                _forget_error(self._acks.add(message))
        self._stats.pulled(source.queue.topic, self._tasks.now_ms, len(matching), duration_ms)
        lines: dict[MessageQueue, list[PoppedMessage[T]]] = {}
        for message in matching:
            lines.setdefault(message.line, []).append(message)
        for line, each in lines.items():
            assigned = self._line(line, each[0].queue, subscription)
            assigned.window.put(each)
            self._delivery.arrived(assigned)

    def _line(
        self, line: MessageQueue, public_queue: MessageQueue, subscription: Subscription
    ) -> AssignedQueue[T]:
        assigned = self._queues.get(line)
        if assigned is not None and self._in_order and assigned.window.count:
            # The broker returns the same messages again: their old receipts are void.
            self._losses.mark_lost(assigned, ())
            assigned = None
        if assigned is None:
            window: QueueWindow[Any] = QueueWindow(
                line, 0, int(self._tasks.now_ms), self._queues.total)
            assigned = self._queues[line] = AssignedQueue(
                line, public_queue, subscription, window, 0)
        return assigned

    def forget_unused(self) -> None:
        """Forget lines without messages, and give back waiting messages of unsubscribed topics."""
        for line, assigned in list(self._queues.items()):
            topic = self._client.namespace.topic(assigned.public_queue.topic)
            if topic not in self._subscriptions:
                waiting: list[Any] = assigned.window.waiting()
                assigned.window.forget(waiting)
                self._tasks.spawn(self.give_back(waiting), "of a topic that is not wanted")
            if not assigned.window.count and not assigned.window.running_count:
                del self._queues[line]

    def drop_all(self) -> list[Any]:
        """Drop the messages of all lines; :returns: the messages to give back."""
        unfinished: list[Any] = []
        for assigned in self._queues.values():
            unfinished += assigned.window.waiting()
            for message in assigned.window.drop():
                message.lost = True
                # The program's acknowledgement may still reach the broker.
                if not (isinstance(message, PoppedMessage) and message.is_ending):
                    unfinished.append(message)
        return unfinished

    async def give_back(self, messages: Sequence[ReceivedMessage[T]]) -> None:
        """Make messages visible again at once."""
        mine = [each for each in messages if isinstance(each, PoppedMessage)
                and each.expires_ms > self._tasks.now_ms]
        for error in await self._acks.change_all(mine, 0):
            log.warning("a popped message will be delivered again later, not now: %s", error)

    def count_by_broker(self) -> Counter[str]:
        """Return the number of messages that are not finished, by broker name."""
        counts: Counter[str] = Counter()
        for assigned in self._queues.values():
            counts[assigned.queue.broker_name] += assigned.window.count
        return counts


def _forget_error(future: Future[None]) -> None:
    """Ignore a failed acknowledgement: the message comes again, and is ignored again."""
    future.when_done(lambda _: None)
