"""The gate of a member's pulls: a queue is pulled while nothing keeps it from being pulled.

    the consumer or the queue is paused, or its lock is missing    checked again after 1 s
    a limit is reached, see flow_control.py                        checked again after 50 ms
"""

from __future__ import annotations

from typing import Any

from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import (
    AssignedQueue,
    AssignedQueues,
    MemberOptions,
)
from twistmq.client.core.consumer.flow_control import FULL_MS, PAUSED_MS, PullFlow

__all__ = ["PullGate"]


class PullGate:
    """Decides when the queues of one member may be pulled.

    :param needs_locks: whether a queue is pulled only under its lock.
    """

    def __init__(
        self, tasks: Scheduler, options: MemberOptions, queues: AssignedQueues[Any],
        flow: PullFlow, *, needs_locks: bool,
    ) -> None:
        self._tasks = tasks
        self._in_order = options.in_order
        self._has_topic_limits = (options.limits.topic_count >= 0
                                  or options.limits.topic_byte_count >= 0)
        self._queues = queues
        self._flow = flow
        self._needs_locks = needs_locks
        #: Whether all queues are paused.
        self.is_paused = False

    def wait_ms(self, assigned: AssignedQueue[Any], under_way: int = 0) -> float:
        """Return how long a queue has to wait, in ms; with 0, it may be pulled now.

        :param under_way: the number of messages that pulls of the queue in flight may return.
        """
        now_ms = int(self._tasks.now_ms)
        if self.is_paused or assigned.is_paused:
            return PAUSED_MS
        if self._needs_locks and not assigned.window.holds_lock(now_ms):
            return PAUSED_MS
        queue_count = sum(each.queue.topic == assigned.queue.topic
                          for each in self._queues.values()) if self._has_topic_limits else 1
        if self._flow.excess(assigned.window, now_ms, queue_count, in_order=self._in_order,
                             under_way=under_way):
            return FULL_MS
        return 0
