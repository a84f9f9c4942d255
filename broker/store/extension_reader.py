"""Sequential reading of the units of one queue, and filters that use them.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: ConsumeQueueExt.get, ConsumeQueue.CqIterator @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twistmq.broker.store.extension_unit import (
    ExtensionUnit,
    UnitFields,
    decode_unit,
    is_address,
    place_of,
)
from twistmq.broker.store.get_message import MessageFilter

__all__ = ["ExtendedFilter", "UnitReader"]


class UnitReader:
    """Reads several units at a time, because neighbours in the queue are neighbours in its
    extension.

    :param read: reads (position, size) of the extension; returns fewer bytes where a file ends.
    :param size: the number of bytes to read at a time.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._data = b""
        self._start = 0

    def find(self, address: int) -> UnitFields | None:
        """Read the fields of the unit at an address; None if it does not exist."""
        position = place_of(address)
        fields = decode_unit(self._data, position - self._start)
        if fields is None:
            self._start = position
            self._data = self._read(position, self._size)
            size = int.from_bytes(self._data[:2], "big", signed=True)
            if size > len(self._data):
                self._data = self._read(position, size)
            fields = decode_unit(self._data, 0)
        return fields

    def unit(self, address: int) -> ExtensionUnit | None:
        """Read the unit at an address; None if it does not exist."""
        fields = self.find(address)
        return None if fields is None else ExtensionUnit(*fields)


class ExtendedFilter:
    """A message filter that also uses the units of a queue.

    A message whose unit is missing passes the entry filter; the record, and then the client,
    decide.
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
        fields = self._reader.find(tags_code)
        if fields is None:
            return True
        code, stored_ms, bits = fields
        return self._inner.match_queue_entry(code, stored_ms, bits or None)

    def match_record(self, record: bytes) -> bool:
        """See MessageFilter."""
        return self._inner.match_record(record)

    def match_properties(self, properties: str) -> bool:
        """See MessageFilter."""
        return self._inner.match_properties(properties)
