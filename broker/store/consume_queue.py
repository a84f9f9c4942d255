"""A consume queue in memory: its offsets, and the newest entries, which are not in its files yet.

An entry is 20 bytes, big-endian: int64 place in the commit log, int32 size, int64 tag hash. Entries
can be rebuilt from the commit log, so they may wait here until a flush writes them; readers look
here first. Leaf module of the hot path: typed, so that mypyc compiles it.

Source: ConsumeQueue @5.3.3.
"""

from __future__ import annotations

import struct
from typing import Final

from twistmq.protocol.properties import java_string_hash

__all__ = ["ENTRY", "ENTRY_SIZE", "FILLER", "FILLER_SIZE", "MISSING_MAX", "OFFSET_MAX",
           "ConsumeQueue"]

#: (physical offset, size, tags code).
ENTRY: Final = struct.Struct(">qiq")
ENTRY_SIZE: Final = 20
#: The size in a filler, which stands for messages that are missing in a file. No read finds a
#: record through a filler.
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER: Final = ENTRY.pack(0, FILLER_SIZE, 0)
#: The number of entries that may be missing before a new one: 320 MB of fillers. An offset that is
#: further ahead is not valid; the CRC in the commit log does not cover it.
MISSING_MAX: Final = 16_000_000
#: The highest offset of a message. The position of its entry in the files of the queue, in bytes,
#: fits into an int64, like the positions of all lower offsets.
OFFSET_MAX: Final = 2**58 - 1


class ConsumeQueue:
    """One queue of one topic. Offsets count messages from 0 and never restart."""

    __slots__ = (
        "is_removed",
        "key_hash",
        "known_offset",
        "known_physical",
        "max_physical",
        "min_offset",
        "next_offset",
        "put_item",
        "queue_id",
        "starts",
        "tail",
        "tail_start",
        "topic",
        "topic_part",
    )

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic: str = topic
        self.queue_id: int = queue_id
        #: The Java hash of the prefix that the index adds to each key of this topic.
        self.key_hash: int = java_string_hash(topic + "#")
        #: The topic name as encoded in records, shared by all queues of the topic.
        self.topic_part: bytes = b""
        #: The statistics of messages sent to the topic; None until they are looked up.
        self.put_item: object | None = None
        #: Whether the queue was deleted. A holder of this object must then look the queue up again.
        self.is_removed: bool = False
        #: The first offset that can still be read.
        self.min_offset: int = 0
        #: The offset of the next stored message; ahead of ``max_offset`` while dispatch waits.
        self.next_offset: int = 0
        #: The offset of the first entry in the tail. Earlier entries are in files, unless they were
        #: removed.
        self.tail_start: int = 0
        self.tail: bytearray = bytearray()
        #: The start positions of the files, in bytes, ascending.
        self.starts: list[int] = []
        #: The commit-log offset after the newest dispatched message of the queue.
        self.max_physical: int = -1
        #: A queue offset whose commit-log offset is known without reading a file, and that
        #: commit-log offset.
        self.known_offset: int = -1
        self.known_physical: int = -1

    @property
    def max_offset(self) -> int:
        """The offset after the newest message that can be read."""
        return self.tail_start + len(self.tail) // ENTRY_SIZE

    @property
    def written_end(self) -> int:
        """The offset after the newest message whose entry is in a file."""
        return self.tail_start

    def begin_at(self, queue_offset: int) -> None:
        """Continue at an offset, without any entry."""
        self.tail_start = self.min_offset = self.next_offset = queue_offset
        self.max_physical = self.known_offset = -1

    def add(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Add the entry of a message, whose offset may not be the next one during recovery.

        :param queue_offset: at most MISSING_MAX ahead of the queue, unless the queue is empty.
        :returns: True for a new entry; False for a message that already has one.
        """
        missing = queue_offset - self.max_offset
        if missing < 0:
            return False
        if missing > 0 and self.max_offset == 0:
            # The queue begins here, because earlier messages have left the commit log.
            self.tail_start = queue_offset
            self.min_offset = queue_offset
        else:
            assert missing <= MISSING_MAX, queue_offset
            self.tail.extend(FILLER * missing)
        self.tail.extend(ENTRY.pack(physical_offset, size, tags_code))
        self.max_physical = max(self.max_physical, physical_offset + size)
        return True

    def cut(self, physical_offset: int) -> None:
        """Drop the entries in the tail whose messages are at or after a commit-log offset."""
        position = 0
        for entry in ENTRY.iter_unpack(self.tail):
            if entry[0] >= physical_offset and entry[1] > 0:
                break
            position += ENTRY_SIZE
        del self.tail[position:]
        self.next_offset = self.max_offset
        self.known_offset = -1
        self.max_physical = min(self.max_physical, physical_offset)


assert ENTRY.size == ENTRY_SIZE == len(FILLER)
