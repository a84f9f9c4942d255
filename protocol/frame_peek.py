"""Finds the few facts that a frame reveals without decoding its header, however long that is.

Source: RemotingCommand, RocketMQSerializable @5.3.3.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

from twistmq.protocol.frame import JSON, Frame

__all__ = ["BINARY_BEGIN", "Sketch", "sketch"]

#: The number of bytes examined at the beginning and at the end of a JSON header. One of the two
#: contains the members outside extFields, in whatever order a client writes them.
_LOOK_BYTES: Final = 1024
_MEMBER: Final = re.compile(rb'"(code|opaque|flag)"\s{0,8}:\s{0,8}"?(-?\d{1,10})(?![\d.eE])')
_INT32: Final = range(-(2**31), 2**31)
#: The beginning of a binary header: code, language, version, opaque, flag.
BINARY_BEGIN: Final = struct.Struct(">hbhii")


class Sketch(NamedTuple):
    """The values that a header appears to have; None if unknown."""

    code: int | None
    opaque: int | None
    flag: int


def sketch(frame: Frame) -> Sketch:
    """Look at a frame without decoding it; the result is not reliable."""
    serialize_type, header, _ = frame
    if serialize_type != JSON:
        if len(header) < BINARY_BEGIN.size:
            return Sketch(None, None, 0)
        code, _, _, opaque, flag = BINARY_BEGIN.unpack_from(header)
        return Sketch(code, opaque, flag)
    head, fields, _ = header[:_LOOK_BYTES].partition(b'"extFields"')
    values = {name: int(value) for part in (header[-_LOOK_BYTES:] if fields else b"", head)
              for name, value in _MEMBER.findall(part)}
    values = {name: value for name, value in values.items() if value in _INT32}
    return Sketch(values.get(b"code"), values.get(b"opaque"), values.get(b"flag", 0))
