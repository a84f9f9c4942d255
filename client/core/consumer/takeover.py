"""The takeover of queues that a member gets: locks, start offsets, and the first pull.

The first pull of a queue waits for half a second, so that the previous member can commit, and the
offset is then asked for again (``fetcher.py``).

Source: RebalanceImpl.updateProcessQueueTableInRebalance @5.3.3.
"""

from __future__ import annotations

import logging
from typing import Any, Generic, TypeVar

from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Cancelled
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, AssignedQueues
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.fetcher import Fetcher
from twistmq.client.core.consumer.flow_control import NEW_QUEUE_MS
from twistmq.client.core.consumer.handover import Handover
from twistmq.client.core.consumer.queue_listeners import QueueListeners
from twistmq.client.core.consumer.queue_locks import Locks
from twistmq.client.core.consumer.start_offsets import StartOffset, StartOffsets
from twistmq.client.core.consumer.stop_positions import StopPositions
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.client.core.consumer.window import QueueWindow
from twistmq.protocol.bodies import MessageQueue

__all__ = ["Takeover"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")


class Takeover(Generic[T]):
    """Takes queues for one member.

    :param group: the group's name at brokers.
    :param starts: determines where the queues begin.
    :param stops: learns which deleted queues are read again.
    :param fetcher: pulls the queues.
    :param handover: has the queues whose locks are still being given back.
    :param locks: the locks of ordered queues, or None.
    """

    def __init__(
        self, client: ClientCore, group: str, closing: CloseSignal,
        subscriptions: SubscriptionTable, queues: AssignedQueues[T], starts: StartOffsets,
        stops: StopPositions, fetcher: Fetcher[T], handover: Handover[T], locks: Locks | None,
        listeners: QueueListeners,
    ) -> None:
        self._client = client
        self._group = group
        self._closing = closing
        self._subscriptions = subscriptions
        self._queues = queues
        self._starts = starts
        self._stops = stops
        self._fetcher = fetcher
        self._handover = handover
        self._locks = locks
        self._listeners = listeners

    async def take(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Take queues; :returns: the queues that could be taken."""
        locks = self._locks
        queues = [queue for queue in queues if not self._handover.is_ending(queue)]
        if not queues or locks is None:
            return await self._take_all(queues)
        locking = self._client.tasks.spawn(locks.lock(queues), "locks")
        try:
            locked = await locking
            return await self._take_all([queue for queue in queues if queue in locked])
        except Cancelled:
            # The member closes, and does not have the queues yet.
            await self._client.tasks.all_of([locking])
            await locks.unlock(queues)
            raise

    async def _take_all(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Take queues, which are already locked if that is necessary.

        The queues of one broker do not wait for another broker, which may hang.
        """
        brokers: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            brokers.setdefault(self._client.routes.broker_of(queue), []).append(queue)
        taking = [self._client.tasks.spawn(self._take_of(each), "queues of a broker")
                  for each in brokers.values()]
        try:
            await self._client.tasks.all_of(taking)
        except Cancelled:
            for task in taking:
                task.cancel()
            raise
        return [queue for task in taking for queue in task.result()]

    async def _take_of(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Take queues of one broker; :returns: the queues that could be taken."""
        starts = [self._client.tasks.spawn(self._starts.first_offset(queue), "first offset")
                  for queue in queues]
        outcomes = await self._client.tasks.all_of(starts)
        acquired: list[AssignedQueue[T]] = []
        if self._closing.is_set:
            return []
        for queue, start in zip(queues, outcomes, strict=True):
            if isinstance(start, BaseException):
                log.warning("the first offset of %s is not known now: %s", queue, start)
                continue
            acquired.append(self._begin(queue, start))
        if acquired:
            log.info("group %s: this member was assigned %d queues", self._group, len(acquired))
            self._listeners.call_assigned([assigned.public_queue for assigned in acquired
                                           if not assigned.is_retry])
        return [assigned.queue for assigned in acquired]

    def restart(self, assigned: AssignedQueue[T], offset: int) -> None:
        """Continue a queue of this member at another offset; messages read are forgotten."""
        if assigned.task is not None:
            assigned.task.cancel()
        for message in assigned.window.drop():
            message.lost = True
        new = self._begin(assigned.queue, StartOffset(offset), 0)
        new.committed = assigned.committed
        new.is_paused = assigned.is_paused

    def _begin(
        self, queue: MessageQueue, start: StartOffset, delay_ms: float = NEW_QUEUE_MS
    ) -> AssignedQueue[T]:
        """Begin to read a queue, for the first time after ``delay_ms``."""
        tasks = self._client.tasks
        now_ms = int(tasks.now_ms)
        window: QueueWindow[Any] = QueueWindow(queue, start.offset, now_ms, self._queues.total)
        if self._locks is not None:
            window.locked(now_ms)
        assigned: AssignedQueue[T] = AssignedQueue(
            queue, self._client.namespace.queue_without(queue), self._subscriptions[queue.topic],
            window, start.offset)
        assigned.is_settled = not delay_ms
        assigned.is_new = start.is_new
        if start.is_committed:
            assigned.committed = start.offset
        self._queues[queue] = assigned
        self._stops.deleted.discard(queue)
        assigned.task = tasks.spawn(self._fetcher.pull_always(assigned, delay_ms),
                                    f"pulls of {queue}")
        return assigned
