"""After a crash: are the entries of queues those of the messages that are in the log?

A killed process leaves entries that are not durable yet. A loss of power keeps any of them: there
may be holes anywhere behind what was durable, and entries of messages that the log lost. So each
message that recovery reads again is compared with its entry. From the first that differs on, the
queue's entries are dropped, and recovery makes them again; so are those behind the last message.

Differs from Apache, which looks at the form of the entries of the last three files alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from twistmq.broker.store.consume_queue import ENTRY_SIZE, ConsumeQueue
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.wire.record import StoredMessage

__all__ = ["EntryCheck"]

#: Entries read at a time.
_COUNT: Final = 4096
#: What an entry begins with: place and size.
_HEAD: Final = struct.Struct(">qi")


class EntryCheck:
    """Compares the messages from one place of the log on, in order, with their entries.

    :param start: where in the log; entries of messages before it are durable.
    :param enters: says whether a message enters its queue.
    """

    def __init__(
        self, queues: QueueTable, start: int, enters: Callable[[StoredMessage], bool]
    ) -> None:
        self._queues = queues
        self._start = start
        self._enters = enters
        #: By topic and queue id, the offset behind the last message.
        self._ends: dict[tuple[str, int], int] = {}
        #: Entries that were read, and the offset of the first.
        self._read: dict[ConsumeQueue, tuple[int, bytes]] = {}

    def check(self, message: StoredMessage) -> None:
        """Drop a message's entry and those behind it when it is not this message's."""
        if not self._enters(message):
            return
        offset = message.queue_offset
        self._ends[message.topic, message.queue_id] = offset + 1
        queue = self._queues.find(message.topic, message.queue_id)
        # What is in memory was made of the log just now.
        if queue is None or not queue.min_offset <= offset < queue.tail_start:
            return
        if self._head(queue, offset) != _HEAD.pack(message.physical_offset, message.size):
            self._read.pop(queue, None)
            if not queue.tail:
                self._queues.files.cut_at(queue, offset)

    def finish(self) -> None:
        """Drop the entries behind the last message of each queue."""
        for queue in self._queues:
            end = self._ends.get((queue.topic, queue.queue_id))
            if queue.tail:
                continue
            if end is None:
                if queue.max_physical > self._start:
                    self._queues.files.cut(queue, self._start)
            elif queue.max_offset > max(end, queue.min_offset):
                self._queues.files.cut_at(queue, max(end, queue.min_offset))

    def _head(self, queue: ConsumeQueue, offset: int) -> bytes:
        """Read what the entry at an offset begins with."""
        begin, entries = self._read.get(queue, (offset, b""))
        at = (offset - begin) * ENTRY_SIZE
        if not 0 <= at < len(entries):
            at, entries = 0, self._queues.files.read_again(queue, offset, _COUNT)
            self._read[queue] = offset, entries
        return entries[at : at + _HEAD.size]
