"""The pop offset of each queue, until it becomes a consumer offset.

A pop continues where the previous one ended. The consumer offset of the group follows when the
messages given out cannot be lost: when their check point is durable, or all of them were
acknowledged. After a crash the group continues at the consumer offset, so messages given out since
then are delivered again.

Source: PopBufferMergeService.commitOffsets, scanCommitOffset @5.3.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import TYPE_CHECKING, Final

from twistmq.plugins.pop.names import REVIVE_GROUP

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["SETTLED", "PopOffsets", "QueueKey", "TakenRange"]

#: Topic, group and queue id.
QueueKey = tuple[str, str, int]
#: The ``safe_from`` of a range that is settled already.
SETTLED: Final = 0


class TakenRange:
    """A range of a queue that was taken by one pop."""

    __slots__ = ("next_offset", "safe_from")

    def __init__(self, next_offset: int, safe_from: int | None) -> None:
        #: Queue offset at which the next pop begins.
        self.next_offset = next_offset
        #: The range is settled when the commit log is settled up to here; None: not stored yet.
        self.safe_from = safe_from


class PopOffsets:
    """The queues of one broker that have unsettled ranges."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queues: dict[QueueKey, deque[TakenRange]] = {}

    @property
    def waits(self) -> bool:
        """Whether there are unsettled ranges."""
        return bool(self._queues)

    def latest(self, key: QueueKey) -> int:
        """Return the offset of the next pop of a queue, or -1 to use the consumer offset."""
        queue = self._queues.get(key)
        return queue[-1].next_offset if queue else -1

    @property
    def total(self) -> int:
        """The number of unsettled ranges of all queues."""
        return sum(map(len, self._queues.values()))

    def count(self, key: QueueKey) -> int:
        """Return the number of unsettled ranges of a queue."""
        return len(self._queues.get(key, ()))

    def take(self, key: QueueKey, next_offset: int, safe_from: int | None) -> TakenRange:
        """Note that a pop took the queue up to ``next_offset``."""
        taken_range = TakenRange(next_offset, safe_from)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append(taken_range)
        return taken_range

    def clear(self, key: QueueKey) -> None:
        """Forget a queue because an administrator set its offset, or its contents changed."""
        self._queues.pop(key, None)

    def clear_all(self) -> None:
        """Forget all queues, which continue at their consumer offsets."""
        self._queues.clear()

    def settle(self) -> None:
        """Commit the ends of settled ranges as consumer offsets."""
        if not self._queues:
            return
        settled = self._broker.store.settled_offset
        for key in list(self._queues):
            self._settle(key, settled)

    def _settle(self, key: QueueKey, settled: int) -> None:
        queue = self._queues[key]
        offset = -1
        while queue and queue[0].safe_from is not None and queue[0].safe_from <= settled:
            offset = queue.popleft().next_offset
        if not queue:
            del self._queues[key]
        topic, group, queue_id = key
        table = self._broker.consumer_offset
        # An offset that an administrator set stays in place until the group's next pop.
        if offset > table.query(group, topic, queue_id) and not table.is_reset(
                group, topic, queue_id):
            table.commit(REVIVE_GROUP, group, topic, queue_id, offset)

    def forget_topics(self, topics: Container[str]) -> None:
        """Forget the queues of deleted topics."""
        for key in [key for key in self._queues if key[0] in topics]:
            del self._queues[key]

    def forget_gone(self) -> None:
        """Forget the queues of topics and groups that no longer exist."""
        broker = self._broker
        for key in [key for key in self._queues if broker.topic_config.get(key[0]) is None
                    or not broker.subscription_group.has(key[1])]:
            del self._queues[key]
