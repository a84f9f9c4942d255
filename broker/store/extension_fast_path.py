"""The loop that creates the units for the entries of new records.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: ConsumeQueue.putMessagePositionInfoWrapper, ConsumeQueueExt.put @5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

from twistmq.broker.store.consume_queue import ENTRY, ENTRY_SIZE, ConsumeQueue
from twistmq.broker.store.extension_unit import (
    FILE_END,
    FILE_END_ROOM,
    UNIT_SIZE_MAX,
    UNIT_SIZE_MIN,
    FilterBitmap,
    address_of,
    encode_unit,
    is_address,
)
from twistmq.protocol.record import MessageRecord

__all__ = ["UnitFiles", "extend_entries"]

#: The position of the tags code in an entry, and its encoding.
_CODE_POSITION: Final = 12
_CODE: Final = struct.Struct(">q")


class UnitFiles:
    """The extension of one queue."""

    def __init__(self, directory: str) -> None:
        self.directory: str = directory
        #: The start positions of its files, in bytes, ascending.
        self.starts: list[int] = []
        #: The units that are not written yet, and the position of the first one.
        self.tail: bytearray = bytearray()
        self.tail_start: int = 0


def extend_entries(
    records: Iterable[MessageRecord],
    queues: dict[str, dict[int, ConsumeQueue]],
    files_of: Callable[[ConsumeQueue], UnitFiles],
    file_size: int,
    make_bitmap: FilterBitmap | None,
    too_long: Callable[[ConsumeQueue, int], None],
) -> int:
    """Create the units of the entries that were just made for these records.

    :param files_of: returns the extension of a queue.
    :param file_size: length of each file of an extension in bytes.
    :param make_bitmap: computes the bitmaps; with None, units have no bitmaps.
    :param too_long: called with a queue and the size of a bitmap that fits into no unit.
    :returns: the size of the new units in bytes.
    """
    added = 0
    last: ConsumeQueue | None = None
    files: UnitFiles | None = None
    for record in records:
        if not record.enters_queue:
            continue
        queue = queues[record.topic][record.queue_id]
        entries = queue.tail
        at = (record.queue_offset - queue.tail_start) * ENTRY_SIZE
        if not 0 <= at < len(entries):
            continue
        entry = ENTRY.unpack_from(entries, at)
        physical_offset: int = entry[0]
        code: int = entry[2]
        if physical_offset != record.physical_offset or is_address(code):
            continue
        bitmap = b""
        if make_bitmap is not None:
            filter_bitmap = make_bitmap(record)
            if filter_bitmap is not None:
                bitmap = filter_bitmap
        size = UNIT_SIZE_MIN + len(bitmap)
        if size > UNIT_SIZE_MAX or size > file_size - FILE_END_ROOM:
            too_long(queue, len(bitmap))
            continue
        if files is None or queue is not last:
            files = files_of(queue)
            last = queue
        tail = files.tail
        before = len(tail)
        position = files.tail_start + before
        room = file_size - position % file_size
        if size > room - FILE_END_ROOM:
            tail.extend(FILE_END + bytes(room - len(FILE_END)))
            position += room
        tail.extend(encode_unit(code, record.store_timestamp, bitmap))
        added += len(tail) - before
        _CODE.pack_into(entries, at + _CODE_POSITION, address_of(position))
    return added
