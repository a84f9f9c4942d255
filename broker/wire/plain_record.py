"""Records of the usual form, found in a pull's answer and checked without being decoded.

A consumer looks at the body of a message, seldom at all of its fields. So it keeps a record as its
bytes, and decodes it when another field is asked for. Nothing else of the answer is kept.
Leaf module of the hot path: standard library only, typed, so that mypyc compiles it.

Source: MessageDecoder.decodesBatch @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from twistmq.broker.errors import StoreDamaged
from twistmq.broker.wire.big_endian import int32_at, int64_at
from twistmq.broker.wire.record import (
    MAGIC_V1,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_BORN_HOST_V6,
    SYS_COMPRESSED,
    SYS_FLAG_POSITION,
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    SYS_STORE_HOST_V6,
)

if TYPE_CHECKING:
    # Only mypyc reads it: machine integers read numbers faster.
    from mypy_extensions import i64

__all__ = ["body_of", "plain_record", "queue_offset_of"]

#: Where the body begins, with two IPv4 addresses before it, and where its length stands.
_BODY: Final = 88
_BODY_LENGTH: Final = 84
_MAGIC: Final = 4
_BODY_CRC: Final = 8
_UNUSUAL: Final = (SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6 | SYS_COMPRESSED | SYS_INNER_BATCH
                   | SYS_NEED_UNWRAP)


def plain_record(data: bytes, position: int) -> tuple[int, int]:
    """Find the record that starts here, and check it.

    :returns: where its body and where the record ends. The latter is 0 when it is compressed, an
        inner batch, of V2, has an IPv6 address, or is damaged: ``decode_record`` tells.
    :raises StoreDamaged: when the body is not the one the CRC was made of, or too few bytes are
        left for a record.
    """
    start: i64 = position
    total: i64 = len(data)
    if total - start < RECORD_SIZE_MIN:
        raise StoreDamaged(f"no record at byte {position}: {total - start} bytes left")
    size: i64 = int32_at(data, start)
    body_length: i64 = int32_at(data, start + _BODY_LENGTH)
    sys_flag: i64 = int32_at(data, start + SYS_FLAG_POSITION)
    magic: i64 = int32_at(data, start + _MAGIC)
    begin: i64 = start + _BODY
    at: i64 = begin + body_length
    end: i64 = start + size
    if magic != MAGIC_V1 or sys_flag & _UNUSUAL or body_length < 0 or end > total or at + 3 > end:
        return 0, 0
    # Topic and properties begin here, and end where the record does.
    topic_length: i64 = data[at]
    properties: i64 = at + 3 + topic_length
    if properties > end:
        return 0, 0
    high: i64 = data[properties - 2]
    low: i64 = data[properties - 1]
    if high > 0x7F or properties + (high << 8 | low) != end:
        return 0, 0
    crc: i64 = int32_at(data, start + _BODY_CRC)
    if body_length and crc32(data[begin:at]) & 0x7FFFFFFF != crc:
        raise StoreDamaged(f"record at byte {position}: the body's CRC does not match")
    return at, end


def queue_offset_of(record: bytes, position: int = 0) -> int:
    """The place in the queue of a record that starts here."""
    return int64_at(record, position + QUEUE_OFFSET_POSITION)


def body_of(record: bytes) -> bytes:
    """The body of a plain record."""
    return record[_BODY:_BODY + int32_at(record, _BODY_LENGTH)]
