"""One unit of a queue's extension: what an entry's 20 bytes have no room for.

The entry of a message with a unit has, in place of its tag's hash, the unit's address: its place in
the extension's files counted from the smallest int64, so that no hash can be taken for one. The
unit has the hash, when the message was stored, and a bitmap for filters. Leaf module of the hot
path: typed, so that mypyc compiles it.

Source: ConsumeQueueExt, ConsumeQueueExt.CqExtUnit @5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from twistmq.protocol.record import MessageRecord

__all__ = [
    "ADDRESS_MAX",
    "FILE_END",
    "FILE_END_ROOM",
    "UNIT_SIZE_MAX",
    "UNIT_SIZE_MIN",
    "ExtensionUnit",
    "FilterBitmap",
    "UnitFields",
    "address_of",
    "decode_unit",
    "encode_unit",
    "is_address",
    "place_of",
]

#: Gives the bitmap of a record that is entered into its queue, at most UNIT_SIZE_MAX -
#: UNIT_SIZE_MIN bytes; or None. It must not raise.
FilterBitmap = Callable[[MessageRecord], bytes | None]

#: The fields of an ExtensionUnit, without the time it takes to make one.
UnitFields = tuple[int, int, bytes]

#: An entry's number is an address up to here, and a tag's hash above. Source: MAX_ADDR.
ADDRESS_MAX: Final = -(1 << 31) - 1
_ADDRESS_OF_PLACE_0: Final = -(1 << 63)
#: (size of the unit, tags code, store time in ms, size of the bitmap), big-endian; the bitmap
#: follows.
_HEAD: Final = struct.Struct(">hqqh")
UNIT_SIZE_MIN: Final = 20
UNIT_SIZE_MAX: Final = 0x7FFF
#: Stands in a file behind its last unit: the next one is in the next file. Zeros follow.
FILE_END: Final = struct.pack(">h", -1)
#: Bytes that stay free of units at the end of each file. Source: END_BLANK_DATA_LENGTH.
FILE_END_ROOM: Final = 4


def is_address(code: int) -> bool:
    """Whether the number of an entry is the address of a unit."""
    return code <= ADDRESS_MAX


def address_of(place: int) -> int:
    """The address of a unit, from its place in the extension's files, bytes."""
    return place + _ADDRESS_OF_PLACE_0


def place_of(address: int) -> int:
    """The place in the extension's files, bytes, that an address stands for."""
    return address - _ADDRESS_OF_PLACE_0


def encode_unit(tags_code: int, store_time: int, bitmap: bytes) -> bytes:
    """Make a unit's bytes; see ``ExtensionUnit``."""
    size = len(bitmap)
    return _HEAD.pack(UNIT_SIZE_MIN + size, tags_code, store_time, size) + bitmap


def decode_unit(data: bytes | bytearray, at: int) -> UnitFields | None:
    """Read the unit at a position of ``data``; None when there is no whole one."""
    if not 0 <= at <= len(data) - UNIT_SIZE_MIN:
        return None
    head = _HEAD.unpack_from(data, at)
    size: int = head[0]
    bitmap_size: int = head[3]
    if size != UNIT_SIZE_MIN + bitmap_size or bitmap_size < 0 or at + size > len(data):
        return None
    return head[1], head[2], bytes(data[at + UNIT_SIZE_MIN : at + size])


class ExtensionUnit(NamedTuple):
    """The facts of a message besides its entry."""

    #: The value that the entry has without an extension: the tag's hash, or a plugin's value.
    tags_code: int
    #: When the message was stored, ms.
    store_time: int
    #: The filters that want the message, as bits; empty: unknown.
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the unit."""
        return UNIT_SIZE_MIN + len(self.bitmap)

    def encode(self) -> bytes:
        """Make the unit's bytes."""
        return encode_unit(self.tags_code, self.store_time, self.bitmap)

    @classmethod
    def decode(cls, data: bytes | bytearray, at: int = 0) -> ExtensionUnit | None:
        """Read the unit at a position of ``data``; None when there is no whole one."""
        fields = decode_unit(data, at)
        return None if fields is None else cls(*fields)


assert _HEAD.size == UNIT_SIZE_MIN
assert address_of(0) < ADDRESS_MAX < -(1 << 31), "a tag's hash is an int32"
