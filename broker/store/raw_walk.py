"""The loop over the records in bytes of another broker's log.

Leaf module: typed, so that mypyc compiles it. A slave looks at every record of its master this way.

Source: CommitLog.checkMessageAndReturnSize @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.broker.wire.big_endian import uint32_at
from twistmq.broker.wire.record import BLANK_SIZE_MIN, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN

if TYPE_CHECKING:
    # Only mypyc reads it: machine integers read lengths faster.
    from mypy_extensions import i64

__all__ = ["whole_messages"]

#: Bytes of a record's head that are read here: int32 size, int32 magic.
_HEAD_SIZE: Final = 8
_V1: Final = MAGIC_V1 & 0xFFFFFFFF
_V2: Final = MAGIC_V2 & 0xFFFFFFFF


def whole_messages(data: bytes, begin: int, room: int) -> tuple[int, int]:
    """Pass whole messages, up to the first of which anything is in doubt.

    :param begin: where the first one begins.
    :param room: bytes from there to the end of the file of the log.
    :returns: bytes that were passed, and messages.
    """
    at: i64 = begin
    end: i64 = len(data)
    most: i64 = begin + room - BLANK_SIZE_MIN
    count = 0
    while at + _HEAD_SIZE <= end:
        size = uint32_at(data, at)
        magic = uint32_at(data, at + 4)
        if (magic != _V1 and magic != _V2) or size < RECORD_SIZE_MIN or at + size > end or (
                at + size > most):
            break
        at += size
        count += 1
    return at - begin, count
