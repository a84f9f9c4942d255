"""Reading records back from the log, to enter them into queues and index again.

Leaf module: typed, so that mypyc compiles it. A slave reads every record of its master this way.

Source: CommitLog.checkMessageAndReturnSize, DefaultMessageStore.doDispatch @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from twistmq.broker.store.batch_queue import BATCH_MESSAGES_MAX
from twistmq.broker.store.entry_heads import record_follows
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.plain_properties import plain_keys
from twistmq.protocol.properties import INNER_NUM, parse_properties
from twistmq.protocol.record import (
    RECORD_SIZE_MIN,
    SYS_INNER_BATCH,
    MessageRecord,
    StoredMessage,
    decode_record,
    has_queue_entry,
    record_again,
    record_size,
    usual_record,
)

__all__ = ["TagsCode", "may_be_torn", "message_count", "record_of", "take_records"]

#: Computes the tags code in the queue entry of a record that has its offsets.
TagsCode = Callable[[MessageRecord], int]
#: Stored records are not checked for properties that request an action.
_NO_NAMES: Final[frozenset[str]] = frozenset()


def take_records(
    records: list[MessageRecord],
    chunk: bytes,
    at: int,
    offset: int,
    end: int,
    step_end: int,
    dispatch_filter: Callable[[MessageRecord], bool] | None,
    tags_codes: Mapping[str, TagsCode],
    head_size: int = 0,
) -> int:
    """Append whole records to ``records``, up to the first one that is in any way unusual.

    :param chunk: bytes of the log; byte ``at`` of it is at commit-log offset ``offset``.
    :param end: records that extend beyond this offset are not taken.
    :param step_end: no records are taken from this offset on.
    :param head_size: the size of the head in front of each record, see ``entry_heads``; 0 without
        heads.
    :returns: the number of bytes taken.
    """
    begin = taken_end = offset
    topic = ""
    topic_bytes = b""
    is_usual = False
    while offset < step_end and len(chunk) - at >= RECORD_SIZE_MIN + head_size:
        if head_size:
            if not record_follows(chunk, at, offset):
                break
            at += head_size
            offset += head_size
        size = record_size(chunk, at)
        fixed, body_end, record_end = usual_record(chunk, at)
        if record_end and dispatch_filter is None and offset + size <= end:
            properties = body_end + 3 + chunk[body_end]
            if not topic or chunk[body_end + 1 : properties - 2] != topic_bytes:
                topic_bytes = chunk[body_end + 1 : properties - 2]
                topic = str(topic_bytes, "utf-8", "replace")
                is_usual = topic not in tags_codes
            record = _usual_record(
                fixed, chunk, body_end, properties, record_end, topic) if is_usual else None
            if record is not None and record.physical_offset == offset:
                records.append(record)
                offset += size
                at += size
                taken_end = offset
                continue
        if size < RECORD_SIZE_MIN or size > len(chunk) - at or offset + size > end:
            break
        try:
            message = decode_record(chunk, at, False)
        except StoreDamaged:
            break
        if message.physical_offset != offset or may_be_torn(message):
            break
        records.append(record_of(message, dispatch_filter, tags_codes))
        offset += size
        at += size
        taken_end = offset
    return taken_end - begin


def _usual_record(
    fixed: tuple[Any, ...], chunk: bytes, body_end: int, properties: int, end: int, topic: str
) -> MessageRecord | None:
    """Rebuild the record of a plain message.

    :param fixed: the result of ``usual_record``, like ``body_end`` and ``end``.
    :param properties: the position of the properties in the chunk.
    :returns: None when ``record_of`` has to decode it.
    """
    sys_flag: int = fixed[7]
    body_length: int = fixed[14]
    data = chunk[properties:end]
    if sys_flag & SYS_INNER_BATCH or not data or data[-1] == 0:
        return None
    text = data.decode("latin-1")
    keys, tags_code = plain_keys(data, text, _NO_NAMES)
    if keys is None:
        return None
    physical_offset: int = fixed[6]
    size: int = fixed[0]
    record = MessageRecord(
        topic, fixed[3], chunk[body_end - body_length : body_end], text, fixed[8], fixed[9],
        fixed[11], keys, tags_code, fixed[4], sys_flag, fixed[12], fixed[13])
    record.queue_offset = fixed[5]
    record.physical_offset = physical_offset
    record.size = size
    record.store_timestamp = fixed[10]
    record.next_offset = physical_offset + size
    record.enters_queue = has_queue_entry(sys_flag)
    return record


def may_be_torn(message: StoredMessage) -> bool:
    """Return whether a record ends like one that was written only in part."""
    return (message.properties or message.topic).endswith("\0")


def message_count(sys_flag: int, properties: str) -> int:
    """Return the number of messages in a stored record; an invalid count is taken as 1."""
    if not sys_flag & SYS_INNER_BATCH:
        return 1
    text = parse_properties(properties).get(INNER_NUM, "")
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 1
    return count if 0 < count <= BATCH_MESSAGES_MAX else 1


def record_of(
    message: StoredMessage,
    dispatch_filter: Callable[[MessageRecord], bool] | None,
    tags_codes: Mapping[str, TagsCode],
) -> MessageRecord:
    """Rebuild the record that was appended for a stored message, to dispatch it again."""
    record = record_again(message, parse_properties(message.properties))
    record.message_count = message_count(message.sys_flag, message.properties)
    record.queue_offset = message.queue_offset
    record.physical_offset = message.physical_offset
    record.size = message.size
    record.store_timestamp = message.store_timestamp
    record.next_offset = message.physical_offset + message.size
    make_tags_code = tags_codes.get(message.topic)
    if make_tags_code is not None:
        record.tags_code = make_tags_code(record)
    record.enters_queue = has_queue_entry(message.sys_flag)
    if record.enters_queue and dispatch_filter is not None:
        record.enters_queue = dispatch_filter(record)
    return record
