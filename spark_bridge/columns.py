"""The columns of a table of messages: one row here is what code and COLUMNS.md know of a column.

Spark's schema and Arrow's are made from the same rows, so that a record batch has the schema Spark
asks for to the letter: names, order, nullability, the element of a list, the value of a map. This
module imports neither; what needs them imports them when it is called.
``python -m twistmq.spark_bridge.columns > spark_bridge/COLUMNS.md`` writes the page; a test holds
the two together.

Source: MessageExt, MessageConst @5.3.3; to_arrow_schema of PySpark 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from twistmq.spark_bridge.errors import ShortError

__all__ = [
    "BODY_STRING", "COLUMNS", "DAMAGE", "DERIVED_COLUMNS", "PROPERTIES_STRING", "TIME_MS_MAX",
    "TIME_MS_MIN", "TRACE_COLUMNS", "Column", "ColumnsError",
    "arrow_schema", "columns_of_schema", "columns_page", "default_columns", "select_columns",
    "spark_schema",
]

#: The first and the last time of a column, Unix ms. A timestamp of Spark's has a year from 1 to
#: 9999, and so has a datetime, to which PySpark converts it in the local zone: a day is left out at
#: either end for that.
TIME_MS_MIN: Final = -62_135_510_400_000
TIME_MS_MAX: Final = 253_402_214_399_999


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    #: Spark's name of the type, as in DDL.
    type: str
    nullable: bool
    meaning: str
    #: Whether it is there unless the option ``columns`` says otherwise.
    is_default: bool = True


class ColumnsError(ShortError, ValueError):
    """The option columns names no column, or an unknown one."""


def _column(name: str, type_name: str, meaning: str, *, nullable: bool = False,
            is_default: bool = True) -> Column:
    return Column(name, type_name, nullable, meaning, is_default)


#: Of a message. Fields of the record are never null; what is taken from its properties may be.
COLUMNS: Final[tuple[Column, ...]] = (
    _column("topic", "string", "the topic it is stored under"),
    _column("brokerName", "string", "the broker it was read from; null from store files, unless "
            "the option brokerName says it", nullable=True),
    _column("queueId", "int", "its queue, from 0 on"),
    _column("queueOffset", "bigint", "its place in the queue, in messages"),
    _column("commitLogOffset", "bigint", "its place in the commit log, in bytes"),
    _column("msgId", "string", "the id its producer gave it (property UNIQ_KEY)", nullable=True),
    _column("offsetMsgId", "string", "the id made of the broker's address and commitLogOffset"),
    _column("keys", "array<string>", "property KEYS, split at spaces", nullable=True),
    _column("tags", "string", "property TAGS", nullable=True),
    _column("body", "binary", "the body, decompressed; a string with bodyFormat=string"),
    _column("properties", "map<string,string>", "all properties, those of the columns too; "
            "a JSON object with propertiesAs=string"),
    _column("flag", "int", "the application's own number"),
    _column("sysFlag", "int", "bits: 1 sent compressed, 4, 8, 12 states of a transaction, ..."),
    _column("bornTimestamp", "timestamp", "when the producer made it, ms"),
    _column("storeTimestamp", "timestamp", "when the broker stored it, ms"),
    _column("bornHost", "string", "the producer, ip:port"),
    _column("storeHost", "string", "the broker, ip:port"),
    _column("reconsumeTimes", "int", "how often consumers sent it back"),
    _column("preparedTransactionOffset", "bigint", "of a committed message: where its half "
            "message is, in bytes"),
    _column("storeSize", "int", "bytes of the whole record; of a message of an inner batch: as if "
            "stored alone"),
    _column("bodyCRC", "int", "CRC-32 of the body as stored, the top bit cleared"),
    _column("shardingKey", "string", "property __SHARDINGKEY", nullable=True, is_default=False),
    _column("delayLevel", "int", "property DELAY", nullable=True, is_default=False),
    _column("deliverTime", "timestamp", "property TIMER_DELIVER_MS", nullable=True,
            is_default=False),
    _column("damage", "string", "with damaged=deliver: why the message cannot be read; null of a "
            "whole one. The other columns are those of the record as far as they can be read",
            nullable=True, is_default=False),
)

#: The last of them, which the option damaged=deliver adds to the default ones.
DAMAGE: Final = COLUMNS[-1]

#: Columns made from the properties. Without these and ``properties`` a batch costs least.
DERIVED_COLUMNS: Final = frozenset({
    "msgId", "keys", "tags", "properties", "shardingKey", "delayLevel", "deliverTime"})

#: ``body`` with the option bodyFormat=string.
BODY_STRING: Final = Column("body", "string", False, "the body as UTF-8 text")

#: ``properties`` with the option propertiesAs=string.
PROPERTIES_STRING: Final = Column("properties", "string", False, "the properties as a JSON object")

#: A column as an option changes it.
_OTHER_TYPES: Final = {(column.name, column.type): column
                       for column in (BODY_STRING, PROPERTIES_STRING)}

#: Of a trace event: ``format("rocketmq_trace")``. A column an event's kind does not have is null.
TRACE_COLUMNS: Final[tuple[Column, ...]] = (
    _column("traceType", "string", "Pub, SubBefore, SubAfter, EndTransaction or Recall"),
    _column("time", "timestamp", "when it began (SubAfter: when it ended); null in the short "
            "forms of SubAfter", nullable=True),
    _column("region", "string", "the region its client was told", nullable=True),
    _column("group", "string", "the group of the producer or consumer; null in the short forms of "
            "SubAfter", nullable=True),
    _column("topic", "string", "the message's topic; null of consumptions", nullable=True),
    _column("msgId", "string", "the message's id; of a batch: its ids, joined by commas"),
    _column("tags", "string", "the message's tag", nullable=True),
    _column("keys", "string", "the message's keys, apart by spaces", nullable=True),
    _column("storeHost", "string", "the broker that stored the message, ip:port", nullable=True),
    _column("clientHost", "string", "the client: of the record, else where the trace came from"),
    _column("bodyLength", "int", "Pub: bytes of the body as sent", nullable=True),
    _column("costMs", "bigint", "Pub, SubAfter: how long it took, ms", nullable=True),
    _column("msgType", "string", "Pub, EndTransaction: NORMAL, TRANSACTION_HALF, "
            "TRANSACTION_COMMIT, DELAY, ORDER, or a newer one's number", nullable=True),
    _column("offsetMsgId", "string", "Pub: the id of the place it is stored at", nullable=True),
    _column("success", "boolean", "Pub, SubAfter, Recall: whether it went well", nullable=True),
    _column("requestId", "string", "SubBefore, SubAfter: joins the two", nullable=True),
    _column("retryTimes", "int", "SubBefore: how often the message was tried before",
            nullable=True),
    _column("contextCode", "string", "SubAfter: SUCCESS, TIME_OUT, EXCEPTION, RETURN_NULL, "
            "FAILED, or a newer one's number", nullable=True),
    _column("transactionId", "string", "EndTransaction", nullable=True),
    _column("transactionState", "string", "EndTransaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE, "
            "UNKNOW", nullable=True),
    _column("fromCheck", "boolean", "EndTransaction: whether the broker's check led to it",
            nullable=True),
    _column("brokerName", "string", "where the trace message was read from", nullable=True),
    _column("queueId", "int", "the trace message's queue"),
    _column("queueOffset", "bigint", "the trace message's place in its queue"),
    _column("eventIndex", "int", "the event's place in its trace message, from 0 on"),
    _column("storeTimestamp", "timestamp", "when the trace message was stored"),
)


def default_columns() -> list[Column]:
    """The columns a table of messages has unless it is said otherwise."""
    return [column for column in COLUMNS if column.is_default]


def select_columns(names: str | None = None, *, has_properties: bool = True, has_body: bool = True,
                   body_format: str = "binary", properties_as: str = "map",
                   damaged: str = "", table: Sequence[Column] = COLUMNS) -> list[Column]:
    """Find the columns that the options ask for.

    :param names: the option ``columns``: names apart by commas in the order wanted, upper and
        lower case alike; None or empty for the default ones.
    :param has_properties: the option ``includeProperties``.
    :param has_body: the option ``includeBody``.
    :param body_format: the option ``bodyFormat``, binary or string.
    :param properties_as: the option ``propertiesAs``, map or string.
    :param damaged: the option ``damaged``: with "deliver" bodies may be null.
    :param table: the format's columns.
    :raises ColumnsError: when a name is unknown or there twice, or no column is left.
    """
    found = [column for column in table if column.is_default]
    if names is not None and names.strip():
        known = {column.name.lower(): column for column in table}
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        found = []
        for name in wanted:
            column = known.get(name.lower())
            if column is None:
                raise ColumnsError(f"option columns: there is no column {name!r}, only "
                                   + ", ".join(column.name for column in table))
            if column in found:
                raise ColumnsError(f"option columns: {column.name} is there twice")
            found.append(column)
    if not has_properties:
        found = [column for column in found if column.name != "properties"]
    if not has_body:
        found = [column for column in found if column.name != "body"]
    if body_format.lower() not in ("binary", "string"):
        raise ColumnsError(f"option bodyFormat: {body_format!r} is neither binary nor string")
    if body_format.lower() == "string":
        found = [BODY_STRING if column.name == "body" else column for column in found]
    if properties_as.lower() not in ("map", "string"):
        raise ColumnsError(f"option propertiesAs: {properties_as!r} is neither map nor string")
    if properties_as.lower() == "string":
        found = [PROPERTIES_STRING if column.name == "properties" else column for column in found]
    if not found:
        raise ColumnsError("option columns: no column is left")
    if damaged.lower() != "deliver":
        return found
    if names is None or not names.strip():
        found.append(DAMAGE)
    return [replace(column, nullable=True) if column.name == "body" else column
            for column in found]


def spark_schema(columns: Iterable[Column]) -> Any:
    """Make the StructType of these columns."""
    from pyspark.sql import types

    made = {
        "string": types.StringType(), "int": types.IntegerType(), "bigint": types.LongType(),
        "timestamp": types.TimestampType(), "binary": types.BinaryType(),
        "boolean": types.BooleanType(),
        "array<string>": types.ArrayType(types.StringType()),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    return types.StructType(
        [types.StructField(column.name, made[column.type], column.nullable) for column in columns])


def columns_of_schema(schema: Any, table: Sequence[Column] = COLUMNS) -> list[Column]:
    """Find the columns a StructType asks for, nullable as it says.

    :param table: the format's columns.
    :raises ColumnsError: when there is no such column, or its type is another.
    """
    known = {column.name: column for column in table}
    found = []
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise ColumnsError(f"column {field.name}: there is no such column, only "
                               + ", ".join(known))
        text = field.dataType.simpleString()
        column = _OTHER_TYPES.get((column.name, text), column)
        if field.dataType != spark_schema([column]).fields[0].dataType:
            raise ColumnsError(f"column {field.name}: its type is {column.type}, not {text}")
        found.append(replace(column, nullable=field.nullable))
    return found


def arrow_schema(columns: Iterable[Column]) -> Any:
    """Make the Arrow schema of these columns, equal to what Spark makes of ``spark_schema``."""
    import pyarrow as pa

    made = {
        "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"), "binary": pa.binary(), "boolean": pa.bool_(),
        "array<string>": pa.list_(pa.field("element", pa.string())),
        "map<string,string>": pa.map_(pa.string(), pa.field("value", pa.string())),
    }
    return pa.schema(
        [pa.field(column.name, made[column.type], column.nullable) for column in columns])


_HEAD: Final = """\
# Columns

Written by `python -m twistmq.spark_bridge.columns` from the rows in `spark_bridge/columns.py`.
Times are microseconds in UTC, as Spark has them; RocketMQ's are whole milliseconds.

`.option("columns", "topic,queueOffset,body")` chooses columns and their order;
`includeProperties=false` and `includeBody=false` leave those two out, `bodyFormat=string` makes the
body a string, `propertiesAs=string` makes the properties a JSON object. Reading is fastest without
`properties` and what is made of them: %s.
"""


def columns_page() -> str:
    """The page of all columns."""
    derived = ", ".join(f"`{column.name}`" for column in COLUMNS
                        if column.name in DERIVED_COLUMNS - {"properties"})
    parts = [_HEAD % derived,
             "## Messages: `rocketmq` and `rocketmq_store`\n", _table(COLUMNS),
             "## Trace events: `rocketmq_trace`\n", _table(TRACE_COLUMNS),
             _SINK_HEAD, _sink_table()]
    return "\n".join(parts)


_SINK_HEAD: Final = """\
## Rows to write: `rocketmq`

A row needs a `body`, and a topic from the column or the option. A null means that the message does
not have this, and so does an empty string in `tags`, `keys`, `shardingKey` and the values of
`properties`. Any other column is an error.
"""


def _sink_table() -> str:
    from twistmq.spark_bridge.rows import SINK_COLUMNS

    lines = ["| column | type | what it becomes |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {' or '.join(types)} | {meaning} |"
              for name, (types, meaning) in SINK_COLUMNS.items()]
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[Column]) -> str:
    with_default = any(not column.is_default for column in columns)
    lines = ["| column | type | null | " + ("by default | " if with_default else "") + "meaning |",
             "| --- | --- | --- | " + ("--- | " if with_default else "") + "--- |"]
    for column in columns:
        shown = ("yes | " if column.is_default else "no | ") if with_default else ""
        lines.append(f"| `{column.name}` | {column.type} | "
                     f"{'yes' if column.nullable else ''} | {shown}{column.meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(columns_page(), end="")
