"""Records of the usual form, found in a pull's answer and checked without being decoded.

A consumer looks at the body of a message, seldom at all of its fields. So it keeps a record as its
bytes, and decodes it when another field is asked for. Nothing else of the answer is kept.
Leaf module of the hot path: standard library only, typed, so that mypyc compiles it.

Source: MessageDecoder.decodesBatch @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from twistmq.protocol.big_endian import int32_at, int64_at
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.record import (
    BODY_CRC_POSITION,
    BODY_LENGTH_POSITION,
    BODY_POSITION,
    MAGIC_POSITION,
    MAGIC_V1,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_BORN_HOST_V6,
    SYS_COMPRESSED,
    SYS_FLAG_POSITION,
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    SYS_STORE_HOST_V6,
    ends_after_body,
)

if TYPE_CHECKING:
    # Only mypyc reads it: machine integers read numbers faster.
    from mypy_extensions import i64

__all__ = ["body_of", "plain_record", "queue_offset_of"]

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
    body_length: i64 = int32_at(data, start + BODY_LENGTH_POSITION)
    sys_flag: i64 = int32_at(data, start + SYS_FLAG_POSITION)
    magic: i64 = int32_at(data, start + MAGIC_POSITION)
    begin: i64 = start + BODY_POSITION
    at: i64 = begin + body_length
    end: i64 = start + size
    if (magic != MAGIC_V1 or sys_flag & _UNUSUAL or body_length < 0 or end > total
            or not ends_after_body(data, at, end)):
        return 0, 0
    crc: i64 = int32_at(data, start + BODY_CRC_POSITION)
    if body_length and crc32(data[begin:at]) & 0x7FFFFFFF != crc:
        raise StoreDamaged(f"record at byte {position}: the body's CRC does not match")
    return at, end


def queue_offset_of(record: bytes, position: int = 0) -> int:
    """The place in the queue of a record that starts here."""
    return int64_at(record, position + QUEUE_OFFSET_POSITION)


def body_of(record: bytes) -> bytes:
    """The body of a plain record."""
    return record[BODY_POSITION:BODY_POSITION + int32_at(record, BODY_LENGTH_POSITION)]
