"""The index file that is being filled: its new items and changed hash slots, before they are
written.

An index file is a hash table that consists of a 40-byte header, int32 slots and 20-byte items. A
slot holds the number of the newest item with its hash, and each item holds the number of the
previous item in the same slot, so a slot is the head of a linked list. Items are numbered from 1.

    header: int64 begin time · int64 end time · int64 begin place · int64 end place
            · int32 slots used · int32 next item
    item:   int32 key hash · int64 place in the commit log · int32 seconds since begin
            · int32 number of the previous item

Writing each item and its slot to the file at once would cost two small random writes per key.
Instead, new items wait in one bytearray, and changed slots wait in copies of the pages of the file
(as arrays of int32 in the byte order of the machine). A flush then writes the items with a few
large writes, and each page once, however many of its slots have changed. The keys of many topics
change slots all over the file. The pages are therefore found through a list, which stays in the
processor's cache, where a dict of pages would not.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: IndexFile, IndexHeader @5.3.3.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable
from typing import Final

from twistmq.protocol.properties import java_hash_joined

__all__ = [
    "HEADER",
    "HEADER_SIZE",
    "ITEM",
    "ITEM_SIZE",
    "PAGE_SIZE",
    "SLOT",
    "SLOT_SIZE",
    "IndexTail",
    "item_hash",
    "page_bytes",
    "settled_count",
    "unknown_time",
]

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
ITEM: Final = struct.Struct(">iqii")
HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ITEM_SIZE: Final = 20
#: The size in bytes of the pages in which slots are kept and written. With 4 KiB, the file has so
#: many pages that looking up their arrays misses the cache. With 64 KiB, the first puts after a
#: flush, each of which opens a page, block the reactor for 15 ms, and a few keys cause large
#: writes.
PAGE_SIZE: Final = 16_384
#: The number of slots that would fit into the space of the header, before the first slot.
_SLOTS_BEFORE: Final = HEADER_SIZE // SLOT_SIZE
_PAGE_SLOTS: Final = PAGE_SIZE // SLOT_SIZE
_PAGE_BITS: Final = 12
#: The offset of the last millisecond in the second that an item stores.
_LAST_MS: Final = 999
#: Whether the byte order of this machine differs from the byte order of the files.
_SWAPS: Final = sys.byteorder == "little"

_INT_MAX: Final = 0x7FFFFFFF
#: The number of items read at a time when they are counted again.
_ITEMS_AT_ONCE: Final = 4096


def item_hash(prefix_hash: int, key: str) -> int:
    """Return the hash of a key as items store it: the absolute value of its Java hash, or 0 if that
    does not fit.

    :param prefix_hash: the Java hash of ``topic#``.
    """
    code = java_hash_joined(prefix_hash, key)
    if code < 0:
        code = -code
        if code > _INT_MAX:
            code = 0
    return code


def settled_count(
    count: int, end_timestamp: int, end_physical: int, read_items: Callable[[int, int], bytes]
) -> int:
    """Count the items up to the newest message in the header; a crash may leave the count ahead of
    it.

    :param count: the number of the next item according to the header.
    :param end_timestamp: the store time of the newest message according to the header, in ms; 0
        when no round was completed. The commit-log offset does not show that, because 0 is also the
        offset of the first message of the log.
    :param end_physical: the commit-log offset of that message according to the header.
    :param read_items: reads items: (number of the first one, count), with zeros after the last
        item.
    :returns: the number after the last item whose message is not later than the end.
    """
    # With an invalid end, a damaged count would make this loop read all the items that it claims.
    while count > 1 and end_timestamp and end_physical >= 0:
        begin = max(1, count - _ITEMS_AT_ONCE)
        data = read_items(begin, count - begin)
        for at in range(len(data) - ITEM_SIZE, -1, -ITEM_SIZE):
            physical_offset: int = ITEM.unpack_from(data, at)[1]
            if physical_offset <= end_physical:
                return count
            count -= 1
    return 1


def page_bytes(page: array[int]) -> bytes:
    """Encode a page in the byte order of the file."""
    if not _SWAPS:
        return page.tobytes()
    swapped = page[:]
    swapped.byteswap()
    return swapped.tobytes()


def unknown_time(log_offset: int) -> int:
    """Return -1, as the store time of a message that cannot be read."""
    return -1


class IndexTail:
    """The fields of an index file's header, and the items and slots that are not written yet.

    :param slot_count: the number of slots in the file.
    :param item_max: the number of items in the file; number 0 is not used.
    :param read: reads (position, size) of the file; returns fewer bytes where it ends.
    """

    __slots__ = (
        "_read",
        "begin_physical",
        "begin_timestamp",
        "count",
        "end_physical",
        "end_timestamp",
        "flushing",
        "item_max",
        "items",
        "items_start",
        "pages",
        "slot_count",
        "slots_used",
    )

    def __init__(self, slot_count: int, item_max: int, read: Callable[[int, int], bytes]) -> None:
        self.slot_count: int = slot_count
        self.item_max: int = item_max
        self._read: Callable[[int, int], bytes] = read
        self.begin_timestamp: int = 0
        self.end_timestamp: int = 0
        self.begin_physical: int = 0
        self.end_physical: int = 0
        self.slots_used: int = 0
        #: The number of the next item.
        self.count: int = 1
        #: The items from number ``items_start`` on, which are not written yet.
        self.items: bytearray = bytearray()
        self.items_start: int = 1
        #: The pages with changed slots, by page number; None for a page without changes.
        self.pages: list[array[int] | None] = [None] * (
            (_SLOTS_BEFORE + slot_count) // _PAGE_SLOTS + 1)
        #: The pages that a flush is writing. They are only read, and copied before they change
        #: again.
        self.flushing: dict[int, array[int]] = {}

    def decode_header(self, data: bytes) -> None:
        """Take the fields from the header of a file."""
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical,
            self.end_physical,
            self.slots_used,
            count,
        ) = HEADER.unpack(data[:HEADER_SIZE])
        self.count = max(count, 1)
        self.items_start = self.count

    def follow(self, before: IndexTail) -> None:
        """Begin where the previous file ended, as long as this file has no items."""
        assert self.count == 1, self.count
        self.begin_timestamp = self.end_timestamp = before.end_timestamp
        self.begin_physical = self.end_physical = before.end_physical

    def encode_header(self) -> bytes:
        """Encode the header as it should be once everything is written."""
        return HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical,
            self.end_physical,
            self.slots_used,
            self.count,
        )

    def begin_flush(self) -> list[int]:
        """Hand the changed pages to a flush, with the pages that an earlier flush could not write.

        :returns: their numbers in ascending order; their contents are in ``flushing``.
        """
        for number, page in enumerate(self.pages):
            if page is not None:
                self.flushing[number] = page
        self.pages = [None] * len(self.pages)
        return sorted(self.flushing)

    def end_flush(self) -> None:
        """Discard the pages of ``begin_flush``, which are now written."""
        self.flushing = {}

    def is_full(self) -> bool:
        """Return whether the next item needs another file."""
        return self.count >= self.item_max

    def put(self, prefix_hash: int, key: str, physical_offset: int, timestamp: int) -> bool:
        """Add a key.

        :param prefix_hash: the Java hash of ``topic#``.
        :param timestamp: the store time of the message, in ms.
        :returns: False when the file is full; in that case nothing was added.
        """
        number = self.count
        if number >= self.item_max:
            return False
        code = item_hash(prefix_hash, key)
        at = _SLOTS_BEFORE + code % self.slot_count
        page = self.pages[at >> _PAGE_BITS]
        if page is None:
            page = self._open_page(at >> _PAGE_BITS)
        at &= _PAGE_SLOTS - 1
        previous = page[at]
        if previous >= number:
            previous = self.counted(previous)
        seconds = 0
        if self.begin_timestamp > 0:
            seconds = (timestamp - self.begin_timestamp) // 1000
            if seconds < 0:
                seconds = 0
            elif seconds > _INT_MAX:
                seconds = _INT_MAX
        if previous < 0:
            previous = 0
        self.items.extend(ITEM.pack(code, physical_offset, seconds, previous))
        page[at] = number
        if number <= 1:
            self.begin_physical = physical_offset
            self.begin_timestamp = timestamp
        if previous == 0:
            self.slots_used += 1
        self.count = number + 1
        self.end_physical = physical_offset
        self.end_timestamp = timestamp
        return True

    def take_back(self, cut_offset: int, item_max: int) -> bool:
        """Remove the newest items whose messages are at or after an offset in the log.

        The caller must then set ``end_timestamp``.

        :param item_max: the maximum number of items to remove.
        :returns: whether there may be more.
        """
        while self.count > 1:
            number = self.count - 1
            code, physical_offset, _, previous = ITEM.unpack(self._item(number))
            if physical_offset < cut_offset:
                self.end_physical = physical_offset
                return False
            if item_max == 0:
                return True
            item_max -= 1
            at = _SLOTS_BEFORE + code % self.slot_count
            page = self.pages[at >> _PAGE_BITS]
            if page is None:
                page = self._open_page(at >> _PAGE_BITS)
            if page[at & _PAGE_SLOTS - 1] == number:
                page[at & _PAGE_SLOTS - 1] = previous
            if previous == 0:
                self.slots_used -= 1
            self.count = number
            if number >= self.items_start:
                del self.items[(number - self.items_start) * ITEM_SIZE :]
            else:
                self.items_start = number
        return False

    def find(
        self, prefix_hash: int, key: str, max_count: int, begin_ms: int, end_ms: int,
        stored_ms: Callable[[int], int] = unknown_time,
    ) -> list[int]:
        """List the commit-log offsets of messages whose key has the hash of this key, newest first.

        :param begin_ms: the first store time of the range; ``end_ms`` is the last one.
        :param stored_ms: see :meth:`walk`.
        """
        code = item_hash(prefix_hash, key)
        log_offsets: list[int] = []
        number = self.newest(code)
        while number:
            number = self.walk(
                number, code, max_count, begin_ms, end_ms, log_offsets, _INT_MAX, stored_ms)
        return log_offsets

    def newest(self, code: int) -> int:
        """Return the number of the newest item in the chain of a hash; 0 for an empty chain."""
        number = self._slot(code % self.slot_count)
        if number >= self.count:
            number = self.counted(number)
        return number if number > 0 else 0

    def walk(
        self, number: int, code: int, max_count: int, begin_ms: int, end_ms: int,
        log_offsets: list[int], item_max: int, stored_ms: Callable[[int], int],
    ) -> int:
        """Follow a chain for a limited number of items, because a chain may be as long as the file.

        An item stores the second of its message, counted from the begin time of the file. If only a
        part of that second lies in the range, the message is asked for its exact store time.

        :param number: the number of the item to begin with.
        :param log_offsets: receives the commit-log offsets of items with the hash ``code``,
            ``max_count`` at most.
        :param item_max: the maximum number of items to examine.
        :param stored_ms: returns the store time in ms of the message at a commit-log offset; -1
            when it cannot be read, in which case the second of the item decides.
        :returns: the number of the item to continue with; 0 at the end of the chain.
        """
        while 0 < number < self.count and len(log_offsets) < max_count:
            if item_max == 0:
                return number
            item_max -= 1
            item_code, physical_offset, seconds, previous = ITEM.unpack(self._item(number))
            if number == 1:
                # The second of this item is counted from the end of the previous file.
                seconds = 0
            first_ms = self.begin_timestamp + seconds * 1000
            last_ms = first_ms + _LAST_MS
            if item_code == code and first_ms <= end_ms and last_ms >= begin_ms:
                time_ms = -1
                if first_ms < begin_ms or last_ms > end_ms:
                    time_ms = stored_ms(physical_offset)
                if time_ms < 0 or begin_ms <= time_ms <= end_ms:
                    log_offsets.append(physical_offset)
            if last_ms < begin_ms or previous >= number:
                return 0
            number = previous
        return 0

    def items_position(self, number: int) -> int:
        """Return the position of an item in the file, in bytes."""
        return HEADER_SIZE + SLOT_SIZE * self.slot_count + ITEM_SIZE * number

    def counted(self, number: int) -> int:
        """Follow a slot that a crash left ahead of the header to an item that the header counts."""
        while self.count <= number < self.item_max:
            previous: int = ITEM.unpack(
                self._read(self.items_position(number), ITEM_SIZE).ljust(ITEM_SIZE, b"\0")
            )[3]
            if previous >= number:
                return 0
            number = previous
        return number if 0 < number < self.count else 0

    def _slot(self, slot: int) -> int:
        """Read a slot from the place that holds its newest value."""
        at = _SLOTS_BEFORE + slot
        page = self.pages[at >> _PAGE_BITS]
        if page is None:
            page = self.flushing.get(at >> _PAGE_BITS)
        if page is not None:
            return page[at & _PAGE_SLOTS - 1]
        data = self._read(SLOT_SIZE * at, SLOT_SIZE)
        return int.from_bytes(data, "big", signed=True)

    def _item(self, number: int) -> bytes:
        """Read an item from memory or from the file."""
        if number >= self.items_start:
            at = (number - self.items_start) * ITEM_SIZE
            return bytes(self.items[at : at + ITEM_SIZE])
        return self._read(self.items_position(number), ITEM_SIZE).ljust(ITEM_SIZE, b"\0")

    def _open_page(self, number: int) -> array[int]:
        """Copy a page so that its slots can change."""
        old = self.flushing.get(number)
        if old is None:
            page = array("i", self._read(number * PAGE_SIZE, PAGE_SIZE).ljust(PAGE_SIZE, b"\0"))
            if _SWAPS:
                page.byteswap()
        else:
            page = old[:]
        self.pages[number] = page
        return page


assert (HEADER.size, array("i").itemsize, ITEM.size) == (HEADER_SIZE, SLOT_SIZE, ITEM_SIZE)
assert HEADER_SIZE % SLOT_SIZE == 0, "a slot must not lie on two pages"
assert _PAGE_SLOTS == 1 << _PAGE_BITS
