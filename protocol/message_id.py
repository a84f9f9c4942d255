"""The two message ids: the offset id that a broker returns, and the unique id that a client makes.

The offset id identifies a place: the broker that stores the record, and the position of the record
there. The unique id identifies a message and stays the same when the message is stored again. Both
are big-endian bytes in upper-case hexadecimal, 32 digits with an IPv4 address and 56 with an IPv6
address. The module is sans-IO: the address and the time are arguments.

Source: MessageDecoder.createMessageId, MessageClientIDSetter @5.3.3.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Final

from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.record import host_parts

__all__ = ["OFFSET_DIGITS", "UniqueIdMaker", "offset_message_id", "parse_offset_message_id"]

_OFFSET: Final = struct.Struct(">q")
_UNIQUE_TAIL: Final = struct.Struct(">iH")
_UNIQUE_FIXED: Final = struct.Struct(">Hi")

#: The number of hexadecimal digits of the place, which are the last digits of an offset id.
OFFSET_DIGITS: Final = 16
#: The number of hexadecimal digits of either id with an IPv4 address and with an IPv6 address.
ID_LENGTH_V4: Final = 32
ID_LENGTH_V6: Final = 56
#: The clock may step back this far (NTP) before ids are affected, in milliseconds.
_STEP_BACK_MS_MAX: Final = 1_000_000


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Make the id by which a broker finds a record without an index.

    :param store_host: the broker's address, 4 or 16 bytes and an int32 port, big-endian.
    :param physical_offset: where the record starts in the commit log, in bytes.
    """
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """Parse an offset message id.

    :returns: (ip, port, physical offset in bytes).
    :raises MessageIllegal: when it is not 32 or 56 hexadecimal digits.
    """
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(text) not in (ID_LENGTH_V4, ID_LENGTH_V6) or len(data) * 2 != len(text):
        raise MessageIllegal(f"not an offset message id: {text[:64]!r}")
    ip, port = host_parts(data[:-8])
    offset: int = _OFFSET.unpack(data[-8:])[0]
    return ip, port, offset


class UniqueIdMaker:
    """Makes the unique ids of one process: address, process, loader, time in the month, counter.

    :param ip: 4 or 16 bytes.
    :param pid: the process id, of which the low 16 bits are used.
    :param loader_hash: int32. Java uses the hash of its class loader; any number that differs
        between two makers in one process is sufficient.
    :param counter: the first number, int16, wrapping.
    :param utc_offset_ms: the time zone in which months start; readers of an id use their own zone.
    """

    __slots__ = ("_counter", "_fixed", "_month_end_ms", "_month_start_ms", "_utc_offset_ms")

    def __init__(
        self, ip: bytes, pid: int, loader_hash: int = 0, counter: int = 0, utc_offset_ms: int = 0
    ) -> None:
        assert len(ip) in (4, 16), ip
        self._fixed: str = (ip + _UNIQUE_FIXED.pack(pid & 0xFFFF, loader_hash)).hex().upper()
        self._counter: int = counter
        self._utc_offset_ms: int = utc_offset_ms
        self._month_start_ms: int = 0
        self._month_end_ms: int = 0

    def make(self, now_ms: int) -> str:
        """Make the next id; two ids of the same millisecond differ in the counter."""
        if now_ms >= self._month_end_ms:
            self._enter_month(now_ms)
        elapsed_ms = now_ms - self._month_start_ms
        if -_STEP_BACK_MS_MAX < elapsed_ms < 0:
            elapsed_ms = 0
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        # A month has more milliseconds than int32 can hold. Java's cast wraps, and so does this.
        elapsed_ms = (elapsed_ms + 0x80000000 & 0xFFFFFFFF) - 0x80000000
        return self._fixed + _UNIQUE_TAIL.pack(elapsed_ms, counter & 0xFFFF).hex().upper()

    def _enter_month(self, now_ms: int) -> None:
        """Find the start and the end of the month of this time, in milliseconds since 1970."""
        day = datetime.fromtimestamp((now_ms + self._utc_offset_ms) // 1000, UTC)
        start = datetime(day.year, day.month, 1, tzinfo=UTC)
        december = day.month == 12
        end = datetime(day.year + december, 1 if december else day.month + 1, 1, tzinfo=UTC)
        self._month_start_ms = int(start.timestamp()) * 1000 - self._utc_offset_ms
        self._month_end_ms = int(end.timestamp()) * 1000 - self._utc_offset_ms
        assert self._month_start_ms <= now_ms < self._month_end_ms, now_ms
