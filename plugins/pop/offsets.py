"""The pop offset of each queue, until it becomes a consumer offset.

A pop goes on where the last one ended. The group's consumer offset follows when what was given out
cannot be lost: when its check point is durable, or all of it was acknowledged. After a crash the
group goes on at the consumer offset: what was given out since comes again.

Source: PopBufferMergeService.commitOffsets, scanCommitOffset @5.3.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import TYPE_CHECKING, Final

from twistmq.plugins.pop.names import REVIVE_GROUP

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["SETTLED", "PopOffsets", "QueueKey", "Taken"]

#: Topic, group, queue.
QueueKey = tuple[str, str, int]
#: ``safe_from`` of what needs nothing more.
SETTLED: Final = 0


class Taken:
    """A part of a queue that was taken by one pop."""

    __slots__ = ("next_offset", "safe_from")

    def __init__(self, next_offset: int, safe_from: int | None) -> None:
        #: Queue offset the next pop begins at.
        self.next_offset = next_offset
        #: It is settled when the commit log is durable up to here; None: not even stored.
        self.safe_from = safe_from


class PopOffsets:
    """The queues of one broker that have parts which are not settled."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queues: dict[QueueKey, deque[Taken]] = {}

    @property
    def waits(self) -> bool:
        """Whether there are parts that are not settled."""
        return bool(self._queues)

    def latest(self, key: QueueKey) -> int:
        """The offset of the next pop of a queue; -1: the consumer offset."""
        taken = self._queues.get(key)
        return taken[-1].next_offset if taken else -1

    @property
    def total(self) -> int:
        """Parts of all queues that are not settled."""
        return sum(map(len, self._queues.values()))

    def count(self, key: QueueKey) -> int:
        """Parts of a queue that are not settled."""
        return len(self._queues.get(key, ()))

    def take(self, key: QueueKey, next_offset: int, safe_from: int | None) -> Taken:
        """A pop took the queue up to ``next_offset``."""
        taken = Taken(next_offset, safe_from)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append(taken)
        return taken

    def clear(self, key: QueueKey) -> None:
        """Forget a queue: an administrator set its offset, or it is not what it was."""
        self._queues.pop(key, None)

    def settle(self) -> None:
        """Make consumer offsets of what is settled."""
        if not self._queues:
            return
        durable = self._broker.store.commit_log.flushed_offset
        for key in list(self._queues):
            self._settle(key, durable)

    def _settle(self, key: QueueKey, durable: int) -> None:
        queue = self._queues[key]
        offset = -1
        while queue and queue[0].safe_from is not None and queue[0].safe_from <= durable:
            offset = queue.popleft().next_offset
        if not queue:
            del self._queues[key]
        topic, group, queue_id = key
        table = self._broker.consumer_offset
        # An offset that an administrator set waits for the group's next pop.
        if offset > table.query(group, topic, queue_id) and not table.is_reset(
                group, topic, queue_id):
            table.commit(REVIVE_GROUP, group, topic, queue_id, offset)

    def forget_topics(self, topics: Container[str]) -> None:
        """Forget the queues of topics that are deleted."""
        for key in [key for key in self._queues if key[0] in topics]:
            del self._queues[key]

    def forget_gone(self) -> None:
        """Forget queues of topics and groups that are not there any more."""
        broker = self._broker
        for key in [key for key in self._queues if broker.topic_config.get(key[0]) is None
                    or not broker.subscription_group.has(key[1])]:
            del self._queues[key]
