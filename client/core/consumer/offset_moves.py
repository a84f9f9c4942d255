"""Moves of offsets: a queue is dropped, and the next round of the rebalance takes it again.

    a tool or a broker moves the offset    the queue continues at the new offset
    the topic was deleted                  the queue begins at its first message when it comes back

Source: MQClientInstance.resetOffset, DefaultMQPushConsumerImpl.pullMessage (OFFSET_ILLEGAL) @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, AssignedQueues
from twistmq.client.core.consumer.offsets import OffsetStore
from twistmq.client.core.consumer.stop_positions import StopPositions
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.log_rate import LimitedLines

__all__ = ["OffsetMoves"]

log = logging.getLogger("twistmq.client")


class OffsetMoves:
    """Drops queues of one member that continue elsewhere.

    :param group: the group's name at brokers.
    :param wake: requests a round of the rebalance.
    """

    def __init__(
        self, tasks: Scheduler, group: str, queues: AssignedQueues[Any], offsets: OffsetStore,
        stops: StopPositions, wake: Callable[[], object],
    ) -> None:
        self._tasks = tasks
        self._group = group
        self._queues = queues
        self._offsets = offsets
        self._stops = stops
        self._wake = wake
        #: A broker decides how often it moves a group.
        self._lines = LimitedLines(log.warning)

    async def move_to(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue queues at other offsets, also at lower ones; messages read are forgotten.

        Results of running messages do not count. Queues of other members are left out.
        """
        self._stops.forget(offsets)
        moved = {queue: offset for queue, offset in offsets.items() if queue in self._queues}
        for queue, offset in moved.items():
            window = self._queues[queue].window
            for message in window.drop():
                message.lost = True
            window.freeze_at(offset)
        if not moved:
            return
        self._lines.write(
            self._tasks.now_ms, "group %s: these queues continue at other offsets: %s", self._group,
            ", ".join(f"{queue} at {offset}" for queue, offset in moved.items()))
        for queue, offset in (await self._offsets.write(moved)).items():
            if queue in self._queues and self._queues[queue].window.is_dropped:
                self._queues[queue].committed = offset
        self._wake()

    def topic_deleted(self, assigned: AssignedQueue[Any]) -> None:
        """Begin a queue with its first message in the next round, because its topic was deleted."""
        self._stops.deleted.add(assigned.queue)
        self._offsets.topic_deleted(assigned.queue)
        for message in assigned.window.drop():
            message.lost = True
        assigned.committed = assigned.window.committable
        self._wake()
