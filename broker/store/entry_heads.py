"""The framing of a ledger: each record of the log is the body of an entry with a head of its own.

A group of brokers that agree on their log numbers its entries, and each entry contains the term of
the leader that appended it. The head is stored in front of the record, so a record begins 48 bytes
after its entry, and the end of the record is also the end of the entry. All integers are
big-endian:

    ======  ====  =============================================================
    offset  size  head of an entry
    ======  ====  =============================================================
    0       4     magic: 1
    4       4     the size of the entry: 48 and the size of the record
    8       8     the index of the entry, counted from 0
    16      8     the term of the leader that appended it
    24      8     its position: the offset in the log at which the entry begins
    32      12    channel and two check sums, which are always 0
    44      4     the size of the record, which follows
    ======  ====  =============================================================

An entry never spans two files, and 8 bytes stay free after it. A file that cannot hold the next
entry ends with a filler: -1, and the number of bytes up to the end of the file. The entry index
has a unit of 32 bytes for each entry: magic, position (8 bytes), size, index (8), term (8).

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: DLedgerEntry, DLedgerEntryCoder, DLedgerMmapFileStore, MmapFileList @dledger-0.3.1.2.
"""

from __future__ import annotations

import struct
from typing import Final

from twistmq.protocol.big_endian import uint32_at
from twistmq.protocol.record import BLANK_SIZE_MIN, RECORD_SIZE_MIN

__all__ = [
    "ENTRY_FILLER",
    "ENTRY_HEAD",
    "ENTRY_HEAD_SIZE",
    "ENTRY_MAGIC",
    "ENTRY_SIZE_MAX",
    "UNIT",
    "UNIT_SIZE",
    "EntryHeads",
    "EntryWalk",
    "entry_filler",
    "record_follows",
]

#: (magic, size, index, term, position, channel, chain check sum, body check sum, record size).
ENTRY_HEAD: Final = struct.Struct(">iiqqqiiii")
ENTRY_HEAD_SIZE: Final = 48
#: (magic, position, size, index, term).
UNIT: Final = struct.Struct(">iqiqq")
UNIT_SIZE: Final = 32
#: The largest entry in bytes. Apache's members encode entries into a buffer of this size, and a
#: follower would refuse a larger one for ever.
ENTRY_SIZE_MAX: Final = 4 << 20
#: The magic number of an entry, and the encoded magic number of a filler.
ENTRY_MAGIC: Final = 1
ENTRY_FILLER: Final = b"\xff\xff\xff\xff"
_FILLER: Final = struct.Struct(">ii")


def entry_filler(room: int) -> bytes:
    """Return the head of the filler that ends a file.

    :param room: the number of bytes left in the file, including the head; the others are zeros.
    """
    assert room >= BLANK_SIZE_MIN, room
    return _FILLER.pack(-1, room)


def record_follows(data: bytes, at: int, position: int) -> bool:
    """Return whether the head of an entry is here, followed by a record of the size it names.

    :param data: contains the whole head and the size of the record.
    :param position: the offset in the log of byte ``at``.
    """
    magic, size, _, _, own_position, _, _, _, record_size = ENTRY_HEAD.unpack_from(data, at)
    return bool(magic == ENTRY_MAGIC and own_position == position
                and size == record_size + ENTRY_HEAD_SIZE
                and record_size == uint32_at(data, at + ENTRY_HEAD_SIZE))


class EntryHeads:
    """Makes the heads of new entries, and the units of the entry index for them.

    ``begin`` comes before the first head of an append. After its bytes are written, ``keep``
    confirms it; ``undo`` takes the indexes back when the append fails.

    :param next_index: the index of the next entry.
    :param term: the term of the entries that this member appends as the leader.
    """

    def __init__(self, next_index: int, term: int) -> None:
        self.next_index = next_index
        self.term = term
        #: The term of the last entry; -1 without one.
        self.last_term = -1
        #: The units of the append in progress.
        self.units = bytearray()
        #: The index of the first entry of the append in progress, and the next index before it.
        self._begin_index = self._end_index = next_index

    @property
    def begin_index(self) -> int:
        """The index of the first entry of the append in progress, or of the last one."""
        return self._begin_index

    def begin(self, index: int = -1) -> None:
        """Begin an append.

        :param index: the index of its first entry; -1 stands for the next one.
        """
        self._end_index = self.next_index
        if index >= 0:
            self.next_index = index
        self._begin_index = self.next_index
        if self.units:
            self.units = bytearray()

    def head(self, position: int, record_size: int) -> bytes:
        """Return the head of the next entry.

        :param position: the offset in the log at which the entry begins.
        """
        index = self.next_index
        size = record_size + ENTRY_HEAD_SIZE
        self.units += UNIT.pack(ENTRY_MAGIC, position, size, index, self.term)
        self.next_index = index + 1
        return ENTRY_HEAD.pack(ENTRY_MAGIC, size, index, self.term, position, 0, 0, 0, record_size)

    def copied_head(self, term: int, position: int, record_size: int) -> bytes:
        """Return the head of the next entry, which another member appended in a term."""
        own_term, self.term = self.term, term
        head = self.head(position, record_size)
        self.term = own_term
        return head

    def undo(self) -> None:
        """Take back the indexes of the append in progress."""
        self.next_index = self._begin_index = self._end_index
        self.units = bytearray()

    def keep(self) -> None:
        """Note that the append is written."""
        if self.units:
            self.last_term = UNIT.unpack_from(self.units, len(self.units) - UNIT_SIZE)[4]

    def reset(self, next_index: int, last_term: int) -> None:
        """Note where the log ends now."""
        self.next_index = self._begin_index = self._end_index = next_index
        self.last_term = last_term
        self.units = bytearray()


class EntryWalk:
    """Follows the heads of stored entries from one to the next, and collects their units.

    :param position: the offset in the log at which the first entry begins.
    :param index: its index; -1 takes it from the head.
    :param term: the lowest term that it may have.
    """

    def __init__(self, position: int, index: int, term: int) -> None:
        #: The end of the last entry, its term, and the index of the next one.
        self.position = position
        self.index = index
        self.term = term
        #: The units of the entries since they were last taken.
        self.units = bytearray()
        #: Why the entries end; empty as long as they may continue in further bytes.
        self.fault = ""

    def pass_entries(self, chunk: bytes, chunk_start: int, file_end: int, end: int) -> None:
        """Follow the heads that begin in a chunk; the records themselves are not looked at.

        :param chunk_start: the offset in the log of the first byte.
        :param file_end: the end of the file that the chunk is a part of.
        :param end: entries that extend beyond this offset are not passed.
        """
        position, length = self.position, len(chunk)
        while True:
            at = position - chunk_start
            if at + BLANK_SIZE_MIN > length:
                break
            if chunk[at : at + 4] == ENTRY_FILLER:
                rest = uint32_at(chunk, at + 4)
                if rest != file_end - position:
                    self.fault = f"a filler of {rest} bytes, {file_end - position} are left"
                    break
                position = file_end
                break
            if at + ENTRY_HEAD_SIZE > length:
                break
            magic, size, index, term, own_position, _, _, _, record_size = ENTRY_HEAD.unpack_from(
                chunk, at)
            if magic != ENTRY_MAGIC or own_position != position:
                self.fault = f"no entry begins with {chunk[at : at + 8].hex()}"
                break
            if size != record_size + ENTRY_HEAD_SIZE or not (
                    RECORD_SIZE_MIN <= record_size <= file_end - position - ENTRY_HEAD_SIZE
                    - BLANK_SIZE_MIN):
                self.fault = f"an entry of {size} bytes with {record_size} bytes"
                break
            if index < 0 or (self.index >= 0 and index != self.index):
                self.fault = f"the entry has index {index} instead of {self.index}"
                break
            if term < self.term:
                self.fault = f"the entry has term {term}, the one before it {self.term}"
                break
            if position + size > end:
                self.fault = "the last entry is not complete"
                break
            self.units += UNIT.pack(ENTRY_MAGIC, position, size, index, term)
            self.index = index + 1
            self.term = term
            position += size
        self.position = position

    def take_units(self) -> bytes:
        """Return the collected units, and forget them."""
        units = bytes(self.units)
        self.units = bytearray()
        return units


assert ENTRY_HEAD.size == ENTRY_HEAD_SIZE
assert UNIT.size == UNIT_SIZE
