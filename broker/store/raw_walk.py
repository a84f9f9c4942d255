"""The loop over the records in bytes of another broker's log.

The loop stops at a record that a store cannot enter, and ``record_fault`` then returns the reason.
Leaf module: typed, so that mypyc compiles it. A slave checks every record of its master this way.

Source: CommitLog.checkMessageAndReturnSize @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.broker.store.consume_queue import OFFSET_MAX
from twistmq.protocol.big_endian import int32_at, int64_at, uint32_at
from twistmq.protocol.record import (
    BLANK_SIZE_MIN,
    BODY_POSITION,
    MAGIC_V1,
    PHYSICAL_OFFSET_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_POSITION,
    SYS_BORN_HOST_V6,
    SYS_FLAG_POSITION,
    SYS_STORE_HOST_V6,
    ends_after_body,
)
from twistmq.protocol.topic_names import can_be_directory

if TYPE_CHECKING:
    # Only mypyc uses it: machine integers make reading lengths faster.
    from mypy_extensions import i64

__all__ = ["whole_messages"]

_V1: Final = MAGIC_V1 & 0xFFFFFFFF
#: The additional size of an IPv6 address over an IPv4 one, in bytes.
_V6_MORE: Final = 12
#: The highest first byte of a non-negative number.
_SIGN_MAX: Final = 0x7F
#: The highest first byte of a queue offset.
_OFFSET_BYTE_MAX: Final = OFFSET_MAX >> 56


def whole_messages(
    data: bytes, begin: int, room: int, log_offset: int, names: set[bytes]
) -> tuple[int, int]:
    """Pass whole messages that a store can enter, up to the first one that is in any way unusual.

    :param begin: the position of the first one in the data.
    :param room: the number of bytes from there to the end of the commit-log file.
    :param log_offset: the commit-log offset of the first one.
    :param names: encoded topics that can name a directory; new ones are added.
    :returns: the number of bytes and of messages passed.
    """
    at: i64 = begin
    end: i64 = len(data)
    end_max: i64 = begin + room - BLANK_SIZE_MIN
    shift: i64 = log_offset - begin
    count = 0
    while at + RECORD_SIZE_MIN <= end:
        size: i64 = uint32_at(data, at)
        behind: i64 = at + size
        # V2 records are rare and left to the caller.
        if uint32_at(data, at + 4) != _V1 or size < RECORD_SIZE_MIN or behind > end or (
                behind > end_max):
            break
        if (data[at + QUEUE_ID_POSITION] > _SIGN_MAX
                or data[at + QUEUE_OFFSET_POSITION] > _OFFSET_BYTE_MAX
                or int64_at(data, at + PHYSICAL_OFFSET_POSITION) != at + shift):
            break
        sys_flag: i64 = data[at + SYS_FLAG_POSITION + 3]
        time: i64 = at + STORE_TIMESTAMP_POSITION
        body: i64 = at + BODY_POSITION
        if sys_flag & SYS_BORN_HOST_V6:
            time += _V6_MORE
            body += _V6_MORE
        if sys_flag & SYS_STORE_HOST_V6:
            body += _V6_MORE
        if body > behind or data[time] > _SIGN_MAX:
            break
        body_length: i64 = int32_at(data, body - 4)
        topic: i64 = body + body_length
        if body_length < 0 or not ends_after_body(data, topic, behind):
            break
        name = data[topic + 1 : topic + 1 + data[topic]]
        if name not in names:
            if not can_be_directory(str(name, "utf-8", "replace")):
                break
            names.add(name)
        at = behind
        count += 1
    return at - begin, count


assert (OFFSET_MAX + 1) % (1 << 56) == 0
