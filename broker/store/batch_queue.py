"""A batch queue in memory: one entry per record, which may contain many messages.

Topics with the attribute queue.type=BatchCQ have such queues. A batch sent to such a queue stays
one record, an inner batch, and takes as many queue offsets as it has messages; a record that is not
a batch takes one. An entry is 46 bytes, big-endian, and contains its own range of offsets:

    int64 place in the commit log · int32 size · int64 tag hash · int64 store time, ms
    · int64 offset of its first message · int16 messages · int32 compacted offset, always -1
    · int32 reserved, 0

Entries follow each other without fillers, so the number of an entry cannot be computed from a queue
offset. Leaf module of the hot path: typed, so that mypyc compiles it.

Source: BatchConsumeQueue @5.3.3.
"""

from __future__ import annotations

import struct
from typing import Final

from twistmq.broker.store.consume_queue import ConsumeQueue

__all__ = ["BATCH_ENTRY", "BATCH_ENTRY_SIZE", "BATCH_MESSAGES_MAX", "NO_MIN_OFFSET", "BatchQueue",
           "entry_before"]

#: (place, size, tags code, store time, base offset, messages, compacted offset, reserved).
BATCH_ENTRY: Final = struct.Struct(">qiqqqhii")
BATCH_ENTRY_SIZE: Final = 46
#: The position of the base offset in an entry, in bytes.
_BASE_POSITION: Final = 28
#: The maximum number of messages in a record.
BATCH_MESSAGES_MAX: Final = 0x7FFF
#: The first offset reported for a batch queue that never had a message; plain queues report 0.
#: Source: BatchConsumeQueue.getMinOffsetInQueue.
NO_MIN_OFFSET: Final = -1
#: The value for a message that was not moved by a compaction. Compaction is not implemented here.
_NOT_COMPACTED: Final = -1
#: Less than any offset, so that no message ever follows the tail of such a queue as in a plain one.
_NO_PLAIN_TAIL: Final = -(2**62)

_LONG: Final = struct.Struct(">q")


class BatchQueue(ConsumeQueue):
    """One queue of a batch topic.

    ``tail`` holds entries of 46 bytes. ``tail_start`` is unused and less than any offset.
    """

    __slots__ = ("bases", "end_offset", "tail_index")

    def __init__(self, topic: str, queue_id: int) -> None:
        super().__init__(topic, queue_id)
        self.tail_start = _NO_PLAIN_TAIL
        #: The number of the first entry in the tail, counted over all files that the queue ever
        #: had.
        self.tail_index: int = 0
        #: The offset after the newest message that can be read.
        self.end_offset: int = 0
        #: For each file, the first offset of its first entry.
        self.bases: list[int] = []

    @property
    def max_offset(self) -> int:
        """The offset after the newest message that can be read."""
        return self.end_offset

    @property
    def written_end(self) -> int:
        """The offset after the newest message whose entry is in a file."""
        if not self.tail:
            return self.end_offset
        base: int = _LONG.unpack_from(self.tail, _BASE_POSITION)[0]
        return base

    def begin_at(self, queue_offset: int) -> None:
        """Continue at an offset, without any entry."""
        self.min_offset = self.next_offset = self.end_offset = queue_offset
        self.tail_index = 0
        self.max_physical = -1

    def add_batch(
        self, queue_offset: int, message_count: int, physical_offset: int, size: int,
        tags_code: int, store_ms: int,
    ) -> bool:
        """Add the entry of a record.

        :param queue_offset: the offset of its first message. It may be after the end of the queue;
            the offsets in between stay missing, and no read finds a record there.
        :returns: True for a new entry; False for a record that already has one.
        """
        if queue_offset < self.end_offset:
            return False
        assert 0 < message_count <= BATCH_MESSAGES_MAX, message_count
        if self.end_offset == 0:
            # The queue begins here, because earlier messages have left the commit log.
            self.min_offset = queue_offset
        self.tail.extend(BATCH_ENTRY.pack(
            physical_offset, size, tags_code, store_ms, queue_offset, message_count,
            _NOT_COMPACTED, 0))
        self.end_offset = queue_offset + message_count
        self.max_physical = max(self.max_physical, physical_offset + size)
        return True

    def add(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Not supported: a batch queue needs the additional fields of ``add_batch``."""
        raise AssertionError(self.topic)

    def cut(self, physical_offset: int) -> None:
        """Drop the entries in the tail whose records are at or after a commit-log offset."""
        position = 0
        for entry in BATCH_ENTRY.iter_unpack(self.tail):
            if entry[0] >= physical_offset:
                self.end_offset = entry[4]
                break
            position += BATCH_ENTRY_SIZE
        del self.tail[position:]
        self.next_offset = self.end_offset
        self.max_physical = min(self.max_physical, physical_offset)


def entry_before(entries: bytes | bytearray, queue_offset: int) -> int:
    """Find the last of some entries whose base offset is at most ``queue_offset``.

    :returns: its number among them; -1 when all base offsets are greater.
    """
    low = 0
    high = len(entries) // BATCH_ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        base: int = _LONG.unpack_from(entries, middle * BATCH_ENTRY_SIZE + _BASE_POSITION)[0]
        if base <= queue_offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


assert BATCH_ENTRY.size == BATCH_ENTRY_SIZE
