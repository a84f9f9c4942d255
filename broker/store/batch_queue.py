"""A batch queue in memory: one entry for each record, however many messages are in it.

Topics with the attribute queue.type=BatchCQ have such queues. A batch that is sent to one stays one
record, an inner batch, and takes as many queue offsets as it has messages; a record that is no
batch takes one. An entry is 46 bytes, big-endian, and says itself which offsets are its own:

    int64 place in the commit log · int32 size · int64 tag hash · int64 store time, ms
    · int64 offset of its first message · int16 messages · int32 compacted offset, always -1
    · int32 reserved, 0

Entries follow each other without fillers, so that the number of an entry and queue offsets have
nothing in common. Leaf module of the hot path: typed, so that mypyc compiles it.

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
#: The bytes of an entry before its base offset.
_BASE_POSITION: Final = 28
#: Messages of one record, at most.
BATCH_MESSAGES_MAX: Final = 0x7FFF
#: The first offset told of a batch queue that never had a message; other queues tell 0.
#: Source: BatchConsumeQueue.getMinOffsetInQueue.
NO_MIN_OFFSET: Final = -1
#: The value for a message without a place after a compaction, which is never done here.
_NOT_COMPACTED: Final = -1
#: Less than any offset: no message is ever the next of a plain queue's tail that begins here.
_NO_PLAIN_TAIL: Final = -(2**62)

_LONG: Final = struct.Struct(">q")


class BatchQueue(ConsumeQueue):
    """One queue of a batch topic.

    ``tail`` holds entries of 46 bytes; ``tail_start`` has no meaning and is less than any offset.
    """

    __slots__ = ("bases", "end_offset", "tail_index")

    def __init__(self, topic: str, queue_id: int) -> None:
        super().__init__(topic, queue_id)
        self.tail_start = _NO_PLAIN_TAIL
        #: Entries in the files, and before them: the number of the tail's first entry.
        self.tail_index: int = 0
        #: The offset after the newest message that can be read.
        self.end_offset: int = 0
        #: Of each file, the offset its first entry begins with.
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
        """Go on, without any entry, at an offset."""
        self.min_offset = self.next_offset = self.end_offset = queue_offset
        self.tail_index = 0
        self.max_physical = -1

    def add_batch(
        self, queue_offset: int, message_count: int, physical_offset: int, size: int,
        tags_code: int, store_ms: int,
    ) -> bool:
        """Add the entry of a record.

        :param queue_offset: of its first message. Behind the queue's end: what is missing in
            between stays missing, no read finds a record there.
        :returns: whether there is a new entry; False for a record that has one.
        """
        if queue_offset < self.end_offset:
            return False
        assert 0 < message_count <= BATCH_MESSAGES_MAX, message_count
        if self.end_offset == 0:
            # The queue begins here: what came before is gone from the commit log.
            self.min_offset = queue_offset
        self.tail.extend(BATCH_ENTRY.pack(
            physical_offset, size, tags_code, store_ms, queue_offset, message_count,
            _NOT_COMPACTED, 0))
        self.end_offset = queue_offset + message_count
        self.max_physical = max(self.max_physical, physical_offset + size)
        return True

    def add(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """A batch queue needs to know more of a record: add_batch."""
        raise AssertionError(self.topic)

    def cut(self, physical_offset: int) -> None:
        """Drop the tail's entries of records at or behind a place in the commit log."""
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
    """Find the last of some entries that does not begin behind an offset.

    :returns: its number among them; -1 when all begin behind.
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
