"""``twistmq store dump``: selecting the records to show, and formatting them.

With a key, the index is searched, and only records that are not in it yet are read from the log;
without an index or a topic, the whole log is read. Bodies are shown as they are stored: compressed
ones are not decompressed. For an inner batch, its messages are shown, each with its own offset.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from twistmq.broker.store.extension_unit import ExtensionUnit
from twistmq.broker.store.inspect.index_view import IndexView, key_hash
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.log_walk import LogWalk
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.printable import escaped, json_printable
from twistmq.protocol.properties import TAGS, index_keys, parse_properties
from twistmq.protocol.record import SYS_INNER_BATCH, StoredMessage, host_text

__all__ = ["Wanted", "as_json", "as_text", "escaped", "find_records", "time_text"]

#: The maximum disorder of store times of neighbouring records, in ms: the difference between two
#: clocks.
_DISORDER_MS: Final = 60_000
#: The resolution of the time in an index item, in ms.
_ITEM_TIME_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """The conditions for a record to be shown; None matches everything."""

    topic: str | None = None
    queue_id: int | None = None
    #: The first and the last store time, in ms.
    begin_ms: int | None = None
    end_ms: int | None = None
    #: The UNIQ_KEY or one of the KEYS.
    key: str | None = None
    #: The offset in the commit log.
    place: int | None = None

    def is_in_time(self, store_ms: int, tolerance_ms: int = 0) -> bool:
        """Return whether a store time is in the range."""
        return (self.begin_ms is None or store_ms >= self.begin_ms - tolerance_ms) and (
            self.end_ms is None or store_ms <= self.end_ms + tolerance_ms)

    def matches(self, message: StoredMessage) -> bool:
        """Return whether a record matches the conditions."""
        return (
            (self.topic is None or message.topic == self.topic)
            and (self.queue_id is None or message.queue_id == self.queue_id)
            and self.is_in_time(message.store_timestamp)
            and (self.key is None or self.key in index_keys(message.properties_map()))
        )


def find_records(
    store: StoreFiles,
    conditions: Wanted,
    report: Report,
    index_slots: int | None = None,
    advance: Callable[[int], object] = int,
) -> Iterator[tuple[int, StoredMessage]]:
    """Find records in the order of the log.

    :param report: receives the errors of records that cannot be read.
    :param index_slots: the number of slots of each index file; with None it is determined.
    :param advance: called with the number of bytes of the log that were processed.
    :returns: (commit-log offset, record).
    """
    if conditions.place is not None:
        message = store.look(conditions.place)
        if isinstance(message, StoredMessage):
            if conditions.matches(message):
                yield conditions.place, message
        else:
            report.problem(*store.log.locate(conditions.place), "a record", message)
        return
    begin = store.log_begin
    if conditions.key is not None and conditions.topic is not None:
        views = [IndexView(store.reader, path, index_slots) for path in store.index_paths()]
        views = [view for view in views if view.count > 1]
        if views and all(view.slot_count for view in views):
            for log_offset in sorted(_places(views, conditions, conditions.topic, conditions.key)):
                message = store.look(log_offset)
                if isinstance(message, StoredMessage) and conditions.matches(message):
                    yield log_offset, message
            begin = _behind(store, max(view.end_physical for view in views))
            advance(begin - store.log_begin)
    for log_offset, message in LogWalk(store, report, advance).records(
            begin, lambda start: _may_match(store, conditions, start)):
        if conditions.matches(message):
            yield log_offset, message


def _places(views: list[IndexView], conditions: Wanted, topic: str, key: str) -> set[int]:
    """Return the commit-log offsets that the index has for a key, or for the same hash."""
    code = key_hash(topic, key)
    return {log_offset for view in views
            for log_offset in view.find(code, lambda ms: conditions.is_in_time(ms, _ITEM_TIME_MS))}


def _behind(store: StoreFiles, log_offset: int) -> int:
    """Return the offset after the last record in the index."""
    message = store.look(log_offset)
    if log_offset >= store.log_begin and isinstance(message, StoredMessage):
        return log_offset + message.size
    return store.log_begin


def _may_match(store: StoreFiles, conditions: Wanted, start: int) -> bool:
    """Return whether a file may contain records of the time range.

    This is determined from the first record of the file and of the next one. A file whose times
    cannot be read may match.
    """
    first = _first_time(store, start)
    if conditions.end_ms is not None and first is not None and (
            first > conditions.end_ms + _DISORDER_MS):
        return False
    following = _first_time(store, start + store.log.file_size)
    return (conditions.begin_ms is None or following is None
            or following >= conditions.begin_ms - _DISORDER_MS)


def _first_time(store: StoreFiles, start: int) -> int | None:
    """Return the store time of the first record of a file, in ms."""
    message = store.look(start + store.head_size) if start < store.log_end else ""
    return message.store_timestamp if isinstance(message, StoredMessage) else None


def as_json(
    log_offset: int, message: StoredMessage, with_body: bool, unit: ExtensionUnit | None = None,
    entry: tuple[int, int] | None = None,
) -> str:
    """Format a record as one JSON object on one line.

    ``body`` contains a text; ``bodyBase64`` contains a body that is not UTF-8.

    :param unit: the extension unit of the record's queue entry.
    :param entry: index and term of the record's entry in a ledger.
    """
    properties = message.properties_map()
    fields: dict[str, Any] = {
        "offset": log_offset,
        "size": message.size,
        "topic": message.topic,
        "queue": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTime": message.store_timestamp,
        "bornTime": message.born_timestamp,
        "storeHost": host_text(message.store_host),
        "bornHost": host_text(message.born_host),
        "keys": index_keys(properties),
        "tags": properties.get(TAGS),
        "properties": properties,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyLength": len(message.body),
    }
    if entry is not None:
        fields["entry"] = {"index": entry[0], "term": entry[1]}
    if unit is not None:
        fields["extension"] = {"tagsCode": unit.tags_code, "msgStoreTime": unit.store_time,
                               "filterBitMap": unit.bitmap.hex()}
    inner = _inner_messages(message)
    if inner:
        fields["messages"] = [_inner_json(message.queue_offset + index, each, with_body)
                              for index, each in enumerate(inner)]
    elif with_body:
        fields |= _body_json(message.body)
    return json_printable(msgspec.json.encode(fields).decode())


def as_text(
    log_offset: int, message: StoredMessage, with_body: bool, unit: ExtensionUnit | None = None,
    entry: tuple[int, int] | None = None,
) -> str:
    """Format a record: a line of offsets, one of properties and one of the unit if it has any, and
    the body."""
    properties = message.properties_map()
    head = [f"{log_offset}", f"{escaped(message.topic)}-{message.queue_id}@{message.queue_offset}",
            f"stored {time_text(message.store_timestamp)}",
            f"born {time_text(message.born_timestamp)}",
            f"{message.size} bytes"]
    if entry is not None:
        head.append(f"entry {entry[0]}  term {entry[1]}")
    if message.sys_flag:
        head.append(f"flags {message.sys_flag:#x}")
    lines = ["  ".join(head)]
    if properties:
        lines.append("    " + " ".join(f"{escaped(name)}={escaped(value)}"
                                       for name, value in properties.items()))
    if unit is not None:
        lines.append(f"    extension: tags code {unit.tags_code}, stored "
                     f"{time_text(unit.store_time)}, bitmap {unit.bitmap.hex() or 'none'}")
    inner = _inner_messages(message)
    for index, (_, body, text) in enumerate(inner):
        pairs = parse_properties(text).items()
        lines.append(f"    @{message.queue_offset + index} " + " ".join(
            f"{escaped(name)}={escaped(value)}" for name, value in pairs))
        if with_body:
            lines.append(f"        {_body_text(body)}")
    if with_body and not inner:
        lines.append(f"    {_body_text(message.body)}")
    return "\n".join(lines)


def _inner_messages(message: StoredMessage) -> list[tuple[int, bytes, str]]:
    """Return (flag, body, properties) of each message of an inner batch; else an empty list."""
    if not message.sys_flag & SYS_INNER_BATCH:
        return []
    try:
        return decode_batch(message.body)
    except MessageIllegal:
        return []


def _inner_json(
    queue_offset: int, message: tuple[int, bytes, str], with_body: bool
) -> dict[str, Any]:
    flag, body, text = message
    shown = {"queueOffset": queue_offset, "flag": flag, "properties": parse_properties(text),
             "bodyLength": len(body)}
    return {**shown, **_body_json(body)} if with_body else shown


def _body_json(body: bytes) -> dict[str, str]:
    text = _text(body)
    if text is None:
        return {"bodyBase64": base64.b64encode(body).decode("ascii")}
    return {"body": text}


def _body_text(body: bytes) -> str:
    text = _text(body)
    shown = (f"base64 {base64.b64encode(body).decode('ascii')}" if text is None
             else escaped(text))
    return f"body ({len(body)}): {shown}"


def _text(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def time_text(ms: int) -> str:
    """Format a time in UTC, to the millisecond; as a number where it is beyond the calendar."""
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{ms}"
