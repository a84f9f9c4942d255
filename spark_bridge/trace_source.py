"""``format("rocketmq_trace")``: reads the events of message traces, as a batch or a stream.

    spark.read.format("rocketmq_trace").option("nameServer", "host:9876").load()

The format reads the trace topic with ``format("rocketmq")`` and accepts its options. With the
option ``path``, it reads commit-log files with ``format("rocketmq_store")`` instead. Each row is
one event; ``trace_view`` joins the events of each message to one row.

Source: TraceConstants, TopicValidator.RMQ_SYS_TRACE_TOPIC @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twistmq.integrations.tables.columns import TRACE_COLUMNS, Column, select_columns
from twistmq.integrations.tables.options import BATCH_READ, STREAM_READ, Options, option_text
from twistmq.integrations.tables.store_options import StoreOptions
from twistmq.integrations.tables.trace_events import MESSAGE_COLUMNS
from twistmq.integrations.tables.trace_read import events_of, message_options, without_prefix
from twistmq.spark_bridge.source import BatchReader
from twistmq.spark_bridge.spark_schema import columns_of_schema, spark_schema
from twistmq.spark_bridge.store_source import StoreReader
from twistmq.spark_bridge.stream_source import StreamReader, reader_or_refusal

__all__ = ["TraceReader", "TraceSource", "TraceStreamReader"]


class TraceSource(DataSource):
    """The data source; Spark makes one for each query."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_trace"

    def schema(self) -> Any:
        return spark_schema(select_columns(option_text(self.options, "columns"),
                                           table=TRACE_COLUMNS))

    def reader(self, schema: Any) -> DataSourceReader:
        columns = columns_of_schema(schema, TRACE_COLUMNS)
        given = message_options(self.options)
        if option_text(given, "path"):
            options = StoreOptions.read(without_prefix(given))
            return StoreTraceReader(replace(options, columns=MESSAGE_COLUMNS), columns)
        return TraceReader(Options(given, BATCH_READ), columns)

    def streamReader(self, schema: Any) -> Any:
        return reader_or_refusal(lambda: TraceStreamReader(
            Options(message_options(self.options), STREAM_READ),
            columns_of_schema(schema, TRACE_COLUMNS)))


class TraceReader(BatchReader):
    """Reads trace events from brokers."""

    def __init__(self, options: Options, columns: list[Column]) -> None:
        super().__init__(options, MESSAGE_COLUMNS)
        self._events_columns = columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return events_of(super().read(partition), self._events_columns)


class TraceStreamReader(StreamReader):
    """Reads trace events as a stream."""

    def __init__(self, options: Options, columns: list[Column]) -> None:
        super().__init__(options, MESSAGE_COLUMNS)
        self._events_columns = columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return events_of(super().read(partition), self._events_columns)


class StoreTraceReader(StoreReader):
    """Reads trace events from commit-log files."""

    def __init__(self, options: StoreOptions, columns: list[Column]) -> None:
        super().__init__(options)
        self._events_columns = columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return events_of(super().read(partition), self._events_columns)
