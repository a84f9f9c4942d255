"""Ranges of offsets: how queues are cut into partitions, and what a micro-batch may take.

Pure arithmetic; offsets are logical indices in a queue, a range is [start, end).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from twistmq.broker.wire.bodies import MessageQueue
from twistmq.spark_bridge.offsets import queue_name
from twistmq.spark_bridge.options import OptionError

__all__ = ["PARTITIONS_MAX", "QueueRange", "limited", "split"]

#: Partitions that queues are cut into at most, as many as minPartitions may ask for: the driver
#: holds all of them, and a broker may name any offset as the end of a queue.
PARTITIONS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """Offsets of one queue that a task reads."""

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
        """Cut into a number of pieces that differ by one offset at most; empty ones are left out.
        """
        bounds = [self.start + self.size * index // pieces for index in range(pieces + 1)]
        return [QueueRange(self.topic, self.broker_name, self.queue_id, start, end)
                for start, end in pairwise(bounds) if start < end]


def split(ranges: Iterable[QueueRange], min_partitions: int | None = None,
          max_records: int | None = None) -> list[QueueRange]:
    """Cut ranges into partitions, in the order of queues and offsets.

    :param min_partitions: the least number of partitions, if there are enough offsets.
    :param max_records: no piece has more offsets.
    :raises OptionError: when that needs more partitions than the driver can hold.
    """
    found = sorted(one for one in ranges if one.size > 0)
    pieces = [1] * len(found)
    if max_records is not None:
        pieces = [-(-one.size // max_records) for one in found]
        if sum(pieces) > max(PARTITIONS_MAX, len(found)):
            most = max(found, key=lambda one: one.size)
            raise OptionError(
                f"option maxRecordsPerPartition: {max_records} would make {sum(pieces)} "
                f"partitions, of {PARTITIONS_MAX} at most; the longest range is that of "
                f"{queue_name(most.queue)}, from offset {most.start} to {most.end}")
    if min_partitions is not None:
        missing = min(min_partitions, sum(one.size for one in found)) - sum(pieces)
        # The largest pieces are cut first, so that all are of about one size.
        largest = [(-one.size / count, index)
                   for index, (one, count) in enumerate(zip(found, pieces, strict=True))]
        heapq.heapify(largest)
        for _ in range(missing):
            index = largest[0][1]
            pieces[index] += 1
            heapq.heapreplace(largest, (-found[index].size / pieces[index], index))
    return [piece for one, count in zip(found, pieces, strict=True) for piece in one.cut(count)]


def limited(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int],
            most: int) -> dict[MessageQueue, int]:
    """The end of a micro-batch with a limit of offsets.

    Each queue with messages gets one, as far as there are so many, and of the rest a share by what
    it has waiting: none waits for ever behind larger ones.

    :param start: where each queue of ``end`` goes on.
    :param most: offsets, >= 1.
    """
    waiting = {queue: max(end[queue] - start[queue], 0) for queue in sorted(end)}
    total = sum(waiting.values())
    if total <= most:
        return {queue: max(end[queue], start[queue]) for queue in end}
    by_waiting = sorted((queue for queue in waiting if waiting[queue]),
                        key=lambda queue: (-waiting[queue], queue))
    shares = dict.fromkeys(waiting, 0)
    for queue in by_waiting[:most]:
        shares[queue] = 1
    rest, more = most - sum(shares.values()), total - len(by_waiting)
    if rest:
        for queue in by_waiting:
            shares[queue] += (waiting[queue] - 1) * rest // more
        # The rest after rounding.
        left = most - sum(shares.values())
        for queue in [one for one in by_waiting if shares[one] < waiting[one]][:left]:
            shares[queue] += 1
    return {queue: start[queue] + shares[queue] for queue in end}
