"""The columns of a table of messages: each row defines a column for the code and COLUMNS.md.

The schemas of Arrow and of Spark are made from the same rows, so a record batch has exactly the
schema that Spark requests: the names, their order, the nullability, the element of a list and the
value of a map. This module imports Arrow only when a schema is made. The schemas of Spark and the
page of all columns are made in ``spark_bridge``.

Source: MessageExt, MessageConst @5.3.3; to_arrow_schema of PySpark 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from twistmq.integrations.tables.errors import ShortError

__all__ = [
    "BODY_STRING", "COLUMNS", "DAMAGE", "DERIVED_COLUMNS", "PROPERTIES_STRING", "TIME_MS_MAX",
    "TIME_MS_MIN", "TRACE_COLUMNS", "Column", "ColumnsError",
    "arrow_schema", "default_columns", "select_columns",
]

#: The first and the last time of a column, Unix ms. A timestamp in Spark has a year from 1 to 9999.
#: PySpark converts it to a datetime in the local zone, which has the same limits, so a day is left
#: out at both ends.
TIME_MS_MIN: Final = -62_135_510_400_000
TIME_MS_MAX: Final = 253_402_214_399_999


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    #: The name of the type in Spark's DDL.
    type: str
    nullable: bool
    meaning: str
    #: Whether the column is selected if the option ``columns`` is not given.
    is_default: bool = True


class ColumnsError(ShortError, ValueError):
    """The option ``columns`` names no column, or an unknown one."""


def _column(name: str, type_name: str, meaning: str, *, nullable: bool = False,
            is_default: bool = True) -> Column:
    return Column(name, type_name, nullable, meaning, is_default)


#: The columns of a message. Fields of the record are never null; values from properties may be.
COLUMNS: Final[tuple[Column, ...]] = (
    _column("topic", "string", "the topic under which the message is stored"),
    _column("brokerName", "string", "the broker from which the message was read; null for store "
            "files, unless the option brokerName is given", nullable=True),
    _column("queueId", "int", "the queue of the message, from 0 on"),
    _column("queueOffset", "bigint", "the position of the message in its queue, in messages"),
    _column("commitLogOffset", "bigint", "the position of the message in the commit log, in bytes"),
    _column("msgId", "string", "the id that the producer assigned (property UNIQ_KEY)",
            nullable=True),
    _column("offsetMsgId", "string", "the id that consists of the broker's address and "
            "commitLogOffset"),
    _column("keys", "array<string>", "property KEYS, split at spaces", nullable=True),
    _column("tags", "string", "property TAGS", nullable=True),
    _column("body", "binary", "the body, decompressed; a string with bodyFormat=string"),
    _column("properties", "map<string,string>", "all properties, including the ones that have "
            "columns; a JSON object with propertiesAs=string"),
    _column("flag", "int", "a number for the application"),
    _column("sysFlag", "int", "bits: 1 sent compressed, 4, 8, 12 states of a transaction, ..."),
    _column("bornTimestamp", "timestamp", "the time at which the producer created the message, ms"),
    _column("storeTimestamp", "timestamp", "the time at which the broker stored the message, ms"),
    _column("bornHost", "string", "the address of the producer, ip:port"),
    _column("storeHost", "string", "the address of the broker, ip:port"),
    _column("reconsumeTimes", "int", "how often consumers sent the message back"),
    _column("preparedTransactionOffset", "bigint", "for a committed message, the position of its "
            "half message in the commit log, in bytes"),
    _column("storeSize", "int", "the size of the record in bytes; for a message in an inner batch, "
            "the size that it would have alone"),
    _column("bodyCRC", "int", "the CRC-32 of the body as stored, with the top bit cleared"),
    _column("shardingKey", "string", "property __SHARDINGKEY", nullable=True, is_default=False),
    _column("delayLevel", "int", "property DELAY", nullable=True, is_default=False),
    _column("deliverTime", "timestamp", "property TIMER_DELIVER_MS", nullable=True,
            is_default=False),
    _column("damage", "string", "with damaged=deliver, the reason why the message cannot be read; "
            "null if it can. The other columns have the fields of the record that can be read",
            nullable=True, is_default=False),
)

#: The column that the option damaged=deliver adds to the default columns.
DAMAGE: Final = COLUMNS[-1]

#: The columns that are derived from the properties. A batch is cheapest without them.
DERIVED_COLUMNS: Final = frozenset({
    "msgId", "keys", "tags", "properties", "shardingKey", "delayLevel", "deliverTime"})

#: The column ``body`` with the option bodyFormat=string.
BODY_STRING: Final = Column("body", "string", False, "the body as UTF-8 text")

#: The column ``properties`` with the option propertiesAs=string.
PROPERTIES_STRING: Final = Column("properties", "string", False, "the properties as a JSON object")

#: The columns of ``format("rocketmq_trace")``. A column that an event does not have is null.
TRACE_COLUMNS: Final[tuple[Column, ...]] = (
    _column("traceType", "string", "Pub, SubBefore, SubAfter, EndTransaction or Recall"),
    _column("time", "timestamp", "the start of the event (SubAfter: its end); null in the short "
            "forms of SubAfter", nullable=True),
    _column("region", "string", "the region that the client received", nullable=True),
    _column("group", "string", "the group of the producer or consumer; null in the short forms of "
            "SubAfter", nullable=True),
    _column("topic", "string", "the topic of the message; null for consumptions", nullable=True),
    _column("msgId", "string", "the id of the message; for a batch, its ids, joined by commas"),
    _column("tags", "string", "the tag of the message", nullable=True),
    _column("keys", "string", "the keys of the message, separated by spaces", nullable=True),
    _column("storeHost", "string", "the broker that stored the message, ip:port", nullable=True),
    _column("clientHost", "string", "the client in the record, or else the sender of the trace"),
    _column("bodyLength", "int", "Pub: the size of the body as sent, in bytes", nullable=True),
    _column("costMs", "bigint", "Pub, SubAfter: the duration, ms", nullable=True),
    _column("msgType", "string", "Pub, EndTransaction: NORMAL, TRANSACTION_HALF, "
            "TRANSACTION_COMMIT, DELAY, ORDER, or the number of a newer type", nullable=True),
    _column("offsetMsgId", "string", "Pub: the id of the place where the message is stored",
            nullable=True),
    _column("success", "boolean", "Pub, SubAfter, Recall: whether it succeeded", nullable=True),
    _column("requestId", "string", "SubBefore, SubAfter: an id that joins the two events",
            nullable=True),
    _column("retryTimes", "int", "SubBefore: how often the message was tried before",
            nullable=True),
    _column("contextCode", "string", "SubAfter: SUCCESS, TIME_OUT, EXCEPTION, RETURN_NULL, "
            "FAILED, or the number of a newer code", nullable=True),
    _column("transactionId", "string", "EndTransaction: the id of the transaction", nullable=True),
    _column("transactionState", "string", "EndTransaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE, "
            "UNKNOW", nullable=True),
    _column("fromCheck", "boolean", "EndTransaction: whether a check by the broker caused it",
            nullable=True),
    _column("brokerName", "string", "the broker from which the trace message was read",
            nullable=True),
    _column("queueId", "int", "the queue of the trace message"),
    _column("queueOffset", "bigint", "the position of the trace message in its queue"),
    _column("eventIndex", "int", "the index of the event in its trace message, from 0 on"),
    _column("storeTimestamp", "timestamp", "the time at which the trace message was stored"),
)


def default_columns() -> list[Column]:
    """Return the columns that a table of messages has by default."""
    return [column for column in COLUMNS if column.is_default]


def select_columns(names: str | None = None, *, has_properties: bool = True, has_body: bool = True,
                   body_format: str = "binary", properties_as: str = "map",
                   damaged: str = "", table: Sequence[Column] = COLUMNS) -> list[Column]:
    """Find the columns that the options request.

    :param names: the option ``columns``: case-insensitive names in the requested order, separated
        by commas; None or empty for the default columns.
    :param has_properties: the option ``includeProperties``.
    :param has_body: the option ``includeBody``.
    :param body_format: the option ``bodyFormat``, binary or string.
    :param properties_as: the option ``propertiesAs``, map or string.
    :param damaged: the option ``damaged``; with "deliver", bodies may be null.
    :param table: the columns of the format.
    :raises ColumnsError: when a name is unknown or given twice, or no column remains.
    """
    columns = [column for column in table if column.is_default]
    if names is not None and names.strip():
        by_name = {column.name.lower(): column for column in table}
        requested = [name.strip() for name in names.split(",") if name.strip()]
        columns = []
        for name in requested:
            column = by_name.get(name.lower())
            if column is None:
                raise ColumnsError(f"option columns: there is no column {name!r}, only "
                                   + ", ".join(column.name for column in table))
            if column in columns:
                raise ColumnsError(f"option columns: {column.name} is given twice")
            columns.append(column)
    if not has_properties:
        columns = [column for column in columns if column.name != "properties"]
    if not has_body:
        columns = [column for column in columns if column.name != "body"]
    if body_format.lower() not in ("binary", "string"):
        raise ColumnsError(f"option bodyFormat: {body_format!r} is neither binary nor string")
    if body_format.lower() == "string":
        columns = [BODY_STRING if column.name == "body" else column for column in columns]
    if properties_as.lower() not in ("map", "string"):
        raise ColumnsError(f"option propertiesAs: {properties_as!r} is neither map nor string")
    if properties_as.lower() == "string":
        columns = [PROPERTIES_STRING if column.name == "properties" else column
                   for column in columns]
    if not columns:
        raise ColumnsError("option columns: no column is left")
    if damaged.lower() != "deliver":
        return columns
    if names is None or not names.strip():
        columns.append(DAMAGE)
    return [replace(column, nullable=True) if column.name == "body" else column
            for column in columns]


def arrow_schema(columns: Iterable[Column]) -> Any:
    """Make the Arrow schema of these columns, as Spark would make it of its own schema."""
    import pyarrow as pa

    types_by_name = {
        "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"), "binary": pa.binary(), "boolean": pa.bool_(),
        "array<string>": pa.list_(pa.field("element", pa.string())),
        "map<string,string>": pa.map_(pa.string(), pa.field("value", pa.string())),
    }
    return pa.schema(
        [pa.field(column.name, types_by_name[column.type], column.nullable) for column in columns])
