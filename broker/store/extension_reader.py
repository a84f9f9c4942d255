"""Reading the units of one queue in a row, and filters that are told what they say.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: ConsumeQueueExt.get, ConsumeQueue.CqIterator @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twistmq.broker.store.extension_unit import (
    UNIT_HEAD,
    UNIT_SIZE_MIN,
    ExtensionUnit,
    is_address,
    place_of,
)
from twistmq.broker.store.get_message import MessageFilter

__all__ = ["ExtendedFilter", "UnitReader"]


class UnitReader:
    """Reads units, some at a time: neighbours in the queue are neighbours in its extension.

    :param read: reads (place, size) of the extension, fewer bytes where a file ends.
    :param size: bytes to read at a time.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._data = b""
        self._start = 0
        #: Of the unit that was found last, see ExtensionUnit.
        self.tags_code: int = 0
        self.store_time: int = 0
        self.bitmap: bytes = b""

    def find(self, address: int) -> bool:
        """Read the unit of an address into ``tags_code``, ``store_time`` and ``bitmap``.

        :returns: whether there is one.
        """
        place = place_of(address)
        if self._take(place - self._start):
            return True
        self._start = place
        self._data = self._read(place, self._size)
        size = int.from_bytes(self._data[:2], "big", signed=True)
        if size > len(self._data):
            self._data = self._read(place, size)
        return self._take(0)

    def _take(self, at: int) -> bool:
        """Take the unit at a position of what was read, if a whole one is there."""
        data = self._data
        if not 0 <= at <= len(data) - UNIT_SIZE_MIN:
            return False
        head = UNIT_HEAD.unpack_from(data, at)
        size: int = head[0]
        bitmap_size: int = head[3]
        if size != UNIT_SIZE_MIN + bitmap_size or bitmap_size < 0 or at + size > len(data):
            return False
        self.tags_code = head[1]
        self.store_time = head[2]
        self.bitmap = data[at + UNIT_SIZE_MIN : at + size]
        return True

    def unit(self, address: int) -> ExtensionUnit | None:
        """Read the unit of an address; None when there is none."""
        if not self.find(address):
            return None
        return ExtensionUnit(self.tags_code, self.store_time, self.bitmap)


class ExtendedFilter:
    """A filter of messages that is told what the units of a queue say.

    A message whose unit is missing may be wanted: the record decides, and the client.
    """

    def __init__(self, reader: UnitReader, inner: MessageFilter) -> None:
        self._reader = reader
        self._inner = inner

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        """See MessageFilter."""
        if not is_address(tags_code):
            return self._inner.match_queue_entry(tags_code, store_time, bitmap)
        reader = self._reader
        if not reader.find(tags_code):
            return True
        return self._inner.match_queue_entry(
            reader.tags_code, reader.store_time, reader.bitmap or None)

    def match_record(self, record: bytes) -> bool:
        """See MessageFilter."""
        return self._inner.match_record(record)

    def match_properties(self, properties: str) -> bool:
        """See MessageFilter."""
        return self._inner.match_properties(properties)
