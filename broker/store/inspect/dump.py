"""``twistmq store dump``: which records, and what is shown of each.

With a key the index is asked, and only what is not in it yet is read; without an index, or without
a topic, the whole log is. Bodies are shown as they are stored: a compressed one is not unpacked.
Of an inner batch its messages are shown, each with the offset that is its own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from twistmq.broker.errors import MessageIllegal
from twistmq.broker.printable import escaped, json_printable
from twistmq.broker.store.extension_unit import ExtensionUnit
from twistmq.broker.store.inspect.index_view import IndexView, key_hash
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.log_walk import LogWalk
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.wire.batch import decode_batch
from twistmq.broker.wire.properties import TAGS, index_keys, parse_properties
from twistmq.broker.wire.record import SYS_INNER_BATCH, StoredMessage, host_text

__all__ = ["Wanted", "as_json", "as_text", "escaped", "find_records", "time_text"]

#: How far store times of neighbours in the log may be out of order, ms: two clocks' difference.
_DISORDER_MS: Final = 60_000
#: How much an item's time leaves out, ms.
_ITEM_TIME_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """The condition for a record to be shown; None: anything."""

    topic: str | None = None
    queue_id: int | None = None
    #: Store times in ms, both included.
    begin_ms: int | None = None
    end_ms: int | None = None
    #: UNIQ_KEY or one of KEYS.
    key: str | None = None
    #: Place in the commit log.
    place: int | None = None

    def is_in_time(self, store_ms: int, tolerance_ms: int = 0) -> bool:
        """Whether a store time is in the span."""
        return (self.begin_ms is None or store_ms >= self.begin_ms - tolerance_ms) and (
            self.end_ms is None or store_ms <= self.end_ms + tolerance_ms)

    def matches(self, message: StoredMessage) -> bool:
        """Whether a record is wanted."""
        return (
            (self.topic is None or message.topic == self.topic)
            and (self.queue_id is None or message.queue_id == self.queue_id)
            and self.is_in_time(message.store_timestamp)
            and (self.key is None or self.key in index_keys(message.properties_map()))
        )


def find_records(
    store: StoreFiles,
    wanted: Wanted,
    report: Report,
    index_slots: int | None = None,
    advance: Callable[[int], object] = int,
) -> Iterator[tuple[int, StoredMessage]]:
    """Find records in the order of the log.

    :param report: takes what cannot be read.
    :param index_slots: slots of each index file; None: found out.
    :param advance: told how many bytes of the log were passed.
    :returns: (place in the log, record).
    """
    if wanted.place is not None:
        found = store.look(wanted.place)
        if isinstance(found, StoredMessage):
            if wanted.matches(found):
                yield wanted.place, found
        else:
            report.problem(*store.log.locate(wanted.place), "a record", found)
        return
    begin = store.log_begin
    if wanted.key is not None and wanted.topic is not None:
        views = [IndexView(store.reader, path, index_slots) for path in store.index_paths()]
        views = [view for view in views if view.count > 1]
        if views and all(view.slot_count for view in views):
            for place in sorted(_places(views, wanted, wanted.topic, wanted.key)):
                message = store.look(place)
                if isinstance(message, StoredMessage) and wanted.matches(message):
                    yield place, message
            begin = _behind(store, max(view.end_physical for view in views))
            advance(begin - store.log_begin)
    for place, message in LogWalk(store, report, advance).records(
            begin, lambda start: _may_match(store, wanted, start)):
        if wanted.matches(message):
            yield place, message


def _places(views: list[IndexView], wanted: Wanted, topic: str, key: str) -> set[int]:
    """Places of records the index knows for a key, or for one with its hash."""
    code = key_hash(topic, key)
    return {place for view in views
            for place in view.find(code, lambda ms: wanted.is_in_time(ms, _ITEM_TIME_MS))}


def _behind(store: StoreFiles, place: int) -> int:
    """The offset behind the last record in the index."""
    message = store.look(place)
    if place >= store.log_begin and isinstance(message, StoredMessage):
        return place + message.size
    return store.log_begin


def _may_match(store: StoreFiles, wanted: Wanted, start: int) -> bool:
    """Whether a file may hold records of the span of time, by the first record of it and the next.

    A file whose times cannot be read is wanted.
    """
    first = _first_time(store, start)
    if wanted.end_ms is not None and first is not None and first > wanted.end_ms + _DISORDER_MS:
        return False
    following = _first_time(store, start + store.log.file_size)
    return (wanted.begin_ms is None or following is None
            or following >= wanted.begin_ms - _DISORDER_MS)


def _first_time(store: StoreFiles, start: int) -> int | None:
    """Store time in ms of a file's first record."""
    message = store.look(start) if start < store.log_end else ""
    return message.store_timestamp if isinstance(message, StoredMessage) else None


def as_json(
    place: int, message: StoredMessage, with_body: bool, unit: ExtensionUnit | None = None
) -> str:
    """One object on one line; ``body`` is text, ``bodyBase64`` what is not UTF-8.

    :param unit: what the record's queue entry has besides.
    """
    properties = message.properties_map()
    shown: dict[str, Any] = {
        "offset": place,
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
    if unit is not None:
        shown["extension"] = {"tagsCode": unit.tags_code, "msgStoreTime": unit.store_time,
                              "filterBitMap": unit.bitmap.hex()}
    inner = _inner_messages(message)
    if inner:
        shown["messages"] = [_inner_json(message.queue_offset + index, each, with_body)
                             for index, each in enumerate(inner)]
    elif with_body:
        shown |= _body_json(message.body)
    return json_printable(msgspec.json.encode(shown).decode())


def as_text(
    place: int, message: StoredMessage, with_body: bool, unit: ExtensionUnit | None = None
) -> str:
    """A line of places, one of properties and one of the unit if there are any, and the body."""
    properties = message.properties_map()
    named = [f"{place}", f"{escaped(message.topic)}-{message.queue_id}@{message.queue_offset}",
             f"stored {time_text(message.store_timestamp)}",
             f"born {time_text(message.born_timestamp)}",
             f"{message.size} bytes"]
    if message.sys_flag:
        named.append(f"flags {message.sys_flag:#x}")
    lines = ["  ".join(named)]
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
    """(flag, body, properties) of each message of an inner batch; none of another record."""
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
    """A time in UTC, to the millisecond; the number where no calendar reaches."""
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{ms}"
