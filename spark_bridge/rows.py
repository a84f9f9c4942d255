"""Converts the rows of a DataFrame to messages, and defines the columns that a row may have.

Source: Message, MessageConst @5.3.3.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from twistmq.client.base.messages import Message
from twistmq.integrations.tables.errors import ShortError
from twistmq.integrations.tables.options import OptionError, Options
from twistmq.protocol import properties as names
from twistmq.protocol.record import (
    PROPERTIES_LENGTH_MAX,
    SYS_COMPRESSED,
    SYS_COMPRESSION_ZLIB,
    utf8,
)
from twistmq.protocol.topic_names import key_fault, tag_fault, topic_fault

__all__ = ["BROKERS_OWN", "SINK_COLUMNS", "OutgoingRow", "RowError", "RowReader", "check_schema"]

#: The columns of a row, the Spark types that each may have, and the part of the message it becomes.
SINK_COLUMNS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "body": (("binary", "string"), "the body, at least one byte; a string is encoded as UTF-8"),
    "topic": (("string",), "the topic, unless the option topic names one for all rows"),
    "tags": (("string",), "property TAGS"),
    "keys": (("string", "array<string>"), "property KEYS; the keys of an array are joined by "
             "spaces"),
    "properties": (("map<string,string>",), "properties; the other columns take precedence. "
                   "Properties that a broker added are left out; see \"Copy a topic\" in "
                   "README.md"),
    "queueId": (("int",), "the queue; without it and without shardingKey, queues take turns"),
    "shardingKey": (("string",), "property __SHARDINGKEY: messages with equal keys go to one "
                    "queue, in order"),
    "delayLevel": (("int",), "property DELAY"),
    "deliverTime": (("timestamp",), "property TIMER_DELIVER_MS: the time of delivery"),
    "flag": (("int",), "a number for the application"),
    "idempotenceKey": (("string",), "the property that the option idempotenceKey names"),
}

#: The separators between names and values of properties, which neither may contain.
_SEPARATORS: Final = (names.NAME_VALUE_SEPARATOR, names.PROPERTY_SEPARATOR)
#: Properties that the broker of a message, or the clients of that broker, have added: where the
#: message waited, how often it was tried, and its transaction. They are wrong for a copy, and some
#: of them would make a broker treat the copy as a message of another kind.
BROKERS_OWN: Final = frozenset({
    # origin and destination
    names.REAL_TOPIC, names.REAL_QID, names.RETRY_TOPIC, names.FORWARD_QUEUE_ID, names.REDIRECT,
    names.CLUSTER, names.MSG_REGION, names.TRACE_ON, names.INSTANCE_ID, names.BORN_HOST,
    names.BORN_TIMESTAMP, names.ARRIVE_TIME, names.MIN_OFFSET, names.MAX_OFFSET, names.CRC32,
    names.TRANSFER_FLAG, names.CORRECTION_FLAG, names.MQ2_FLAG, names.DUP_INFO,
    # tries, pops and dead letters
    names.ORIGIN_MESSAGE_ID, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES,
    names.CONSUME_START_TIME, names.POP_CK, names.POP_CK_OFFSET, names.FIRST_POP_TIME,
    names.DLQ_ORIGIN_TOPIC, names.DLQ_ORIGIN_MESSAGE_ID,
    # transactions
    names.TRAN_MSG, names.PGROUP, names.TRANSACTION_ID, names.TRANSACTION_CHECK_TIMES,
    names.TRAN_PREPARED_QUEUE_OFFSET, names.CHECK_IMMUNITY_TIME_IN_SECONDS,
    # batches and queues within a message
    names.INNER_NUM, names.INNER_BASE, names.EXTEND_UNIQ_INFO, names.INNER_MULTI_DISPATCH,
    names.INNER_MULTI_QUEUE_OFFSET,
    # delays and timers that are over
    names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS, names.TIMER_ROLL_TIMES, names.TIMER_OUT_MS,
    names.TIMER_DEL_UNIQKEY, names.TIMER_DELAY_LEVEL,
    # answers
    names.PUSH_REPLY_TIME,
})
#: A message with one of these properties is sent alone, because brokers refuse it in a batch.
_DELAYS: Final = (names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS,
                  names.TIMER_DELAY_SEC)
#: The properties that a copy leaves out. Its delays are over, and the option waitStoreOK determines
#: the property WAIT.
_NOT_OF_A_COPY: Final = BROKERS_OWN.union(_DELAYS, (names.WAIT,))


class RowError(ShortError, ValueError):
    """A row cannot become a message; the text gives the reason."""


@dataclass(slots=True)
class OutgoingRow:
    """A message, and the queue or the sharding key that its row names."""

    #: The index of the row in its partition, from 0 on.
    index: int
    message: Message
    queue_id: int | None
    sharding_key: str | None
    #: Whether the message may be part of a batch.
    fits_batch: bool


def _conversion(name: str, type_name: str, types: tuple[str, ...]) -> str:
    """Return the expression in Spark's SQL that converts a column to one of its allowed types."""
    if type_name.startswith("array<") and "array<string>" in types:
        return f"cast({name} AS array<string>)"
    if "string" not in types:
        return f"cast({name} AS {types[0]})"
    nested = type_name.startswith(("array<", "map<", "struct<"))
    return f"to_json({name})" if nested else f"cast({name} AS string)"


def check_schema(schema: Any, options: Options) -> None:
    """Check that rows of a schema can become messages; :raises OptionError: when they cannot."""
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, type_name in fields.items():
        if name not in SINK_COLUMNS:
            raise OptionError(f"column {name}: the sink knows no such column, only "
                              f"{', '.join(SINK_COLUMNS)}; leave it out with select or drop")
        types = SINK_COLUMNS[name][0]
        if type_name not in types:
            raise OptionError(f"column {name}: its type is {type_name}, not {' or '.join(types)}; "
                              f"convert it, as with {_conversion(name, type_name, types)}")
    if "body" not in fields:
        raise OptionError("column body: missing, every message needs a body")
    topic = options.text("topic")
    if not topic and "topic" not in fields:
        raise OptionError("option topic: missing, and there is no column topic either")
    if "idempotenceKey" in fields and not options.is_given("idempotenceKey"):
        raise OptionError("option idempotenceKey: missing, it names the property for the column "
                          "idempotenceKey")
    fault = topic_fault(topic) if topic else None
    if fault:
        raise OptionError(f"option topic: topic {topic}: {fault}")


class RowReader:
    """Converts record batches to messages.

    :param options: the options of the sink.
    :param unique_id: a function that makes the id of the next message.
    :param idempotence_key: the beginning of the values that the option idempotenceKey adds.
    """

    def __init__(self, options: Options, unique_id: Any, idempotence_key: str) -> None:
        self._topic = options.text("topic")
        self._body_size_max = options.integer("maxMessageSize")
        self._compress_from = options.integer_or_none("compressThreshold")
        self._waits = options.flag("waitStoreOK")
        self._key_property = options.text("idempotenceKey")
        self._key_prefix = idempotence_key
        self._unique_id = unique_id
        self._index = 0
        #: The topics whose names were checked.
        self._topics: set[str] = set()

    def rows(self, batch: Any) -> Iterator[OutgoingRow]:
        """Convert the rows of a record batch, in order.

        :raises RowError: at a row that cannot become a message.
        """
        columns = {name: batch.column(index).to_pylist()
                   for index, name in enumerate(batch.schema.names)}
        for row_index in range(batch.num_rows):
            try:
                yield self._row({name: values[row_index] for name, values in columns.items()})
            except RowError as error:
                raise RowError(f"row {self._index}: {error}") from None
            self._index += 1

    def _row(self, row: dict[str, Any]) -> OutgoingRow:
        topic: str = self._topic or row.get("topic") or ""
        if topic not in self._topics:
            fault = topic_fault(topic) if topic else "it is empty"
            if fault:
                raise RowError(f"column topic: {topic}: {fault}")
            self._topics.add(topic)
        body = row["body"]
        if body is None:
            raise RowError("column body: it is null")
        if isinstance(body, str):
            body = body.encode()
        if not body:
            raise RowError("column body: it is empty, and a message needs at least one byte; "
                           "where('length(body) > 0') leaves such rows out")
        if len(body) > self._body_size_max:
            raise RowError(f"column body: {len(body)} bytes, the option maxMessageSize allows "
                           f"{self._body_size_max}")
        queue_id = row.get("queueId")
        if queue_id is not None and queue_id < 0:
            raise RowError(f"column queueId: {queue_id} is negative")
        properties = self._properties(row)
        fits = not any(name in properties for name in _DELAYS)
        sys_flag = 0
        if self._compress_from is not None and len(body) >= self._compress_from:
            body, fits = zlib.compress(body, 5), False
            sys_flag = SYS_COMPRESSED | SYS_COMPRESSION_ZLIB
        message = Message(topic, body, properties=properties, wait_stored=self._waits,
                          flag=row.get("flag") or 0, sys_flag=sys_flag)
        return OutgoingRow(self._index, message, queue_id, properties.get(names.SHARDING_KEY),
                           fits)

    def _properties(self, row: dict[str, Any]) -> dict[str, str]:
        properties = _own_properties(row.get("properties") or ())
        keys = row.get("keys")
        if isinstance(keys, list):
            keys = [key for key in keys if key]
            if any(key_fault(key) for key in keys):
                raise RowError(f"column keys: {keys}: a key must not contain spaces")
            keys = names.KEY_SEPARATOR.join(keys)
        moment: datetime | None = row.get("deliverTime")
        level = row.get("delayLevel")
        for name, value in (
            (names.TAGS, row.get("tags")), (names.KEYS, keys),
            (names.SHARDING_KEY, row.get("shardingKey")),
            (names.DELAY, None if level is None else str(level)),
            (names.TIMER_DELIVER_MS,
             None if moment is None else str(round(moment.timestamp() * 1000))),
        ):
            if value:
                properties[name] = value
        if names.UNIQ_KEY not in properties:
            properties[names.UNIQ_KEY] = self._unique_id()
        if not self._waits:
            properties[names.WAIT] = "false"
        if self._key_property:
            properties[self._key_property] = (row.get("idempotenceKey")
                                              or f"{self._key_prefix}:{self._index}")
        self._check(properties)
        return properties

    def _check(self, properties: dict[str, str]) -> None:
        """Check that properties can be stored and read back unchanged.

        :raises RowError: when they cannot.
        """
        fault = tag_fault(properties.get(names.TAGS, "t"))
        if fault is not None:
            raise RowError(f"tag {properties[names.TAGS]!r}: {fault}")
        size = 0
        for name, value in properties.items():
            if not name:
                raise RowError(f"property {name!r} with the value {value!r}: its name is empty")
            for separator in _SEPARATORS:
                if separator in name or separator in value:
                    raise RowError(f"property {name!r}: {separator!r} separates properties")
            size += len(utf8(name)) + len(utf8(value)) + 2
        if size > PROPERTIES_LENGTH_MAX:
            raise RowError(f"its properties take {size} bytes, but at most "
                           f"{PROPERTIES_LENGTH_MAX} fit")


def _own_properties(given: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Select the properties of the column that belong to the sender.

    A message that was read from a topic has properties that a broker added. The copy is made
    without them, and without the delay that the message had there. Null and empty values are left
    out, because a message cannot have them.
    """
    properties = {name: value for name, value in given if value}
    if BROKERS_OWN.isdisjoint(properties):
        return properties
    return {name: value for name, value in properties.items() if name not in _NOT_OF_A_COPY}
