"""One file of the index by key: its tail, and the flush round that is writing it.

The file is a hash table, and new keys change it in many places, while a crash may keep any part of
the writes. If they reached the disk in any order, slots could lead to items that were never
written, and all older keys of these slots would be lost. Therefore the file is written in rounds. A
round writes the state that is known when it begins. It does so in small steps, in an order that
``IndexFiles`` defines: items, their count, slots and header, with syncs in between. Apache's broker
does not follow a slot that is ahead of the count and would lose all older keys of that slot, so the
count is written before the slots.

For us, a round is complete when its header is written, because the end in the header states up to
which message the file is complete. A crash before that leaves a count and slots that are ahead of
the header. ``settle`` and ``repair`` lead them back to items that count. Apache's broker finds the
items that they lead to, and indexes the messages after the end again.

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
    """One file of the index, with its tail and the flush round that is writing it.

    :param size: length of the file in bytes.
    """

    def __init__(self, io: IStoreIO, path: str, slot_count: int, item_max: int) -> None:
        self.path = path
        self.size = HEADER_SIZE + SLOT_SIZE * slot_count + ITEM_SIZE * item_max
        self.tail = IndexTail(slot_count, item_max, self._read)
        self._io = io
        self._file: IStoreFile | None = None
        #: Whether a loss of power may lose the name of the file.
        self._is_new = False
        #: The item count of the last complete round.
        self._flushed_count = 1
        #: The header as the last complete round left it; ``_header`` is the one of the current
        #: round.
        self._flushed_header = bytes(HEADER_SIZE)
        self._header = b""
        self._target = 1
        self._pages: list[int] = []

    @property
    def is_flushed(self) -> bool:
        """Whether the file contains all items."""
        return self._flushed_count == self.tail.count

    @property
    def header_timestamp(self) -> int:
        """The newest store time in the header of the round, in ms."""
        return int.from_bytes(self._header[8:16], "big")

    @property
    def header_physical(self) -> int:
        """The commit-log offset of the newest message in the header of the round."""
        return int.from_bytes(self._header[24:32], "big")

    def load(self) -> None:
        """Open the file and read its header."""
        self._file = self._io.open_file(self.path)
        self._flushed_header = self._file.read_at(0, HEADER_SIZE)
        self.tail.decode_header(self._flushed_header)
        self._flushed_count = self.tail.count

    def follow(self, before: IndexFile) -> None:
        """Begin where the previous file ended, as long as this file has no items."""
        self.tail.follow(before.tail)
        self._flushed_header = self.tail.encode_header()

    def is_behind(self) -> None:
        """Note that the tail has fewer items than the file, so the next round writes it again."""
        self._flushed_count = 0
        self._flushed_header = self.tail.encode_header()

    def settle(self) -> None:
        """After a crash, drop the items of an incomplete round."""
        tail = self.tail
        tail.count = settled_count(
            tail.count, tail.end_timestamp, tail.end_physical, self._read_items)
        tail.items_start = self._flushed_count = tail.count

    def is_whole(self) -> bool:
        """Return whether header and items agree, that is, whether the last item is the newest."""
        tail = self.tail
        if tail.count <= 1:
            return tail.end_physical == 0
        data = self._read(tail.items_position(tail.count - 1), ITEM_SIZE)
        return len(data) == ITEM_SIZE and ITEM.unpack(data)[1] == tail.end_physical

    def repair(self) -> None:
        """After a crash, lead slots and the count that are ahead of the header back to items that
        count.

        The slots name items that will be written again, perhaps for other messages. The old slots
        must not be on disk when that happens, so sync the file afterwards.
        """
        assert self._file is not None
        tail = self.tail
        if not any(self._read(tail.items_position(tail.count), ITEM_SIZE)):
            # Items become durable before slots, so the last round did not reach the slots.
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
        """Fix the state that this round writes: everything that is known now."""
        if self._file is None:
            self._file = self._io.allocate(self.path, self.size)
            self._is_new = True
        tail = self.tail
        self._header = tail.encode_header()
        self._target = tail.count
        self._pages = tail.begin_flush()
        self._pages.reverse()

    def write_items(self) -> bool:
        """Write some items.

        :returns: whether all items of the round are written.
        """
        tail = self.tail
        if tail.items_start < self._target:
            data = bytes(tail.items[: FLUSH_STEP_ITEM_BYTES_MAX // ITEM_SIZE * ITEM_SIZE])
            assert self._file is not None
            self._file.write_at(tail.items_position(tail.items_start), data)
            del tail.items[: len(data)]
            tail.items_start += len(data) // ITEM_SIZE
        return tail.items_start >= self._target

    def write_count(self) -> bool:
        """Write the new item count, but not the new end.

        :returns: True, since it is one step.
        """
        assert self._file is not None
        # A new file already gets the begin of its first item here.
        begin_ms, _, begin, _, _, count = HEADER.unpack(self._header)
        _, end_ms, _, end, slots_used, _ = HEADER.unpack(self._flushed_header)
        self._file.write_at(0, HEADER.pack(begin_ms, end_ms, begin, end, slots_used, count))
        return True

    def write_pages(self) -> bool:
        """Write some pages of slots.

        :returns: whether all pages of the round are written.
        """
        assert self._file is not None
        begin, end = HEADER_SIZE, HEADER_SIZE + SLOT_SIZE * self.tail.slot_count
        for _ in range(min(FLUSH_STEP_PAGES_MAX, len(self._pages))):
            number = self._pages[-1]
            start = number * PAGE_SIZE
            # The first page also contains the header, and the last one items; these are not written
            # here.
            low, high = max(start, begin), min(start + PAGE_SIZE, end)
            page = self.tail.flushing[number]
            self._file.write_at(low, page_bytes(page)[low - start : high - start])
            self._pages.pop()
        return not self._pages

    def write_header(self) -> bool:
        """Write the header, which makes the items of the round count.

        :returns: True, since it is one step.
        """
        assert self._file is not None
        self._file.write_at(0, self._header)
        self._flushed_header = self._header
        self._flushed_count = self._target
        self.tail.end_flush()
        return True

    def sync(self) -> None:
        """Make the written bytes durable. Blocks."""
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
        """Return whether the file may contain messages of a range of store times."""
        tail = self.tail
        return begin_ms <= tail.end_timestamp and end_ms >= tail.begin_timestamp

    def _read_items(self, number: int, count: int) -> bytes:
        """Read items of the file, starting at a number."""
        size = ITEM_SIZE * count
        return self._read(self.tail.items_position(number), size).ljust(size, b"\0")

    def _read(self, position: int, size: int) -> bytes:
        """Read the file; the result is empty while the file does not exist."""
        return b"" if self._file is None else self._file.read_at(position, size)
