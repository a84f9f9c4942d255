"""Converts stored records to Arrow record batches, one column at a time.

A ``BatchBuilder`` collects buffers of records, such as the body of a pull response or a piece of a
commit-log file, and converts all records since the previous batch to a new record batch. It creates
Python objects for a row only if the body is compressed, the record is an inner batch, or the
properties do not have the format that current clients write.

Source: MessageDecoder, PullAPIWrapper.processPullResult @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twistmq.client.base.codecs import decompress
from twistmq.client.base.errors import Undecodable
from twistmq.integrations.tables.arrow_arrays import (
    binary_array,
    flags_of,
    number_array,
    numbers_of,
    text_array,
)
from twistmq.integrations.tables.bodies import records_of_batch
from twistmq.integrations.tables.columns import (
    DERIVED_COLUMNS,
    TIME_MS_MAX,
    TIME_MS_MIN,
    Column,
    arrow_schema,
)
from twistmq.integrations.tables.errors import ShortError
from twistmq.integrations.tables.property_columns import PropertyColumns
from twistmq.integrations.tables.record_arrays import (
    RecordArrays,
    record_starts,
    spans,
    text_of_hosts,
)
from twistmq.protocol import properties as names
from twistmq.protocol import record
from twistmq.protocol.errors import MessageIllegal, StoreDamaged
from twistmq.protocol.record import decode_record

__all__ = ["BatchBuilder", "BodyUnreadable", "RowFilter"]

_HEX: Final = np.frombuffer(
    b"".join(b"%02X" % value for value in range(256)), np.uint8).reshape(256, 2)
_UNWRAP: Final = record.SYS_INNER_BATCH | record.SYS_NEED_UNWRAP


class BodyUnreadable(ShortError, ValueError):
    """A body does not decompress, or an inner batch is damaged.

    The text names the topic, the queue and the offset.
    """


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The conditions that a record must meet to become a row."""

    #: The topics; None for all.
    topics: frozenset[str] | None = None
    #: A function that returns True for the topics to leave out.
    topics_but: Callable[[str], bool] | None = None
    #: The first queue offset, and the offset after the last one.
    offset_begin: int | None = None
    offset_end: int | None = None
    #: The earliest store time, and the time before which a record must have been stored, ms.
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None
    #: Whether half messages and rollbacks, which no consumer sees, are left out.
    entered_only: bool = False


class BatchBuilder:
    """Builds record batches from stored records.

    :param columns: the columns of the batches, in this order.
    :param rows: the filter for records; by default all records become rows.
    :param check_crc: whether each body is compared with the CRC of its record.
    :param skip_damaged: whether damaged records are counted instead of raising an error.
    :param skip_unreadable: the same for bodies that cannot be decompressed or are not a valid
        batch.
    """

    def __init__(self, columns: Sequence[Column], rows: RowFilter | None = None, *,
                 check_crc: bool = True, skip_damaged: bool = False,
                 skip_unreadable: bool = False) -> None:
        self.columns = list(columns)
        self.schema: Any = arrow_schema(columns)
        self._rows = rows or RowFilter()
        self._check_crc = check_crc
        self._skip_damaged = skip_damaged
        self._skip_unreadable = skip_unreadable
        self._uses_properties = any(column.name in DERIVED_COLUMNS for column in columns)
        #: The number of records that were left out because they or their bodies are damaged.
        self.damaged_count = 0
        self._clear()

    def _clear(self) -> None:
        self._buffers: list[Any] = []
        self._starts: list[int] = []
        #: For each buffer, the name of its broker and the number of its records.
        self._brokers: list[tuple[str | None, int]] = []
        #: The bytes and records that were added since the last batch, including filtered ones.
        self.byte_count = 0
        self.record_count = 0

    def add(self, buffer: Any, broker_name: str | None = None,
            starts: Sequence[int] | None = None) -> Sequence[int]:
        """Add the records of a buffer, which must not change before the batch is built.

        :param buffer: a bytes-like object with consecutive whole records, unless ``starts`` lists
            their positions. All buffers of a batch together must be smaller than 2 GiB.
        :param broker_name: the value of the column brokerName.
        :param starts: the positions of the records, in bytes from the start of the buffer, in
            ascending order.
        :returns: the positions of the records in the buffer.
        :raises StoreDamaged: when the buffer contains anything but records.
        """
        base = self.byte_count
        if starts is None:
            starts = []
            end = record_starts(buffer, 0, len(buffer), starts)
            if end != len(buffer):
                decode_record(buffer, end, False)
                raise StoreDamaged(f"no record at byte {end}")
        assert base + len(buffer) < 1 << 31, "a batch of 2 GiB"
        self._buffers.append(buffer)
        self._starts += [start + base for start in starts] if base else starts
        self._brokers.append((broker_name, len(starts)))
        self.byte_count += len(buffer)
        self.record_count += len(starts)
        return starts

    def batch(self) -> Any:
        """Build the record batch of all records that were added, and start the next one.

        :raises StoreDamaged: when a record is damaged; the text has its position in the bytes that
            were added.
        :raises BodyUnreadable: when a body does not decompress.
        """
        buffer = self._buffers[0] if len(self._buffers) == 1 else b"".join(self._buffers)
        starts, brokers = np.array(self._starts, np.int64), self._broker_of_rows()
        self._clear()
        if not len(starts):
            return pa.RecordBatch.from_arrays(
                [pa.nulls(0, field.type) for field in self.schema], schema=self.schema)
        arrays = RecordArrays(np.frombuffer(buffer, np.uint8), starts)
        damaged, reason = arrays.damage(self._check_crc)
        if len(damaged) and not self._skip_damaged:
            raise StoreDamaged(reason)
        keep = np.ones(len(arrays), bool)
        keep[damaged] = False
        self.damaged_count += len(damaged)
        if not keep.all():
            arrays.keep(keep)
            brokers = _select_brokers(brokers, keep)
        if (arrays.sys_flag & _UNWRAP == _UNWRAP).any():
            arrays, brokers = self._unwrapped(arrays, brokers)
        chosen = self._chosen(arrays)
        if not chosen.all():
            arrays.keep(chosen)
            brokers = _select_brokers(brokers, chosen)
        return self._built(arrays, brokers)

    def _broker_of_rows(self) -> Any:
        """Return the brokers of the records.

        :returns: a list with one name if all records share it, or else a tuple of the index of each
            record's name and the names.
        """
        each = list(dict.fromkeys(name for name, _ in self._brokers))
        if len(each) <= 1:
            return each or [None]
        return np.repeat(np.array([each.index(name) for name, _ in self._brokers]),
                         [count for _, count in self._brokers]), each

    def _unwrapped(self, arrays: RecordArrays, brokers: Any) -> tuple[RecordArrays, Any]:
        """Unwrap inner batches: copy the records to a new buffer with one record for each message.
        """
        parts: list[bytes] = []
        counts = np.ones(len(arrays), np.int64)
        is_wrapped = arrays.sys_flag & _UNWRAP == _UNWRAP
        ends = arrays.starts + arrays.size
        for index, start in enumerate(arrays.starts.tolist()):
            part = bytes(arrays.data[start : int(ends[index])])
            if is_wrapped[index]:
                try:
                    part = records_of_batch(decode_record(part, 0, False))
                except (Undecodable, MessageIllegal) as error:
                    self._give_up(arrays, index, error)
                    part = b""
                starts: list[int] = []
                record_starts(part, 0, len(part), starts)
                counts[index] = len(starts)
            parts.append(part)
        data = b"".join(parts)
        starts = []
        record_starts(data, 0, len(data), starts)
        return (RecordArrays(np.frombuffer(data, np.uint8), np.array(starts, np.int64)),
                _select_brokers(brokers, np.repeat(np.arange(len(arrays)), counts)))

    def _chosen(self, arrays: RecordArrays) -> Any:
        """Determine which records become rows, bool[records]."""
        rows = self._rows
        chosen = np.ones(len(arrays), bool)
        if rows.offset_begin is not None:
            chosen &= arrays.queue_offset >= rows.offset_begin
        if rows.offset_end is not None:
            chosen &= arrays.queue_offset < rows.offset_end
        if rows.stored_from_ms is not None:
            chosen &= arrays.store_timestamp >= rows.stored_from_ms
        if rows.stored_before_ms is not None:
            chosen &= arrays.store_timestamp < rows.stored_before_ms
        if rows.entered_only:
            kind = arrays.sys_flag & record.SYS_TRANSACTION_MASK
            chosen &= (kind != record.SYS_TRANSACTION_PREPARED) & (
                kind != record.SYS_TRANSACTION_ROLLBACK)
        if rows.topics is not None or rows.topics_but is not None:
            topics = _pieces(arrays, arrays.topic_start, arrays.topic_end).dictionary_encode()
            chosen &= np.array([_is_wanted(rows, name.decode("utf-8", "replace"))
                                for name in topics.dictionary.to_pylist()], bool)[
                numbers_of(topics.indices)]
        return chosen

    def _built(self, arrays: RecordArrays, brokers: Any) -> Any:
        """Build the batch of all these records."""
        bodies = None
        if any(column.name == "body" for column in self.columns):
            bodies = self._bodies(arrays)
            if bodies.null_count:
                whole = pc.is_valid(bodies)
                bodies = bodies.filter(whole)
                whole = flags_of(whole)
                arrays.keep(whole)
                brokers = _select_brokers(brokers, whole)
        properties = None
        if self._uses_properties:
            properties = PropertyColumns(
                _pieces(arrays, arrays.properties_start, arrays.properties_end))
        columns = []
        for field in self.schema:
            if field.name == "body":
                columns.append(_as_text(bodies) if field.type == pa.string() else bodies)
            elif field.name == "brokerName":
                columns.append(_broker_column(brokers, len(arrays)))
            elif field.name in DERIVED_COLUMNS:
                assert properties is not None
                columns.append(_property_column(properties, field))
            else:
                columns.append(_COLUMNS[field.name](arrays))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _bodies(self, arrays: RecordArrays) -> Any:
        """Return the body of each record as a BinaryArray, with null for a damaged, skipped one."""
        bodies = _pieces(arrays, arrays.body_start, arrays.body_end)
        packed = np.flatnonzero(arrays.sys_flag & record.SYS_COMPRESSED)
        if not len(packed):
            return bodies
        contents = bodies.to_pylist()
        for index in packed.tolist():
            try:
                contents[index] = decompress(contents[index], int(arrays.sys_flag[index]))
            except Undecodable as error:
                self._give_up(arrays, index, error)
                contents[index] = None
        return binary_array(contents)

    def _give_up(self, arrays: RecordArrays, index: int, error: Exception) -> None:
        """Count a message that cannot be read, or raise an error if it must not be skipped."""
        self.damaged_count += 1
        if not self._skip_unreadable:
            topic = bytes(arrays.data[int(arrays.topic_start[index]):int(arrays.topic_end[index])])
            raise BodyUnreadable(
                f"topic {topic.decode('utf-8', 'replace')} queue {int(arrays.queue_id[index])} "
                f"offset {int(arrays.queue_offset[index])} (commit log offset "
                f"{int(arrays.physical_offset[index])}): {error}") from None


def _select_brokers(brokers: Any, chosen: Any) -> Any:
    return brokers if isinstance(brokers, list) else (brokers[0][chosen], brokers[1])


def _broker_column(brokers: Any, count: int) -> Any:
    if isinstance(brokers, list):
        return text_array(brokers).take(number_array(np.zeros(count, np.int64)))
    return text_array(brokers[1]).take(number_array(brokers[0]))


def _pieces(arrays: RecordArrays, begins: Any, ends: Any) -> Any:
    """Copy a piece of each record to a BinaryArray, so that the buffer can be released."""
    offsets, places = spans(begins, ends)
    whole = pa.Array.from_buffers(pa.binary(), max(len(offsets) - 1, 0),
                                  [None, pa.py_buffer(offsets), pa.py_buffer(arrays.data)])
    return whole.take(number_array(places))


def _is_wanted(rows: RowFilter, topic: str) -> bool:
    return (rows.topics is None or topic in rows.topics) and not (
        rows.topics_but is not None and rows.topics_but(topic))


def _as_text(values: Any) -> Any:
    """Decode bytes as UTF-8; invalid bytes become replacement characters, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return text_array(value.decode("utf-8", "replace") for value in values.to_pylist())


def _times(values: Any) -> Any:
    """Convert milliseconds to timestamps; a time out of range becomes the first or the last one."""
    microseconds = np.clip(values, TIME_MS_MIN, TIME_MS_MAX) * 1000
    return number_array(microseconds).cast(pa.timestamp("us", tz="UTC"))


def _property_column(properties: PropertyColumns, field: Any) -> Any:
    """Build a column that is derived from properties."""
    match field.name:
        case "properties":
            return properties.json() if field.type == pa.string() else properties.map(field.type)
        case "keys":
            return properties.words(names.KEYS, field.type)
        case "delayLevel":
            return properties.integer(names.DELAY, field.type)
        case "deliverTime":
            deliver_ms = properties.integer(names.TIMER_DELIVER_MS, pa.int64())
            latest, earliest, factor = number_array(np.array([TIME_MS_MAX, TIME_MS_MIN, 1000]))
            early = pc.min_element_wise(deliver_ms, latest, skip_nulls=False)
            inside = pc.max_element_wise(early, earliest, skip_nulls=False)
            return pc.multiply(inside, factor).cast(field.type)
    return properties.text(_PROPERTY_OF[field.name])


def _hosts(arrays: RecordArrays, store_host: bool) -> Any:
    texts, which = text_of_hosts(arrays, store_host)
    return text_array(texts).take(number_array(which))


def _offset_ids(arrays: RecordArrays) -> Any:
    """Build the offset message ids: the address of the broker and the log offset, in hexadecimal.
    """
    if (arrays.sys_flag & record.SYS_STORE_HOST_V6).any():
        return text_array(
            (arrays.host_bytes(index, True) + int(log_offset).to_bytes(8, "big")).hex().upper()
            for index, log_offset in enumerate(arrays.physical_offset))
    raw = np.empty((len(arrays), 16), np.uint8)
    raw[:, :8] = arrays.data[arrays.store_host_start[:, None] + np.arange(8)]
    raw[:, 8:] = arrays.physical_offset.astype(">i8").view(np.uint8).reshape(-1, 8)
    offsets = np.arange(0, 32 * len(arrays) + 1, 32, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(arrays), [
        None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(_HEX[raw]))])


_PROPERTY_OF: Final = {
    "msgId": names.UNIQ_KEY, "tags": names.TAGS, "shardingKey": names.SHARDING_KEY}

#: The columns that come from fields of the record.
_COLUMNS: Final[dict[str, Callable[[RecordArrays], Any]]] = {
    "topic": lambda rows: _as_text(_pieces(rows, rows.topic_start, rows.topic_end)),
    "queueId": lambda rows: number_array(rows.queue_id),
    "queueOffset": lambda rows: number_array(rows.queue_offset),
    "commitLogOffset": lambda rows: number_array(rows.physical_offset),
    "offsetMsgId": _offset_ids,
    "flag": lambda rows: number_array(rows.flag),
    "sysFlag": lambda rows: number_array(rows.sys_flag),
    "bornTimestamp": lambda rows: _times(rows.born_timestamp),
    "storeTimestamp": lambda rows: _times(rows.store_timestamp),
    "bornHost": lambda rows: _hosts(rows, False),
    "storeHost": lambda rows: _hosts(rows, True),
    "reconsumeTimes": lambda rows: number_array(rows.reconsume_times),
    "preparedTransactionOffset": lambda rows: number_array(rows.prepared_transaction_offset),
    "storeSize": lambda rows: number_array(rows.size),
    "bodyCRC": lambda rows: number_array(rows.body_crc),
    # The queue reader fills in the reason for damaged messages afterwards.
    "damage": lambda rows: pa.nulls(len(rows), pa.string()),
}
