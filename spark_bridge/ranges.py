"""Splits ranges of offsets into partitions, and limits the ranges of a micro-batch.

The module contains only arithmetic. Offsets are logical indices in a queue, and a range is
[start, end).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from twistmq.protocol.bodies import MessageQueue

__all__ = ["QueueRange", "limited", "split"]


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The offsets of one queue that a task reads."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def size(self) -> int:
        return self.end - self.start

    def cut(self, pieces: int) -> list[QueueRange]:
        """Split the range into pieces whose sizes differ by at most one, and drop empty pieces."""
        bounds = [self.start + self.size * index // pieces for index in range(pieces + 1)]
        return [QueueRange(self.topic, self.broker_name, self.queue_id, start, end)
                for start, end in pairwise(bounds) if start < end]


def split(ranges: Iterable[QueueRange], min_partitions: int | None = None,
          max_records: int | None = None) -> list[QueueRange]:
    """Split ranges into partitions, in the order of queues and offsets.

    :param min_partitions: the least number of partitions, if there are enough offsets.
    :param max_records: the largest number of offsets in a partition.
    """
    nonempty = sorted(one for one in ranges if one.size > 0)
    pieces = [1] * len(nonempty)
    if max_records is not None:
        pieces = [-(-one.size // max_records) for one in nonempty]
    if min_partitions is not None:
        total = sum(one.size for one in nonempty)
        # The largest pieces are split first, so that all pieces have about the same size.
        while sum(pieces) < min(min_partitions, total):
            index = max(range(len(nonempty)), key=lambda i: nonempty[i].size / pieces[i])
            pieces[index] += 1
    return [piece for one, count in zip(nonempty, pieces, strict=True) for piece in one.cut(count)]


def limited(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int],
            max_count: int) -> dict[MessageQueue, int]:
    """Compute the end of a micro-batch that is limited to a number of offsets.

    Each queue with unread messages gets one offset, as far as the limit allows. The remaining
    offsets are shared in proportion to the backlogs. No queue therefore starves beside larger ones.

    :param start: the position of the query in each queue of ``end``.
    :param max_count: the limit, at least 1.
    """
    waiting = {queue: max(end[queue] - start[queue], 0) for queue in sorted(end)}
    total = sum(waiting.values())
    if total <= max_count:
        return {queue: max(end[queue], start[queue]) for queue in end}
    by_waiting = sorted((queue for queue in waiting if waiting[queue]),
                        key=lambda queue: (-waiting[queue], queue))
    shares = dict.fromkeys(waiting, 0)
    for queue in by_waiting[:max_count]:
        shares[queue] = 1
    rest, more = max_count - sum(shares.values()), total - len(by_waiting)
    if rest:
        for queue in by_waiting:
            shares[queue] += (waiting[queue] - 1) * rest // more
        # Distribute the remainder of the rounding.
        remainder = max_count - sum(shares.values())
        for queue in [one for one in by_waiting if shares[one] < waiting[one]][:remainder]:
            shares[queue] += 1
    return {queue: start[queue] + shares[queue] for queue in end}
