"""The streaming reader, which plans micro-batches on the driver and reads them in tasks.

The checkpoint of Spark stores the offsets. An offset of the stream contains the position of the
next micro-batch in each queue. When a queue is found, it enters the offset with its first offset
only, and the following micro-batch reads it. The checkpoint therefore determines exactly which
messages a micro-batch reads, no matter how often Spark repeats the micro-batch.

Spark asks for the initial offset twice and uses the second answer, so the reader keeps the first
answer. Spark calls ``commit`` one micro-batch late, and it may never call ``stop``.

Before version 4.2, Spark does not pass the position of the query when it asks for the latest
offset, so the reader continues from its own last answer. After a restart, Spark asks once for the
partitions of an empty range at the offset of the checkpoint, which gives the reader the position.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from twistmq.client.blocking.client import Client
from twistmq.integrations.tables.columns import Column, ColumnsError
from twistmq.integrations.tables.errors import ShortError
from twistmq.integrations.tables.offsets import (
    Mark,
    offsets_json,
    queue_name,
    read_marks,
    read_offsets,
)
from twistmq.integrations.tables.options import OptionError, Options
from twistmq.integrations.tables.queue_reader import read_range
from twistmq.integrations.tables.ranges import QueueRange, limited, split
from twistmq.integrations.tables.read_planner import planned
from twistmq.integrations.tables.subscription import Subscription
from twistmq.integrations.tables.topic_read import naming_the_option, read_plan
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.errors import BrokerError
from twistmq.spark_bridge.source import RangePartition
from twistmq.spark_bridge.spark_api import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from twistmq.spark_bridge.stream_ends import Ends, StreamEnds

__all__ = ["RefusedStreamReader", "StreamReader", "reader_or_refusal"]

_LOG: Final = logging.getLogger("twistmq.spark_bridge")
#: The number of queues from which the size of messages is sampled, and of messages in each sample.
_SAMPLED_QUEUES: Final = 8
_SAMPLED_MESSAGES: Final = 32

Offsets = dict[MessageQueue, int]


class _Delay:
    """Delays a micro-batch until it has enough offsets or has waited for too long.

    :param min_count: the number of offsets that is enough.
    :param max_s: the longest delay after the last micro-batch.
    """

    def __init__(self, min_count: int, max_s: float) -> None:
        self._min_count = min_count
        self._max_s = max_s
        #: The time at which the last micro-batch was allowed to start; None before the first.
        self._last_s: float | None = None

    def waits(self, available: int) -> bool:
        """Whether a micro-batch with this number of offsets must wait."""
        return available < self._min_count and self._last_s is not None and (
            time.monotonic() - self._last_s < self._max_s)

    def note_batch(self) -> None:
        """Record that a micro-batch with offsets starts."""
        self._last_s = time.monotonic()


def _delay(options: Options) -> _Delay | None:
    """Make the delay that the options request; :raises OptionError: when they contradict."""
    min_count = options.integer_or_none("minOffsetsPerTrigger")
    max_count = options.integer_or_none("maxOffsetsPerTrigger")
    if min_count is None:
        if options.is_given("maxTriggerDelay"):
            raise OptionError("option maxTriggerDelay: it has no meaning without "
                              "minOffsetsPerTrigger")
        return None
    if max_count is not None and min_count > max_count:
        raise OptionError(f"option minOffsetsPerTrigger: {min_count} is more than "
                          f"maxOffsetsPerTrigger allows, {max_count}")
    return _Delay(min_count, options.duration_ms("maxTriggerDelay") / 1000)


def reader_or_refusal(make_reader: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Make the reader of a stream, or a stand-in that raises the error about a wrong option.

    :param make_reader: makes the reader; an ``OptionError`` or ``ColumnsError`` of it is kept.
    """
    try:
        return make_reader()
    except (OptionError, ColumnsError) as error:
        return RefusedStreamReader(error)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error when Spark calls it for the first time.

    An error that ``DataSource.streamReader`` raises never reaches the user alone: the process in
    which Spark runs the reader then ends with an ``UnboundLocalError`` of its own, which is the
    last line of the query's error.
    """

    def __init__(self, error: ShortError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def getDefaultReadLimit(self) -> Any:
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        raise self._error

    def latestOffset(self, start: dict[str, Any] | None = None,
                     limit: Any = None) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        raise self._error

    def commit(self, end: dict[str, Any]) -> None:
        raise self._error

    def read(self, partition: Any) -> Any:
        raise self._error


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
        #: The ends of the queues when Trigger.AvailableNow began.
        self._target: Offsets | None = None
        self._finder = StreamEnds(self._subscription, self._plan, self._connected)
        #: The last position that the calls of Spark have shown. Older releases do not pass it.
        self._position: dict[str, Any] | None = None
        #: The last known ends of the queues.
        self._ends: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy. They make their own connections, and they do not need the ends.
        return {**self.__dict__, "_client": None, "_finder": None}

    # --- methods that Spark calls on the driver

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            with naming_the_option():
                self._initial = self._finder.wait_for_servers(self._beginning)
        return self._initial

    def _beginning(self) -> dict[str, Any]:
        """Return where a new query starts."""
        start = planned(self._plan, self._connected(), self._start)
        return offsets_json(start, self._finder.marks(start))

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
        """Plan the next micro-batch; :returns: the offset at which it ends.

        :param start: the position of the query. Spark before 4.2 passes neither it nor the limit.
        """
        if start is None:
            start = self._position or self.initialOffset()
        if limit is None:
            limit = self.getDefaultReadLimit()
        positions, marks = read_offsets(start), read_marks(start)
        with naming_the_option():
            self._position = self._finder.wait_for_servers(
                lambda: self._planned(positions, marks, limit))
        if self._delay is not None and any(
                offset > positions.get(queue, offset)
                for queue, offset in read_offsets(self._position).items()):
            self._delay.note_batch()
        return self._position

    def _planned(
        self, positions: Offsets, marks: dict[MessageQueue, Mark], limit: Any
    ) -> dict[str, Any]:
        """Find the ends of the queues, and the end of the next micro-batch.

        Both are found again if a queue changes in between.
        """
        latest = self._finder.find(positions, self._target, marks)
        if self._target is not None:
            self._target = latest.ends
        self._ends = latest.ends
        return self._next(positions, marks, latest, limit)

    def _next(self, positions: Offsets, marks: dict[MessageQueue, Mark], latest: Ends,
              limit: Any) -> dict[str, Any]:
        """Compute the end of the next micro-batch within the limits."""
        ends = {**latest.ends, **latest.moved}
        new = {queue: self._connected().min_offset(queue)
               for queue in ends if queue not in positions}
        self._finder.judge_new(positions, new)
        chosen = {queue: ends.get(queue, offset) for queue, offset in positions.items()}
        forward = {queue: end for queue, end in chosen.items() if end > positions[queue]}
        available = sum(end - positions[queue] for queue, end in forward.items())
        # Trigger.AvailableNow never waits, because an empty micro-batch would end the query before
        # it has read all messages.
        if self._delay is not None and self._target is None and self._delay.waits(available):
            forward = {queue: positions[queue] for queue in forward}
        for max_count in self._limits(positions, forward, limit):
            forward = limited(positions, forward, max_count)
        offsets = {**chosen, **forward, **new}
        changed = {queue: offset for queue, offset in offsets.items()
                   if positions.get(queue) != offset}
        kept = {queue: mark for queue, mark in marks.items() if queue not in changed}
        return offsets_json(offsets, {**kept, **self._finder.marks(changed)})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offsets_json(self._ends) if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._position = end
        positions = read_offsets(start)
        ranges = [QueueRange(queue.topic, queue.broker_name, queue.queue_id, positions[queue], last)
                  for queue, last in read_offsets(end).items() if queue in positions]
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
        """Commit the progress to the consumer group; a failure does not stop the query."""
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

    # --- methods that Spark calls in a task

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
        """Find the offsets at which a new query starts."""
        return self._subscription.start(client, self._subscription.queues(client, refresh=True))

    # --- admission control

    def _limits(self, start: Offsets, end: Offsets, limit: Any) -> Iterator[int]:
        """Yield the largest number of offsets in a micro-batch for each limit that applies."""
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
        """Estimate the size of a message in bytes.

        The result is the mean over the next few messages of the queues with the longest backlogs.
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
