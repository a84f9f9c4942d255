"""The unit of the timer log: one for each message that waits or that recalls another message.

A unit has 52 bytes, big-endian. The units of a slot of the wheel form a chain, the newest first.

Source: TimerLog, TimerMessageStore.doEnqueue @5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["BLANK_MAGIC", "BLANK_SIZE_MIN", "FIELD_POSITIONS", "MAGIC_DEFAULT", "MAGIC_DELETE",
           "MAGIC_ROLL", "NO_POSITION", "UNIT_SIZE", "LogUnit", "decode_unit", "encode_blank",
           "encode_unit", "field_positions"]


def field_positions(layout: Sequence[tuple[str, str, str]]) -> dict[str, int]:
    """Return the position of each field by the field's name, in bytes.

    :param layout: name, format and meaning of each field.
    """
    return {name: struct.calcsize(">" + "".join(form for _, form, _ in layout[:index]))
            for index, (name, _, _) in enumerate(layout)}


#: Name, format and meaning of each field.
UNIT_LAYOUT: Final = (
    ("size", "i", "52; of a blank: bytes to the end of the file"),
    ("previous", "q", "position in the timer log of the slot's previous unit, -1: none"),
    ("magic", "i", "bits: 1 always, 2 has to be rolled, 4 recalls a message"),
    ("write_ms", "q", "Unix ms when the unit was written, whole ticks"),
    ("delay_ms", "i", "from write_ms to the time of the slot"),
    ("log_offset", "q", "the message's offset in the commit log"),
    ("message_size", "i", "the message's size there, in bytes"),
    ("topic_hash", "i", "hash of the real topic, as Java computes it"),
    ("reserved", "q", "0"),
)
_UNIT: Final = struct.Struct(">" + "".join(form for _, form, _ in UNIT_LAYOUT))
_BLANK: Final = struct.Struct(">iqi")
#: The position of each field in a unit by the field's name, in bytes.
FIELD_POSITIONS: Final = field_positions(UNIT_LAYOUT)

UNIT_SIZE: Final = 52
#: The bytes that a file keeps free at its end for the mark that no unit follows.
BLANK_SIZE_MIN: Final = 16
BLANK_MAGIC: Final = (0xBBCCDDEE ^ 1_880_681_594) - (1 << 32)
MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
#: Stands for the position of a unit that does not exist.
NO_POSITION: Final = -1

_MAGIC_MAX: Final = MAGIC_DEFAULT | MAGIC_ROLL | MAGIC_DELETE

assert _UNIT.size == UNIT_SIZE
assert _BLANK.size == BLANK_SIZE_MIN
assert -(2**31) <= BLANK_MAGIC < 2**31


class LogUnit(NamedTuple):
    """A unit; see UNIT_LAYOUT."""

    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    log_offset: int
    message_size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        """Return the time of the unit's slot, Unix ms."""
        return self.write_ms + self.delay_ms

    @property
    def is_rolled(self) -> bool:
        """Whether the message must wait again after the slot's time."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def takes_back(self) -> bool:
        """Whether the unit recalls a message of its slot instead of being one to deliver."""
        return self.magic & (MAGIC_DELETE | MAGIC_ROLL) == MAGIC_DELETE

    @property
    def change(self) -> int:
        """The change of the number of waiting messages: -1 for a unit that recalls a message."""
        return -1 if self.magic & MAGIC_DELETE else 1


def encode_unit(unit: LogUnit) -> bytes:
    """Encode a unit."""
    return _UNIT.pack(UNIT_SIZE, *unit, 0)


def encode_blank(room: int) -> bytes:
    """Encode the mark that no unit follows in a file.

    :param room: the number of bytes from here to the end of the file.
    """
    return _BLANK.pack(room, 0, BLANK_MAGIC)


def decode_unit(data: bytes) -> LogUnit | None:
    """Decode a unit; None where the bytes are not one."""
    if len(data) < UNIT_SIZE:
        return None
    size, *fields, _ = _UNIT.unpack(data)
    unit = LogUnit(*fields)
    # Every unit has the first bit set; a unit that a loss of power tore does not.
    if size != UNIT_SIZE or not MAGIC_DEFAULT <= unit.magic <= _MAGIC_MAX:
        return None
    return unit if unit.magic & MAGIC_DEFAULT else None
