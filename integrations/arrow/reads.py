"""The functions that read topics, stores and traces as streams of record batches.

The range of a read is determined when its function is called, so a wrong option or an unknown topic
is reported at once. The messages are fetched while the reader is consumed. The batch of the
consumer, the batches that are read ahead and the pulls in flight are in memory at a time.

Source: the Arrow C stream interface, which readers of other libraries use.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from twistmq.integrations.arrow.option_values import OptionValue, option_texts
from twistmq.integrations.arrow.read_ahead import read_ahead
from twistmq.integrations.tables.columns import (
    TRACE_COLUMNS,
    Column,
    arrow_schema,
    select_columns,
)
from twistmq.integrations.tables.log_pieces import LogPiece
from twistmq.integrations.tables.options import (
    BATCH_READ,
    OPTIONS,
    OptionError,
    Options,
    option_text,
)
from twistmq.integrations.tables.store_options import STORE_OPTIONS, StoreOptions
from twistmq.integrations.tables.store_read import StoreRead
from twistmq.integrations.tables.topic_read import TopicPart, TopicRead, selected_columns
from twistmq.integrations.tables.trace_events import MESSAGE_COLUMNS
from twistmq.integrations.tables.trace_read import events_of, message_options

__all__ = ["read_messages", "read_store", "read_traces"]

_TOPIC_OPTIONS: Final = tuple(name for option in OPTIONS for name in (option.name, *option.aliases))
#: The approximate size of a record batch. With the 8 MiB that tasks of Spark have, a process that
#: also runs DuckDB needs more than 300 MB.
_BATCH_BYTES: Final = 3 << 20
#: The size of the batches that are read ahead.
_AHEAD_BYTES: Final = 8 << 20
_STORE_OPTIONS: Final = tuple(name for row in STORE_OPTIONS for name in (row.name, *row.aliases))


def read_messages(name_servers: str = "", topic: str | Sequence[str] | None = None,
                  **options: OptionValue) -> pa.RecordBatchReader:
    """Read the messages of topics that exist now, or a part of them.

    :param name_servers: the name servers, ``host:port;host:port``; empty for the environment
        variable ``NAMESRV_ADDR``.
    :param topic: the topic, or several topics. Without it, the options ``subscribe_pattern`` or
        ``assign`` select topics or queues.
    :param options: the options of a batch in spark_bridge/OPTIONS.md, such as ``columns``,
        ``starting_timestamp`` and ``sub_expression``.
    :returns: a reader whose batches have the rows of one queue after the other, in the order of
        each queue. It raises DataLoss, ReadFailed, StillAway or BodyUnreadable when the messages
        cannot be read. Its connections are closed at its end, or soon after it was dropped.
    :raises OptionError: when an option is wrong, or no server answers.
    :raises ColumnsError: when a column does not exist.
    :raises TopicMissing: when a topic or a queue does not exist.
    """
    given = option_texts({"nameServer": name_servers or None, "subscribe": topic, **options},
                         _TOPIC_OPTIONS)
    checked = Options(given, BATCH_READ)
    if checked.flag("traceView"):
        raise OptionError("option traceView: it has no meaning here, read_traces reads events")
    columns = selected_columns(given)
    topics = TopicRead(checked, tuple(columns), _BATCH_BYTES)
    return _reader(columns, _topic_batches(topics, topics.queue_parts()))


def read_store(folder: str | os.PathLike[str], **options: OptionValue) -> pa.RecordBatchReader:
    """Read the messages in the commit-log files of a store, without a broker.

    :param folder: the folder of a store, the folder of its log, or a URI of either, such as
        ``s3://bucket/store``. The broker may be running or stopped.
    :param options: the options of the format ``rocketmq_store`` in spark_bridge/README.md, such as
        ``topics``, ``columns`` and ``fail_on_data_loss``.
    :returns: a reader whose batches have the rows in the order of the log. It raises StoreDamaged,
        BodyUnreadable or LostFile at damage, unless ``fail_on_data_loss`` is False.
    :raises OptionError: when an option is wrong.
    :raises ColumnsError: when a column does not exist.
    :raises StoreError: when the folder is not a store.
    """
    checked = StoreOptions.read(option_texts({"path": os.fspath(folder), **options},
                                             _STORE_OPTIONS))
    store = StoreRead(checked)
    return _reader(checked.columns, _store_batches(store, store.pieces()))


def read_traces(name_servers: str = "", *, path: str | os.PathLike[str] | None = None,
                **options: OptionValue) -> pa.RecordBatchReader:
    """Read the events of message traces, from brokers or from the files of a store.

    :param name_servers: as in :func:`read_messages`.
    :param path: the store; without it, the name servers are asked.
    :param options: the options of :func:`read_messages`, or with a path the options of
        :func:`read_store`. ``topic`` names another topic than the system's.
    :returns: a reader whose batches have a row for each event. It raises what the readers of
        messages raise. Records that cannot be decoded are counted in a warning.
    :raises OptionError: when an option is wrong, or no server answers.
    :raises ColumnsError: when a column does not exist.
    :raises TopicMissing: when no broker has traces.
    :raises StoreError: when the path is not a store.
    """
    if path is not None and name_servers:
        raise OptionError("option path: only one of name_servers and path may be given")
    known = _TOPIC_OPTIONS if path is None else _STORE_OPTIONS
    given = option_texts({
        "nameServer": name_servers or None, "path": None if path is None else os.fspath(path),
        **options}, known)
    columns = select_columns(option_text(given, "columns"), table=TRACE_COLUMNS)
    message_texts = message_options(given)
    if path is not None:
        store = StoreRead(replace(StoreOptions.read(message_texts), columns=MESSAGE_COLUMNS))
        return _reader(columns, events_of(_store_batches(store, store.pieces()), columns))
    topics = TopicRead(Options(message_texts, BATCH_READ), MESSAGE_COLUMNS, _BATCH_BYTES)
    return _reader(columns, events_of(_topic_batches(topics, topics.queue_parts()), columns))


def _topic_batches(topics: TopicRead, parts: Sequence[TopicPart]
                   ) -> Generator[Any, None, None]:
    """Read the parts of topics, one after the other."""
    for part in parts:
        yield from topics.batches(part)


def _store_batches(store: StoreRead, pieces: Sequence[LogPiece]
                   ) -> Generator[Any, None, None]:
    """Read the pieces of a store, one after the other."""
    for piece in pieces:
        yield from store.batches(piece)


def _reader(columns: Sequence[Column], batches: Generator[Any, None, None]
            ) -> pa.RecordBatchReader:
    """Make a reader from a generator of batches."""
    ahead = read_ahead(batches, lambda batch: batch.nbytes, _AHEAD_BYTES)
    return pa.RecordBatchReader.from_batches(arrow_schema(columns), ahead)
