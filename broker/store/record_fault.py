"""Finds the fault of a record in another broker's log.

The fields of a record determine where its entry goes. A topic that cannot name a directory, or a
negative queue id, has no queue. A slave does not append such a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from twistmq.broker.store.consume_queue import OFFSET_MAX
from twistmq.protocol.record import (
    BODY_POSITION,
    MAGIC_V2,
    PROPERTIES_LENGTH_MAX,
    STORE_TIMESTAMP_POSITION,
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    TOPIC_LENGTH_MAX,
)
from twistmq.protocol.topic_names import can_be_directory

__all__ = ["record_fault"]

#: (magic, queue id, queue offset, physical offset, system flag), from byte 4 of a record on.
_HEAD: Final = struct.Struct(">i4xi4xqqi")
_HEAD_POSITION: Final = 4
_STORE_TIME: Final = struct.Struct(">q")
_V4_SIZE, _V6_SIZE = 4, 16
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
#: The number of characters of a topic that a text shows.
_SHOWN: Final = 80


def record_fault(read: Callable[[int, int], bytes], log_offset: int, size: int) -> str:
    """Return the reason why a store cannot enter a whole record.

    :param read: reads bytes of the log: (commit-log offset, size).
    :param log_offset: the commit-log offset of the record.
    :param size: the value of its first field, at least RECORD_SIZE_MIN.
    :returns: empty when it can be entered. The CRC of the body is not checked.
    """
    fixed_max = BODY_POSITION + 2 * (_V6_SIZE - _V4_SIZE)
    head = read(log_offset, min(size, fixed_max))
    magic, queue_id, queue_offset, physical_offset, sys_flag = _HEAD.unpack_from(
        head, _HEAD_POSITION)
    born = _V6_SIZE if sys_flag & SYS_BORN_HOST_V6 else _V4_SIZE
    store = _V6_SIZE if sys_flag & SYS_STORE_HOST_V6 else _V4_SIZE
    fixed = BODY_POSITION + born + store - 2 * _V4_SIZE
    if fixed > size:
        return f"its size {size} is less than the size of its head, {fixed}"
    if physical_offset != log_offset:
        return f"its physical offset is {physical_offset}"
    if queue_id < 0:
        return f"its queue id {queue_id} is negative"
    if not 0 <= queue_offset <= OFFSET_MAX:
        return f"no queue has an offset {queue_offset}"
    store_ms: int = _STORE_TIME.unpack_from(
        head, STORE_TIMESTAMP_POSITION + born - _V4_SIZE)[0]
    if store_ms < 0:
        return f"its store time {store_ms} is negative"
    body_length: int = _INT.unpack_from(head, fixed - 4)[0]
    return _fault_of_text(read, log_offset + fixed, size - fixed, body_length, magic == MAGIC_V2)


def _fault_of_text(
    read: Callable[[int, int], bytes], begin: int, size: int, body_length: int, is_long: bool
) -> str:
    """Check the fields that follow the fixed ones of a record.

    :param size: the number of bytes from ``begin`` to its end.
    :param is_long: whether the length of the topic takes two bytes.
    """
    lengths = (2 if is_long else 1) + 2
    text_size = size - body_length
    if not 0 <= body_length <= size - lengths:
        return f"its body of {body_length} bytes does not fit"
    if text_size > lengths + TOPIC_LENGTH_MAX + PROPERTIES_LENGTH_MAX:
        return f"{text_size} bytes follow its body"
    text = read(begin + body_length, text_size)
    topic_length: int = _SHORT.unpack_from(text)[0] if is_long else text[0]
    end = lengths - 2 + topic_length
    if topic_length < 0 or end + 2 > text_size:
        return f"its topic of {topic_length} bytes does not fit"
    properties_length: int = _SHORT.unpack_from(text, end)[0]
    if end + 2 + properties_length != text_size:
        return f"its properties of {properties_length} bytes do not end with it"
    topic = str(text[lengths - 2 : end], "utf-8", "replace")
    if not can_be_directory(topic):
        return f"its topic {topic[:_SHOWN]!r} cannot name a directory"
    return ""
