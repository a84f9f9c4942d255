"""``format("rocketmq")``: its registration with Spark, and the batch reader.

    spark.read.format("rocketmq").option("nameServer", "host:9876").option("subscribe", "orders")

OPTIONS.md describes the options, and COLUMNS.md describes the columns. A schema that is passed to
``.schema()`` selects columns too; their names and types must be as in COLUMNS.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twistmq.client.base.errors import NoRoute, ProtocolError, Undecodable
from twistmq.client.blocking.client import Client
from twistmq.client.core.consumer.subscriptions import looks_like_sql
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.errors import RemotingError, RequestRefused
from twistmq.spark_bridge.availability import is_denied
from twistmq.spark_bridge.columns import (
    COLUMNS,
    Column,
    ColumnsError,
    columns_of_schema,
    select_columns,
    spark_schema,
)
from twistmq.spark_bridge.connection import client_settings
from twistmq.spark_bridge.offsets import queue_name
from twistmq.spark_bridge.options import (
    BATCH_READ,
    BATCH_WRITE,
    STREAM_READ,
    STREAM_WRITE,
    OptionError,
    Options,
    option_text,
)
from twistmq.spark_bridge.queue_reader import Last, ReadPlan, read_range
from twistmq.spark_bridge.ranges import QueueRange, split
from twistmq.spark_bridge.read_planner import brokers_of, check_brokers, planned
from twistmq.spark_bridge.subscription import Subscription

__all__ = ["RangePartition", "RocketMQDataSource", "message_columns", "naming_the_option",
           "read_plan"]

_GROUP_LENGTH_MAX: Final = 255


class RangePartition(InputPartition):
    """A range of one queue; ``value`` is the QueueRange."""

    #: In a batch: the brokers that had the topic when the read was planned, and the time of that
    #: plan, Unix ms.
    brokers: tuple[str, ...] = ()
    planned_ms: int = 0
    #: In a stream: the last message that the queue had when the micro-batch was planned.
    last: Last | None = None


class RocketMQDataSource(DataSource):
    """The data source; Spark makes one for each query."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def _trace_view(self) -> DataSource | None:
        """Return the source of trace events if the option traceView requests them."""
        if option_text(self.options, "traceView").lower() != "true":
            return None
        from twistmq.spark_bridge.trace_source import TraceSource

        return TraceSource(self.options)

    def schema(self) -> Any:
        """Return the columns that the options select.

        :raises ColumnsError: when they select no column or an unknown one.
        """
        traces = self._trace_view()
        if traces is not None:
            return traces.schema()
        return spark_schema(select_columns(
            option_text(self.options, "columns"),
            has_properties=option_text(self.options, "includeProperties").lower() != "false",
            has_body=option_text(self.options, "includeBody").lower() != "false",
            body_format=option_text(self.options, "bodyFormat") or "binary",
            properties_as=option_text(self.options, "propertiesAs") or "map",
            damaged=option_text(self.options, "damaged")))

    def reader(self, schema: Any) -> DataSourceReader:
        traces = self._trace_view()
        if traces is not None:
            return traces.reader(schema)
        options = Options(self.options, BATCH_READ)
        return BatchReader(options, message_columns(schema))

    def streamReader(self, schema: Any) -> Any:
        from twistmq.spark_bridge.stream_source import StreamReader, reader_or_refusal

        traces = self._trace_view()
        if traces is not None:
            return traces.streamReader(schema)
        return reader_or_refusal(lambda: StreamReader(
            Options(self.options, STREAM_READ), message_columns(schema)))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from twistmq.spark_bridge.sink import BatchWriter

        if overwrite:
            raise OptionError('option mode: "overwrite" has no meaning for a topic, use "append"')
        return BatchWriter(Options(self.options, BATCH_WRITE), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from twistmq.spark_bridge.sink import StreamWriter

        return StreamWriter(Options(self.options, STREAM_WRITE), schema)


def message_columns(schema: Any) -> tuple[Column, ...]:
    """Find the message columns that a StructType requests.

    :raises ColumnsError: when a column is unknown, has another type, or may be null although the
        schema forbids it.
    """
    columns = tuple(columns_of_schema(schema))
    may_be_null = {column.name for column in COLUMNS if column.nullable}
    for column in columns:
        if not column.nullable and column.name in may_be_null:
            raise ColumnsError(f"column {column.name}: it may be null")
    return columns


def read_plan(options: Options, columns: tuple[Column, ...]) -> ReadPlan:
    """Make the plan for the tasks; :raises OptionError: when options contradict each other."""
    group = options.text("group") or options.text("groupIdPrefix")
    if len(group) > _GROUP_LENGTH_MAX:
        raise OptionError(f"option group: longer than {_GROUP_LENGTH_MAX}")
    expression = options.text("subExpression")
    expression_type = options.text("subExpressionType").upper()
    if expression_type == "TAG" and looks_like_sql(expression):
        raise OptionError(f"option subExpression: {expression!r} looks like SQL92, but "
                          "subExpressionType is TAG: set it to SQL92")
    return ReadPlan(
        client_settings(options), columns, group, expression, expression_type,
        options.integer("pullBatchSize"),
        options.flag("failOnDataLoss"), options.text("damaged").lower() or (
            "fail" if options.flag("failOnDataLoss") else "skip"),
        _names(options.text("brokers")),
        _names(options.text("removedBrokers")) if options.where == STREAM_READ else ())


def _names(text: str) -> tuple[str, ...]:
    """Split a list of names at commas and sort it."""
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


@contextlib.contextmanager
def naming_the_option(queue: MessageQueue | None = None) -> Iterator[None]:
    """Convert an error during planning to one that names the option and the queue.

    :raises OptionError: when a server cannot be reached, refuses a request, or sends a response
        that cannot be used.
    """
    try:
        yield
    except (RemotingError, RequestRefused, ProtocolError, Undecodable) as error:
        prefix = "" if queue is None else f"{queue_name(queue)}: "
        option = "accessKey" if is_denied(error) else "nameServer"
        raise OptionError(f"option {option}: {prefix}{error}") from None


class BatchReader(DataSourceReader):
    """Reads the messages between two offsets of each queue."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._options = options
        self._subscription = Subscription(options)
        self._plan = read_plan(options, columns)
        #: The brokers of each topic, according to the route from which the plan was made.
        self._brokers: dict[str, set[str]] = {}

    def partitions(self) -> list[InputPartition]:
        """Ask where the queues begin and end.

        :returns: a partition for each queue, or more if the options require it.
        """
        with self._plan.settings.client() as client, naming_the_option():
            planned_ms = time.time_ns() // 1_000_000
            ranges = planned(self._plan, client, self._ranges)
        parts = [RangePartition(one) for one in split(
            ranges, self._options.integer_or_none("minPartitions"),
            self._options.integer_or_none("maxRecordsPerPartition"))]
        if not self._options.is_given("assign"):
            for part in parts:
                part.brokers = tuple(sorted(self._brokers[part.value.topic]))
                part.planned_ms = planned_ms
        return list(parts)

    def _ranges(self, client: Client) -> list[QueueRange]:
        """Determine the range to read from each queue."""
        queues = self._subscription.queues(client, refresh=True)
        self._brokers = brokers_of(queues)
        start = self._subscription.start(client, queues)
        end = self._subscription.end(client, queues)
        ranges = _ranges(start, end, self._subscription.ending_option)
        if brokers_of(self._subscription.queues(client, refresh=True)) != self._brokers:
            raise NoRoute("the brokers of a topic changed while the read was planned")
        return ranges

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # If the plan has no partitions, Spark reads a partition without a value.
        if partition.value is None:
            return iter(())
        # Tasks get this reader as it was before partitions() was called.
        plan = self._plan
        brokers = getattr(partition, "brokers", ())
        if not brokers:
            return read_range(plan, partition.value)
        return read_range(plan, partition.value, partial(
            check_brokers, plan, partition.value.topic, brokers, partition.planned_ms))


def _ranges(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int],
            ending_option: str) -> list[QueueRange]:
    """Combine the start and the end of each queue to a range.

    :param ending_option: the name of the option that determines the ends; error texts contain it.
    :raises OptionError: when the end of a queue is before its start.
    """
    ranges = []
    for queue, first in start.items():
        if end[queue] < first:
            raise OptionError(f"option {ending_option}: {queue_name(queue)}: it ends at "
                              f"{end[queue]}, before it starts at {first}")
        ranges.append(QueueRange(queue.topic, queue.broker_name, queue.queue_id, first, end[queue]))
    return ranges
