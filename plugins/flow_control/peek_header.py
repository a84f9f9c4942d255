"""Reads the code and topic of a frame as quickly as possible.

An overloaded broker refuses many requests, so refusing one must be quick.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twistmq.broker.api.errors import HeaderError
from twistmq.broker.api.limits import HEADER_SIZE_MAX
from twistmq.broker.api.wire import (
    BINARY_BEGIN,
    RESPONSE_FLAG,
    ROCKETMQ,
    Frame,
    Int32,
    decode_command,
    sketch,
)

__all__ = ["RequestHead", "look"]

#: Code, opaque and flag of a request.
RequestHead = tuple[int, int, int]


class _Begin(msgspec.Struct, gc=False):
    """The members of a JSON header that are needed here."""

    code: Int32
    opaque: Int32
    flag: Int32 = 0


_decode_begin: Final = msgspec.json.Decoder(_Begin).decode


def look(frame: Frame) -> RequestHead | None:
    """Return the request of a frame, or None if the header cannot be read; such a frame passes."""
    serialize_type, header, _ = frame
    code: int | None
    opaque: int | None
    flag: int
    if len(header) > HEADER_SIZE_MAX:
        # The header may have megabytes, and nothing reads it before this check.
        code, opaque, flag = sketch(frame)
        if code is None or opaque is None:
            return None
    elif serialize_type == ROCKETMQ and len(header) >= BINARY_BEGIN.size:
        code, _, _, opaque, flag = BINARY_BEGIN.unpack_from(header)
    else:
        try:
            begin = _decode_begin(header)
            code, opaque, flag = begin.code, begin.opaque, begin.flag
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The header is binary and too short, or it encodes the members in another way.
            try:
                command = decode_command(frame)
            except HeaderError:
                return None
            code, opaque, flag = command.code, command.opaque, command.flag
    return None if flag & RESPONSE_FLAG else (code, opaque, flag)
