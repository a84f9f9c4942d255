"""Splits ranges of offsets into partitions, and limits the ranges of a micro-batch.

The module contains only arithmetic. Offsets are logical indices in a queue, and a range is
[start, end).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from twistmq.integrations.tables.offsets import queue_name
from twistmq.integrations.tables.options import OptionError
from twistmq.protocol.bodies import MessageQueue

__all__ = ["PARTITIONS_MAX", "QueueRange", "limited", "split"]

#: The largest number of partitions, which is also the limit of minPartitions: the driver holds all
#: partitions, and a broker may report any offset as the end of a queue.
PARTITIONS_MAX: Final = 100_000


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

    :param min_partitions: the smallest number of partitions, if there are enough offsets.
    :param max_records: the largest number of offsets in a partition.
    :raises OptionError: when this requires more partitions than the driver can hold.
    """
    nonempty = sorted(one for one in ranges if one.size > 0)
    pieces = [1] * len(nonempty)
    if max_records is not None:
        pieces = [-(-one.size // max_records) for one in nonempty]
        if sum(pieces) > max(PARTITIONS_MAX, len(nonempty)):
            longest = max(nonempty, key=lambda one: one.size)
            raise OptionError(
                f"option maxRecordsPerPartition: {max_records} would make {sum(pieces)} "
                f"partitions, of {PARTITIONS_MAX} at most; the longest range is in "
                f"{queue_name(longest.queue)}, from offset {longest.start} to {longest.end}")
    if min_partitions is not None:
        missing = min(min_partitions, sum(one.size for one in nonempty)) - sum(pieces)
        # The largest pieces are split first, so that all pieces have about the same size.
        by_size = [(-one.size / count, index)
                   for index, (one, count) in enumerate(zip(nonempty, pieces, strict=True))]
        heapq.heapify(by_size)
        for _ in range(missing):
            index = by_size[0][1]
            pieces[index] += 1
            heapq.heapreplace(by_size, (-nonempty[index].size / pieces[index], index))
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
