"""Records that are read back from the log, as they are entered into queues and index once more.

Leaf module: typed, so that mypyc compiles it. A slave reads every record of its master this way.

Source: CommitLog.checkMessageAndReturnSize, DefaultMessageStore.doDispatch @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twistmq.broker.errors import StoreDamaged
from twistmq.broker.store.batch_queue import BATCH_MESSAGES_MAX
from twistmq.broker.wire.properties import INNER_NUM, parse_properties
from twistmq.broker.wire.record import (
    RECORD_SIZE_MIN,
    SYS_INNER_BATCH,
    MessageRecord,
    StoredMessage,
    decode_record,
    has_queue_entry,
    record_again,
    record_size,
)

__all__ = ["TagsCode", "may_be_torn", "message_count", "record_of", "take_records"]

#: Gives the number that stands in the queue entry of a record that has its places.
TagsCode = Callable[[MessageRecord], int]


def take_records(
    records: list[MessageRecord],
    chunk: bytes,
    at: int,
    offset: int,
    end: int,
    enough: int,
    dispatch_filter: Callable[[MessageRecord], bool] | None,
    tags_codes: Mapping[str, TagsCode],
) -> int:
    """Append whole records to ``records``, up to the first of which anything is in doubt.

    :param chunk: bytes of the log; at byte ``at`` of it is place ``offset`` of the log.
    :param end: records that go beyond this place are not taken.
    :param enough: no more are taken from this place on.
    :returns: the bytes that were taken.
    """
    begin = offset
    while offset < enough and len(chunk) - at >= RECORD_SIZE_MIN:
        size = record_size(chunk, at)
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
    return offset - begin


def may_be_torn(message: StoredMessage) -> bool:
    """Whether a record ends as one that was written in part."""
    return (message.properties or message.topic).endswith("\0")


def message_count(sys_flag: int, properties: str) -> int:
    """How many messages a stored record is; what cannot be is taken for one."""
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
    """Make the record that the sender of a stored message appended, to dispatch it again."""
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
