"""Finds records of the usual form in the response to a pull, and checks them without decoding.

A consumer uses the body of a message but seldom all of its fields. Therefore it keeps the bytes of
a record, and decodes them when another field is requested. The rest of the response is not kept.
This is a leaf module of the hot path. It uses only the standard library, and it is typed so that
mypyc can compile it.

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
    # Only mypyc uses this import: machine integers make reading numbers faster.
    from mypy_extensions import i64

__all__ = ["body_of", "plain_record", "queue_offset_of"]

_UNUSUAL: Final = (SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6 | SYS_COMPRESSED | SYS_INNER_BATCH
                   | SYS_NEED_UNWRAP)


def plain_record(data: bytes, position: int) -> tuple[int, int]:
    """Find the record that starts at a position, and check it.

    :returns: where its body ends and where the record ends. The latter is 0 when the record is
        compressed, an inner batch, of V2, has an IPv6 address, or is damaged; ``decode_record``
        determines which.
    :raises StoreDamaged: when the body does not match its CRC, or too few bytes are left for a
        record.
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
    """The queue offset of the record that starts at a position."""
    return int64_at(record, position + QUEUE_OFFSET_POSITION)


def body_of(record: bytes) -> bytes:
    """The body of a plain record."""
    return record[BODY_POSITION:BODY_POSITION + int32_at(record, BODY_LENGTH_POSITION)]
