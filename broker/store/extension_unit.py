"""One unit of a queue's extension: the fields that do not fit into the 20 bytes of an entry.

The entry of a message with a unit contains the address of the unit in place of the hash of the tag.
The address is the position of the unit in the files of the extension, counted from the smallest
int64, so that it never equals a hash. The unit contains the hash, the store time of the message,
and a bitmap for filters. Leaf module of the hot path: typed, so that mypyc compiles it.

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

#: Returns the bitmap of a record that is entered into its queue, at most UNIT_SIZE_MAX -
#: UNIT_SIZE_MIN bytes; or None. It must not raise.
FilterBitmap = Callable[[MessageRecord], bytes | None]

#: The fields of an ExtensionUnit, as a tuple, which is faster to create.
UnitFields = tuple[int, int, bytes]

#: A tags code up to this value is an address; a greater one is the hash of a tag. Source: MAX_ADDR.
ADDRESS_MAX: Final = -(1 << 31) - 1
_ADDRESS_OF_PLACE_0: Final = -(1 << 63)
#: (size of the unit, tags code, store time in ms, size of the bitmap), big-endian; the bitmap
#: follows.
_HEAD: Final = struct.Struct(">hqqh")
UNIT_SIZE_MIN: Final = 20
UNIT_SIZE_MAX: Final = 0x7FFF
#: Marks the end of the units in a file; the next unit is in the next file. Zeros follow it.
FILE_END: Final = struct.pack(">h", -1)
#: The number of bytes at the end of each file that contain no unit. Source: END_BLANK_DATA_LENGTH.
FILE_END_ROOM: Final = 4


def is_address(code: int) -> bool:
    """Return whether the tags code of an entry is the address of a unit."""
    return code <= ADDRESS_MAX


def address_of(position: int) -> int:
    """Return the address of a unit from its position in the extension's files, in bytes."""
    return position + _ADDRESS_OF_PLACE_0


def place_of(address: int) -> int:
    """Return the position in the extension's files, in bytes, from an address."""
    return address - _ADDRESS_OF_PLACE_0


def encode_unit(tags_code: int, store_time: int, bitmap: bytes) -> bytes:
    """Encode a unit; see ``ExtensionUnit``."""
    size = len(bitmap)
    return _HEAD.pack(UNIT_SIZE_MIN + size, tags_code, store_time, size) + bitmap


def decode_unit(data: bytes | bytearray, at: int) -> UnitFields | None:
    """Decode the unit at a position of ``data``; None when there is no whole one."""
    if not 0 <= at <= len(data) - UNIT_SIZE_MIN:
        return None
    head = _HEAD.unpack_from(data, at)
    size: int = head[0]
    bitmap_size: int = head[3]
    if size != UNIT_SIZE_MIN + bitmap_size or bitmap_size < 0 or at + size > len(data):
        return None
    return head[1], head[2], bytes(data[at + UNIT_SIZE_MIN : at + size])


class ExtensionUnit(NamedTuple):
    """The data of a message that its entry does not contain."""

    #: The value of the entry without an extension: the hash of the tag, or a plugin's value.
    tags_code: int
    #: The store time of the message, in ms.
    store_time: int
    #: The filters that match the message, as bits; empty if unknown.
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        """The size of the unit in bytes."""
        return UNIT_SIZE_MIN + len(self.bitmap)

    def encode(self) -> bytes:
        """Encode the unit."""
        return encode_unit(self.tags_code, self.store_time, self.bitmap)

    @classmethod
    def decode(cls, data: bytes | bytearray, at: int = 0) -> ExtensionUnit | None:
        """Decode the unit at a position of ``data``; None when there is no whole one."""
        fields = decode_unit(data, at)
        return None if fields is None else cls(*fields)


assert _HEAD.size == UNIT_SIZE_MIN
assert address_of(0) < ADDRESS_MAX < -(1 << 31), "a tag's hash is an int32"
