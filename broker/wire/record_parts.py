"""Records of a pull's answer, cut and checked, and decoded when their fields are asked for.

A consumer looks at the body of a message, seldom at all of its fields. So a record of the usual
form stays in three pieces: the body, and the bytes before and after it. Nothing of the answer is
kept with them.
Leaf module of the hot path: standard library only, typed, so that mypyc compiles it.

Source: MessageDecoder.decodesBatch @5.3.3.
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from twistmq.broker.errors import StoreDamaged
from twistmq.broker.wire.record import (
    MAGIC_V1,
    RECORD_SIZE_MIN,
    SYS_BORN_HOST_V6,
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    SYS_STORE_HOST_V6,
    StoredMessage,
    decode_record,
)

__all__ = ["RecordParts", "cut_records", "whole_record"]

#: The offset in the queue, the size, the bytes before the body, the body, the bytes after it.
RecordParts = tuple[int, int, bytes, bytes, bytes]

#: size, magic, body_crc, queue_offset, sys_flag and body_length of the fixed part, which has 88
#: bytes with two IPv4 addresses; see RECORD_LAYOUT.
_HEAD: Final = struct.Struct(">iii8xq8xi44xi")
_HEAD_SIZE: Final = 88
_unpack_head: Final = _HEAD.unpack_from
_UNUSUAL: Final = (SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6 | SYS_COMPRESSED | SYS_INNER_BATCH
                   | SYS_NEED_UNWRAP)


def cut_records(data: bytes) -> list[RecordParts | StoredMessage]:
    """Cut records that stand one behind the other, as a pull's body holds them.

    :returns: a record that is compressed, an inner batch, of V2, or with an IPv6 address is
        decoded; the others are in parts.
    :raises StoreDamaged: as ``decode_record`` does.
    """
    found: list[RecordParts | StoredMessage] = []
    position = 0
    total = len(data)
    while position < total:
        if total - position < RECORD_SIZE_MIN:
            raise StoreDamaged(f"no record at byte {position}: {total - position} bytes left")
        size: int
        magic: int
        crc: int
        queue_offset: int
        sys_flag: int
        body_length: int
        size, magic, crc, queue_offset, sys_flag, body_length = _unpack_head(data, position)
        begin = position + _HEAD_SIZE
        at = begin + body_length
        end = position + size
        if (magic != MAGIC_V1 or sys_flag & _UNUSUAL or body_length < 0 or end > total
                or at + 3 > end or not _fits(data, at, end)):
            record = decode_record(data, position)
            found.append(record)
            position += record.size
            continue
        body = data[begin:at]
        if body_length and crc32(body) & 0x7FFFFFFF != crc:
            raise StoreDamaged(f"record at byte {position}: the body's CRC does not match")
        found.append((queue_offset, size, data[position:begin], body, data[at:end]))
        position = end
    return found


def _fits(data: bytes, at: int, end: int) -> bool:
    """Whether topic and properties, which begin here, end where the record does."""
    properties = at + 3 + data[at]
    if properties > end or data[properties - 2] > 0x7F:
        return False
    return properties + (data[properties - 2] << 8 | data[properties - 1]) == end


def whole_record(parts: RecordParts) -> StoredMessage:
    """Decode a record that was cut."""
    return decode_record(parts[2] + parts[3] + parts[4], 0, False)


assert _HEAD.size == _HEAD_SIZE
