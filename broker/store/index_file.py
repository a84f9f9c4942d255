"""One file of the index by key: its tail, and the round of a flush it is in.

A round writes what is known when it begins, in small steps whose order ``IndexFiles`` decides:
items, their count, slots, header, with syncs between them. Apache's broker follows no slot that is
ahead of the count, and would lose all older keys of that slot: so the count comes before the slots.
For us a round counts with its header, whose end says up to which message the file is complete. A
crash before that leaves count and slots ahead, which ``settle`` and ``repair`` lead back; Apache's
broker finds what they lead to, and indexes again what is behind the end.

Source: IndexFile @5.3.3.
"""

from __future__ import annotations

import struct

from twistmq.broker.constants import (
    FLUSH_STEP_ITEM_BYTES_MAX,
    FLUSH_STEP_PAGES_MAX,
    PAGE_SIZE_BYTES,
)
from twistmq.broker.store.index_tail import (
    HEADER,
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    PAGE_SIZE,
    SLOT_SIZE,
    IndexTail,
    page_bytes,
    settled_count,
)
from twistmq.broker.store.interfaces import IStoreFile, IStoreIO

__all__ = ["IndexFile"]


class IndexFile:
    """One file: its tail, and the round of a flush it is in.

    :param size: bytes of the file.
    """

    def __init__(self, io: IStoreIO, path: str, slot_count: int, item_max: int) -> None:
        self.path = path
        self.size = HEADER_SIZE + SLOT_SIZE * slot_count + ITEM_SIZE * item_max
        self.tail = IndexTail(slot_count, item_max, self._read)
        self._io = io
        self._file: IStoreFile | None = None
        #: Whether the file's name may be lost with the power.
        self._is_new = False
        #: Items of the rounds that came to their end.
        self._flushed_count = 1
        #: The header as the last of them left it, and as this one is going to.
        self._flushed_header = bytes(HEADER_SIZE)
        self._header = b""
        self._target = 1
        self._pages: list[int] = []

    @property
    def is_flushed(self) -> bool:
        """Whether the file says all there is to say."""
        return self._flushed_count == self.tail.count

    @property
    def header_timestamp(self) -> int:
        """Newest store time of the round's header, ms."""
        return int.from_bytes(self._header[8:16], "big")

    @property
    def header_physical(self) -> int:
        """Place of the newest message of the round's header."""
        return int.from_bytes(self._header[24:32], "big")

    def load(self) -> None:
        """Open the file and read its header."""
        self._file = self._io.open_file(self.path)
        self._flushed_header = self._file.read_at(0, HEADER_SIZE)
        self.tail.decode_header(self._flushed_header)
        self._flushed_count = self.tail.count

    def follow(self, before: IndexFile) -> None:
        """Begin where the file before ended, as long as there is no item."""
        self.tail.follow(before.tail)
        self._flushed_header = self.tail.encode_header()

    def is_behind(self) -> None:
        """The tail has fewer items than the file: the next round writes it again."""
        self._flushed_count = 0
        self._flushed_header = self.tail.encode_header()

    def settle(self) -> None:
        """After a crash, drop the items of a round that was not completed."""
        tail = self.tail
        tail.count = settled_count(
            tail.count, tail.end_timestamp, tail.end_physical, self._read_items)
        tail.items_start = self._flushed_count = tail.count

    def is_whole(self) -> bool:
        """Whether the header is of the items: the last one is of the newest message."""
        tail = self.tail
        if tail.count <= 1:
            return tail.end_physical == 0
        data = self._read(tail.items_position(tail.count - 1), ITEM_SIZE)
        return len(data) == ITEM_SIZE and ITEM.unpack(data)[1] == tail.end_physical

    def repair(self) -> None:
        """After a crash, lead slots that are ahead to items that count, and the file's count too.

        They name items that are going to be written again, perhaps of other messages, and must be
        on disk no more when these are: sync the file.
        """
        assert self._file is not None
        tail = self.tail
        if not any(self._read(tail.items_position(tail.count), ITEM_SIZE)):
            # Items are durable before slots: the last round did not come to the slots.
            return
        end = HEADER_SIZE + SLOT_SIZE * tail.slot_count
        for position in range(HEADER_SIZE, end, PAGE_SIZE_BYTES):
            data = self._read(position, min(PAGE_SIZE_BYTES, end - position))
            slots = struct.unpack(f">{len(data) // SLOT_SIZE}i", data)
            if max(slots) >= tail.count:
                fixed = [tail.counted(number) for number in slots]
                self._file.write_at(position, struct.pack(f">{len(fixed)}i", *fixed))
        header = tail.encode_header()
        if header != self._flushed_header:
            # No slot may be ahead of the count.
            self._file.sync()
            self._file.write_at(0, header)
            self._flushed_header = header

    def begin_round(self) -> None:
        """Fix what this round writes: all that is known now."""
        if self._file is None:
            self._file = self._io.allocate(self.path, self.size)
            self._is_new = True
        tail = self.tail
        self._header = tail.encode_header()
        self._target = tail.count
        self._pages = tail.begin_flush()
        self._pages.reverse()

    def write_items(self) -> bool:
        """Write some items; True when those of the round are written."""
        tail = self.tail
        if tail.items_start < self._target:
            data = bytes(tail.items[: FLUSH_STEP_ITEM_BYTES_MAX // ITEM_SIZE * ITEM_SIZE])
            assert self._file is not None
            self._file.write_at(tail.items_position(tail.items_start), data)
            del tail.items[: len(data)]
            tail.items_start += len(data) // ITEM_SIZE
        return tail.items_start >= self._target

    def write_count(self) -> bool:
        """Write how many items there will be, and nothing of where they end. True: it is a step."""
        assert self._file is not None
        # A new file's begin is that of its first item from now on.
        begin_ms, _, begin, _, _, count = HEADER.unpack(self._header)
        _, end_ms, _, end, slots_used, _ = HEADER.unpack(self._flushed_header)
        self._file.write_at(0, HEADER.pack(begin_ms, end_ms, begin, end, slots_used, count))
        return True

    def write_pages(self) -> bool:
        """Write some pages of slots; True when those of the round are written."""
        assert self._file is not None
        begin, end = HEADER_SIZE, HEADER_SIZE + SLOT_SIZE * self.tail.slot_count
        for _ in range(min(FLUSH_STEP_PAGES_MAX, len(self._pages))):
            number = self._pages[-1]
            start = number * PAGE_SIZE
            # The first page holds the header and the last one items, which are not written here.
            low, high = max(start, begin), min(start + PAGE_SIZE, end)
            page = self.tail.flushing[number]
            self._file.write_at(low, page_bytes(page)[low - start : high - start])
            self._pages.pop()
        return not self._pages

    def write_header(self) -> bool:
        """Write the header: now the round's items count. True: it is one step."""
        assert self._file is not None
        self._file.write_at(0, self._header)
        self._flushed_header = self._header
        self._flushed_count = self._target
        self.tail.end_flush()
        return True

    def sync(self) -> None:
        """Make what was written durable. Blocks."""
        assert self._file is not None
        self._file.sync()
        if self._is_new:
            self._io.sync_path(self.path.rpartition("/")[0])
            self._is_new = False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file may hold messages of a span of time."""
        tail = self.tail
        return begin_ms <= tail.end_timestamp and end_ms >= tail.begin_timestamp

    def _read_items(self, number: int, count: int) -> bytes:
        """Read items of the file from a number on."""
        size = ITEM_SIZE * count
        return self._read(self.tail.items_position(number), size).ljust(size, b"\0")

    def _read(self, position: int, size: int) -> bytes:
        """Read the file; nothing while it was never written."""
        return b"" if self._file is None else self._file.read_at(position, size)
