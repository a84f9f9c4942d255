"""The streaming reader: offsets live in Spark's checkpoint, messages are read in tasks.

An offset of the stream says of each queue where the next micro-batch goes on. A queue that was not
there before enters it with its first offset, and is read from there by the micro-batch after that:
so what is read is always what the checkpoint says, however often it is read.

Spark asks for the initial offset twice and takes the second answer, so that the first is kept;
``commit`` comes one micro-batch late, and ``stop`` perhaps never.

A Spark before 4.2 does not say where the query is when it asks for the latest offset. The reader
then goes on from its own last answer. When a query restarts, Spark asks once for the partitions of
an empty range at the checkpoint's offset, and so tells it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from twistmq.client.blocking.client import Client
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.errors import BrokerError
from twistmq.spark_bridge.columns import Column
from twistmq.spark_bridge.offsets import (
    Mark,
    offsets_json,
    queue_name,
    read_marks,
    read_offsets,
)
from twistmq.spark_bridge.options import OptionError, Options
from twistmq.spark_bridge.planning import planned
from twistmq.spark_bridge.queue_reader import read_range
from twistmq.spark_bridge.ranges import QueueRange, limited, split
from twistmq.spark_bridge.source import RangePartition, naming_the_option, read_plan
from twistmq.spark_bridge.spark_api import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from twistmq.spark_bridge.stream_ends import Ends, StreamEnds
from twistmq.spark_bridge.subscription import Subscription

__all__ = ["StreamReader"]

_LOG: Final = logging.getLogger("twistmq.spark_bridge")
#: Queues whose messages are looked at for their size, and messages of each.
_SAMPLED_QUEUES: Final = 8
_SAMPLED_MESSAGES: Final = 32

Offsets = dict[MessageQueue, int]


class _Delay:
    """Holds a micro-batch back until there is enough for it, or it has waited for too long.

    :param least: the offsets that are enough.
    :param most_s: how long after the last micro-batch it may wait.
    """

    def __init__(self, least: int, most_s: float) -> None:
        self._least = least
        self._most_s = most_s
        #: When the last micro-batch was let through; None before the first.
        self._last_s: float | None = None

    def waits(self, available: int) -> bool:
        """Whether a micro-batch of so many offsets is held back."""
        return available < self._least and self._last_s is not None and (
            time.monotonic() - self._last_s < self._most_s)

    def begun(self) -> None:
        """Note that a micro-batch with offsets is let through."""
        self._last_s = time.monotonic()


def _delay(options: Options) -> _Delay | None:
    """The delay that options ask for; :raises OptionError: when they do not fit together."""
    least = options.integer_or_none("minOffsetsPerTrigger")
    most = options.integer_or_none("maxOffsetsPerTrigger")
    if least is None:
        if options.is_given("maxTriggerDelay"):
            raise OptionError("option maxTriggerDelay: it has no meaning without "
                              "minOffsetsPerTrigger")
        return None
    if most is not None and least > most:
        raise OptionError(f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger "
                          f"allows, {most}")
    return _Delay(least, options.duration_ms("maxTriggerDelay") / 1000)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and reads their partitions in tasks."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._options = options
        self._subscription = Subscription(options)
        self._plan = read_plan(options, columns)
        self._commits = options.flag("commitGroupOffsets")
        if self._commits and not options.is_given("group"):
            raise OptionError("option group: missing, commitGroupOffsets commits to it")
        self._delay = _delay(options)
        self._client: Client | None = None
        self._initial: dict[str, Any] | None = None
        #: Where the queues ended when Trigger.AvailableNow began.
        self._target: Offsets | None = None
        self._finder = StreamEnds(self._subscription, self._plan, self._connected)
        #: Where the query is, as far as its calls have told; for a Spark that does not say it.
        self._position: dict[str, Any] | None = None
        #: Where they end as far as is known.
        self._ends: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy; a connection is not shared, and they look for no ends.
        return {**self.__dict__, "_client": None, "_finder": None}

    # --- what Spark asks on the driver

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            with naming_the_option():
                start = planned(self._plan, self._connected(), self._start)
                self._initial = offsets_json(
                    start, self._finder.patiently(lambda: self._finder.marks(start)))
        return self._initial

    def getDefaultReadLimit(self) -> Any:
        rows = self._options.integer_or_none("maxOffsetsPerTrigger")
        size = self._options.integer_or_none("maxBytesPerTrigger")
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def prepareForTriggerAvailableNow(self) -> None:
        with naming_the_option():
            self._target = self._finder.find(None).ends

    def latestOffset(self, start: dict[str, Any] | None = None,
                     limit: Any = None) -> dict[str, Any]:
        """The offset at which the next micro-batch ends.

        :param start: where the query is; a Spark before 4.2 leaves it out, and the limit.
        """
        if start is None:
            start = self._position or self.initialOffset()
        if limit is None:
            limit = self.getDefaultReadLimit()
        known, marks = read_offsets(start), read_marks(start)
        with naming_the_option():
            found = self._finder.find(known, self._target, marks)
            if self._target is not None:
                self._target = found.ends
            self._ends = found.ends
            self._position = self._finder.patiently(
                lambda: self._next(known, marks, found, limit))
        if self._delay is not None and any(
                offset > known.get(queue, offset)
                for queue, offset in read_offsets(self._position).items()):
            self._delay.begun()
        return self._position

    def _next(self, known: Offsets, marks: dict[MessageQueue, Mark], found: Ends,
              limit: Any) -> dict[str, Any]:
        """The end of the next micro-batch, as the limits allow."""
        ends = {**found.ends, **found.moved}
        new = {queue: self._connected().min_offset(queue) for queue in ends if queue not in known}
        self._finder.judge_new(known, new)
        chosen = {queue: ends.get(queue, offset) for queue, offset in known.items()}
        forward = {queue: end for queue, end in chosen.items() if end > known[queue]}
        available = sum(end - known[queue] for queue, end in forward.items())
        # Trigger.AvailableNow ends a query when there is no micro-batch: it would leave the rest.
        if self._delay is not None and self._target is None and self._delay.waits(available):
            forward = {queue: known[queue] for queue in forward}
        for most in self._limits(known, forward, limit):
            forward = limited(known, forward, most)
        offsets = {**chosen, **forward, **new}
        changed = {queue: offset for queue, offset in offsets.items()
                   if known.get(queue) != offset}
        kept = {queue: mark for queue, mark in marks.items() if queue not in changed}
        return offsets_json(offsets, {**kept, **self._finder.marks(changed)})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offsets_json(self._ends) if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._position = end
        known = read_offsets(start)
        ranges = [QueueRange(queue.topic, queue.broker_name, queue.queue_id, known[queue], last)
                  for queue, last in read_offsets(end).items() if queue in known]
        parts = [RangePartition(one) for one in split(
            ranges, self._options.integer_or_none("minPartitions"),
            self._options.integer_or_none("maxRecordsPerPartition"))]
        ends, marks = read_offsets(end), read_marks(end)
        for part in parts:
            queue = part.value.queue
            if queue in marks:
                part.last = (ends[queue] - 1, marks[queue])
        return list(parts)

    def commit(self, end: dict[str, Any]) -> None:
        """Show the progress in the group; that it fails is no reason to stop."""
        if not self._commits:
            return
        group = self._options.text("group")
        for queue, offset in read_offsets(end).items():
            try:
                self._connected().commit_group_offset(group, queue, offset)
            except BrokerError as error:
                _LOG.warning("group %s, %s: offset %d is not committed: %s", group,
                             queue_name(queue), offset, error)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- what Spark asks in a task

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:
            return iter(())
        return read_range(self._plan, partition.value, last=getattr(partition, "last", None))

    # --- the client and the start

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._plan.settings.client()
        return self._client

    def _start(self, client: Client) -> Offsets:
        """Where a new query starts."""
        return self._subscription.start(client, self._subscription.queues(client, refresh=True))

    # --- admission control

    def _limits(self, start: Offsets, end: Offsets, limit: Any) -> Iterator[int]:
        """How many offsets a micro-batch may take at most, by each limit there is."""
        if isinstance(limit, ReadAllAvailable) or not end:
            return
        if isinstance(limit, ReadMaxRows):
            yield limit.max_rows
        size = self._options.integer_or_none("maxBytesPerTrigger")
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        if size is not None:
            yield max(size // self._message_size(start, end), 1)

    def _message_size(self, start: Offsets, end: Offsets) -> int:
        """The approximate bytes of a message: the mean of some next messages of the longest
        backlogs.
        """
        size = count = 0
        by_waiting = sorted(end, key=lambda queue: start[queue] - end[queue])
        for queue in by_waiting[:_SAMPLED_QUEUES]:
            result = self._connected().pull(queue, start[queue], group=self._plan.group,
                                            max_count=_SAMPLED_MESSAGES)
            if result.body:
                size += len(result.body)
                count += result.next_offset - start[queue]
        return max(size // max(count, 1), 1)
