"""Read-only access to an index file of any size: its header, slots and items.

The number of slots is a setting that is not stored in the file. Apache's default is tried first,
then its ratio of four items per slot; a candidate must lead to a first and a last item that agree
with the header and with a slot. Otherwise, the last item is searched for by the commit-log offset
that it must contain.

Source: IndexFile, IndexHeader @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from twistmq.broker.store.index_tail import (
    HEADER,
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    SLOT,
    SLOT_SIZE,
    item_hash,
    settled_count,
)
from twistmq.broker.store.inspect.files import Reader
from twistmq.protocol.properties import java_string_hash

__all__ = ["IndexView", "Item", "key_hash"]

#: (key hash, commit-log offset, seconds since the file's begin, number of the previous item).
Item = tuple[int, int, int, int]
_SLOTS_DEFAULT: Final = 5_000_000
_ITEMS_AT_ONCE: Final = 2048
#: The size in bytes of the largest file that is searched: five times the default. It is larger than
#: any file that a broker with default settings makes, and its slots still fit into memory.
_SIZE_MAX: Final = 2 << 30
_SCAN_SIZE: Final = 1 << 20


def key_hash(topic: str, key: str) -> int:
    """Return the hash that the index stores for the key of a message."""
    return item_hash(_topic_hash(topic), key)


@lru_cache(1024)
def _topic_hash(topic: str) -> int:
    """Return the hash of the prefix of each key."""
    return java_string_hash(topic + "#")


class IndexView:
    """One file with its header as it was first read.

    :param slot_count: the number of slots; with None it is determined.
    """

    def __init__(self, reader: Reader, path: Path, slot_count: int | None = None) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._reader = reader
        self.header = self.read_header()
        (self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical,
         self.slots_used, self.count) = self.header
        self.count = max(self.count, 1)
        #: The number of slots; 0 when it cannot be determined.
        self.slot_count = slot_count or self._find_slot_count()
        #: Whether the count of the file is ahead of its end, as it is for a moment during a flush.
        self.is_ahead = False

    def settle(self) -> None:
        """Limit the count to the items up to the header's end; the number of slots
        must be known.
        """
        count = self.count
        if count > self.item_max:
            # The count is not possible, so the items that exist are counted.
            written = self._reader.written_end(self.path) - self.position(0)
            count = max(-(-written // ITEM_SIZE), 1)
        count = self._settled(self.slot_count, count)
        self.is_ahead = count < self.count
        self.count = count

    def read_header(self) -> tuple[int, ...]:
        """Read the current values of the six numbers in the header."""
        data = self._reader.read(self.path, 0, HEADER_SIZE)
        return HEADER.unpack(data.ljust(HEADER_SIZE, b"\0"))

    def position(self, number: int, slot_count: int = 0) -> int:
        """Return the position of an item in the file, in bytes."""
        return HEADER_SIZE + SLOT_SIZE * (slot_count or self.slot_count) + ITEM_SIZE * number

    @property
    def item_max(self) -> int:
        """The number of items that fit into the file, including number 0."""
        return (self.size - self.position(0)) // ITEM_SIZE

    def item(self, number: int) -> Item:
        """Read one item; zeros after the end."""
        return self._item_at(self.position(number))

    def items(self) -> Iterator[tuple[int, Item]]:
        """Yield all items that the header counts: (number, item)."""
        end = min(self.count, self.item_max)
        for begin in range(1, end, _ITEMS_AT_ONCE):
            size = ITEM_SIZE * min(_ITEMS_AT_ONCE, end - begin)
            data = self._reader.read(self.path, self.position(begin), size)
            yield from enumerate(ITEM.iter_unpack(data.ljust(size, b"\0")), begin)

    def slot(self, number: int) -> int:
        """Return the number of the newest item in a slot that the header counts; 0 without one."""
        data = self._reader.read(self.path, HEADER_SIZE + SLOT_SIZE * number, SLOT_SIZE)
        return self.counted(SLOT.unpack(data.ljust(SLOT_SIZE, b"\0"))[0])

    def slots(self, begin: int, count: int) -> bytes:
        """Read slots as they are encoded in the file."""
        return self._reader.read(self.path, HEADER_SIZE + SLOT_SIZE * begin, SLOT_SIZE * count)

    def counted(self, number: int) -> int:
        """Follow a slot that is ahead of the header, as it is for a moment during a write."""
        while self.count <= number < self.item_max:
            previous = self.item(number)[3]
            if previous >= number:
                return number
            number = previous
        return number

    def find(self, code: int, matches: Callable[[int], bool]) -> Iterator[int]:
        """Yield the commit-log offsets of the messages whose key has a hash, newest first.

        :param matches: returns whether the time of an item, in ms, is wanted.
        """
        number = self.slot(code % self.slot_count)
        while 0 < number < self.count:
            item_code, log_offset, seconds, previous = self.item(number)
            if number == 1:
                # The second of this item is counted from the end of the previous file.
                seconds = 0
            if item_code == code and matches(self.begin_timestamp + seconds * 1000):
                yield log_offset
            if previous >= number:
                return
            number = previous

    # --- the number of slots

    def _item_at(self, position: int) -> Item:
        data = self._reader.cached(self.path, position, ITEM_SIZE)
        return ITEM.unpack(data.ljust(ITEM_SIZE, b"\0"))

    def _settled(self, slot_count: int, count: int) -> int:
        """Return the number of the first item, among ``count``, that the header does not count."""
        def read(number: int, count: int) -> bytes:
            size = ITEM_SIZE * count
            return self._reader.read(
                self.path, self.position(number, slot_count), size).ljust(size, b"\0")

        return settled_count(count, self.end_timestamp, self.end_physical, read)

    def _fits(self, slot_count: int) -> bool:
        """Return whether the header agrees with the items, given this number of slots."""
        if slot_count <= 0:
            return False
        items = self.size - self.position(0, slot_count)
        if items < ITEM_SIZE * self.count or items % ITEM_SIZE:
            return False
        if self.count <= 1:
            return True
        first = self._item_at(self.position(1, slot_count))
        if (first[1], first[3]) != (self.begin_physical, 0):
            return False
        count = self._settled(slot_count, self.count)
        if count <= 1:
            # The first flush of the file was not completed.
            return self.begin_physical > 0
        last = self._item_at(self.position(count - 1, slot_count))
        data = self._reader.read(
            self.path, HEADER_SIZE + SLOT_SIZE * (last[0] % slot_count), SLOT_SIZE)
        # On a running broker the slot may already be ahead.
        return (
            last[1] == self.end_physical
            and count - 1 <= int.from_bytes(data, "big", signed=True) < items // ITEM_SIZE
        )

    def _find_slot_count(self) -> int:
        if self.size > _SIZE_MAX:
            return 0
        ratio = (self.size - HEADER_SIZE) // (SLOT_SIZE + 4 * ITEM_SIZE)
        for count in (_SLOTS_DEFAULT, ratio):
            if self._fits(count):
                return count
        offset_bytes = self.end_physical.to_bytes(8, "big", signed=True)
        start = HEADER_SIZE
        # The commit-log offset begins at the fifth byte of an item.
        while self.end_physical > 0 and len(data := self._reader.read(
                self.path, start, _SCAN_SIZE)) >= ITEM_SIZE:
            at = data.find(offset_bytes)
            while at >= 0:
                items = start + at - 4 - ITEM_SIZE * (self.count - 1)
                if items % SLOT_SIZE == 0 and self._fits((items - HEADER_SIZE) // SLOT_SIZE):
                    return (items - HEADER_SIZE) // SLOT_SIZE
                at = data.find(offset_bytes, at + 1)
            start += len(data) - 8
        exact = (self.size - HEADER_SIZE) % (SLOT_SIZE + 4 * ITEM_SIZE) == 0
        return ratio if exact else 0
