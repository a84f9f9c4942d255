"""``format("rocketmq")``: its registration with Spark, and the batch reader.

    spark.read.format("rocketmq").option("nameServer", "host:9876").option("subscribe", "orders")

OPTIONS.md describes the options, and COLUMNS.md describes the columns. A schema that is passed to
``.schema()`` selects columns too; their names and types must be as in COLUMNS.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twistmq.integrations.tables.columns import COLUMNS, Column, ColumnsError
from twistmq.integrations.tables.options import (
    BATCH_READ,
    BATCH_WRITE,
    STREAM_READ,
    STREAM_WRITE,
    OptionError,
    Options,
    option_text,
)
from twistmq.integrations.tables.queue_reader import Last
from twistmq.integrations.tables.topic_read import TopicPart, TopicRead, selected_columns
from twistmq.spark_bridge.spark_schema import columns_of_schema, spark_schema

__all__ = ["RangePartition", "RocketMQDataSource", "message_columns"]


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
        return spark_schema(selected_columns(self.options))

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


class BatchReader(DataSourceReader):
    """Reads the messages between two offsets of each queue; Spark pickles it for the tasks."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._topics = TopicRead(options, columns)

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each queue, or more if the options require it."""
        parts = []
        for one in self._topics.queue_parts():
            part = RangePartition(one.range)
            part.brokers, part.planned_ms = one.brokers, one.planned_ms
            parts.append(part)
        return list(parts)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # If the plan has no partitions, Spark reads a partition without a value.
        if partition.value is None:
            return iter(())
        # Tasks get this reader as it was before partitions() was called.
        return self._topics.batches(TopicPart(
            partition.value, getattr(partition, "brokers", ()),
            getattr(partition, "planned_ms", 0)))
