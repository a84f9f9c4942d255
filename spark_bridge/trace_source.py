"""``format("rocketmq_trace")``: reads the events of message traces, as a batch or a stream.

    spark.read.format("rocketmq_trace").option("nameServer", "host:9876").load()

The format reads the trace topic with ``format("rocketmq")`` and accepts its options. With the
option ``path``, it reads commit-log files with ``format("rocketmq_store")`` instead. Each row is
one event; ``trace_view`` joins the events of each message to one row.

Source: TraceConstants, TopicValidator.RMQ_SYS_TRACE_TOPIC @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twistmq.protocol.topic_names import TRACE_TOPIC
from twistmq.spark_bridge.columns import (
    TRACE_COLUMNS,
    Column,
    columns_of_schema,
    select_columns,
    spark_schema,
)
from twistmq.spark_bridge.options import BATCH_READ, STREAM_READ, OptionError, Options, option_text
from twistmq.spark_bridge.source import BatchReader
from twistmq.spark_bridge.store_options import StoreOptions
from twistmq.spark_bridge.store_source import StoreReader
from twistmq.spark_bridge.stream_source import StreamReader, reader_or_refusal
from twistmq.spark_bridge.trace_events import MESSAGE_COLUMNS, TraceEvents

__all__ = ["TraceReader", "TraceSource", "TraceStreamReader"]

#: The options for messages that have no meaning for events.
_WITHOUT_MEANING: Final = ("includeBody", "includeProperties", "bodyFormat", "propertiesAs")
_TOPIC_OPTIONS: Final = ("subscribe", "subscribePattern", "assign", "topic", "topics")
_log = logging.getLogger("twistmq.spark_bridge")


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
            options = StoreOptions.read(_renamed(given))
            return StoreTraceReader(replace(options, columns=MESSAGE_COLUMNS), columns)
        return TraceReader(Options(given, BATCH_READ), columns)

    def streamReader(self, schema: Any) -> Any:
        return reader_or_refusal(lambda: TraceStreamReader(
            Options(message_options(self.options), STREAM_READ),
            columns_of_schema(schema, TRACE_COLUMNS)))


def message_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options for the read of the trace messages.

    :raises OptionError: when an option has no meaning for events.
    """
    options = {key: value for key, value in given.items() if key.lower() != "columns"}
    for name in _WITHOUT_MEANING:
        if option_text(options, name):
            raise OptionError(f"option {name}: it has no meaning for traces")
    if option_text(options, "damaged").lower() == "deliver":
        raise OptionError("option damaged: a trace message that cannot be read has no events; "
                          "fail or skip")
    if not any(option_text(options, name) for name in _TOPIC_OPTIONS):
        options["subscribe"] = TRACE_TOPIC
    return options


def _renamed(given: Mapping[str, str]) -> dict[str, str]:
    """Remove the prefix that options of the format rocketmq may have."""
    return {key.lower().removeprefix("rocketmq."): value for key, value in given.items()}


def _events(batches: Iterator[Any], columns: list[Column]) -> Iterator[Any]:
    events = TraceEvents(columns)
    for batch in batches:
        yield from events.batches(batch)
    if events.bad_count:
        _log.warning("%d records of traces cannot be read; skipped", events.bad_count)


class TraceReader(BatchReader):
    """Reads trace events from brokers."""

    def __init__(self, options: Options, columns: list[Column]) -> None:
        super().__init__(options, MESSAGE_COLUMNS)
        self._events_columns = columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _events(super().read(partition), self._events_columns)


class TraceStreamReader(StreamReader):
    """Reads trace events as a stream."""

    def __init__(self, options: Options, columns: list[Column]) -> None:
        super().__init__(options, MESSAGE_COLUMNS)
        self._events_columns = columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _events(super().read(partition), self._events_columns)


class StoreTraceReader(StoreReader):
    """Reads trace events from commit-log files."""

    def __init__(self, options: StoreOptions, columns: list[Column]) -> None:
        super().__init__(options)
        self._events_columns = columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _events(super().read(partition), self._events_columns)
