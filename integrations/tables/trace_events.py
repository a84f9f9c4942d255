"""Converts the messages of the trace topic to a table of events.

A message contains many records of one client, and each record becomes a row. Records that cannot be
read are left out, as in `mqadmin queryMsgTraceById`, and counted.

Source: TraceDataEncoder, TraceView @5.3.3; protocol/trace_records.py decodes the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Final

import pyarrow as pa

from twistmq.integrations.tables.columns import COLUMNS, TIME_MS_MAX, Column, arrow_schema
from twistmq.protocol.trace_records import (
    ContextCode,
    EndTransaction,
    MessageType,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_records,
)

__all__ = ["MESSAGE_COLUMNS", "TraceEvents"]

_NEEDED: Final = ("brokerName", "queueId", "queueOffset", "body", "bornHost", "storeTimestamp")
#: The columns that a table of messages must have to become a table of events.
MESSAGE_COLUMNS: Final = tuple(column for column in COLUMNS if column.name in _NEEDED)
#: The number of messages in one step; a message may contain a hundred records.
_MESSAGES: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TraceEvents:
    """Converts record batches of messages to record batches of events.

    :param columns: the columns of the batches, from TRACE_COLUMNS.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.schema: Any = arrow_schema(columns)
        #: The number of records that could not be read.
        self.bad_count = 0

    def batches(self, messages: Any) -> Iterator[Any]:
        """Extract the records of some messages.

        :param messages: a record batch with MESSAGE_COLUMNS.
        """
        for start in range(0, messages.num_rows, _MESSAGES):
            rows: list[dict[str, Any]] = []
            for message in messages.slice(start, _MESSAGES).to_pylist():
                rows += self._rows(message)
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=self.schema)

    def _rows(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        decoded = decode_records(message["body"])
        self.bad_count += decoded.bad_count
        host = message["bornHost"].rpartition(":")[0].strip("[]")
        for index, record in enumerate(decoded.records):
            row = event(record)
            row["clientHost"] = row.get("clientHost") or host
            row["eventIndex"] = index
            for name in ("brokerName", "queueId", "queueOffset", "storeTimestamp"):
                row[name] = message[name]
            yield row


def event(record: TraceRecord) -> dict[str, Any]:
    """Convert a record to a row; columns without a value are left out."""
    row: dict[str, Any] = {"traceType": type(record).__name__, "msgId": record.message_id,
                           "group": record.group}
    if record.time_ms is not None:
        row["time"] = _EPOCH + timedelta(milliseconds=min(max(record.time_ms, 0), TIME_MS_MAX))
    if not isinstance(record, SubAfter):
        row["region"] = record.region
    match record:
        case Pub():
            row |= {"topic": record.topic, "tags": record.tags, "keys": record.keys,
                    "storeHost": record.store_host, "bodyLength": _int32(record.body_length),
                    "costMs": record.cost_ms, "msgType": _name(MessageType, record.message_type),
                    "offsetMsgId": record.offset_message_id, "success": record.success,
                    "clientHost": record.client_host}
        case SubBefore():
            row |= {"requestId": record.request_id, "retryTimes": _int32(record.retry_times),
                    "keys": record.keys, "clientHost": record.client_host}
        case SubAfter():
            row |= {"requestId": record.request_id, "costMs": record.cost_ms,
                    "success": record.success, "keys": record.keys,
                    "contextCode": None if record.context_code is None else
                    _name(ContextCode, record.context_code)}
        case EndTransaction():
            row |= {"topic": record.topic, "tags": record.tags, "keys": record.keys,
                    "storeHost": record.store_host,
                    "msgType": _name(MessageType, record.message_type),
                    "transactionId": record.transaction_id, "transactionState": record.state,
                    "fromCheck": record.from_check}
        case Recall():
            row |= {"topic": record.topic, "success": record.success}
    return row


def _int32(value: int) -> int | None:
    """Return the number of a client, or None if it does not fit its column."""
    return value if -(1 << 31) <= value < 1 << 31 else None


def _name(kinds: type[IntEnum], number: int) -> str:
    """Return the name of an ordinal, or the number as text if a newer release added it."""
    try:
        return kinds(number).name
    except ValueError:
        return str(number)
