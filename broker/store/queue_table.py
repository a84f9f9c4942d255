"""All consume queues of a store: finding them, and writing their tails away in small steps.

Source: ConsumeQueueStore, FlushConsumeQueueService @5.3.3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

from twistmq.broker.constants import (
    QUEUE_TAIL_WORTH_BYTES,
    QUEUE_TAILS_FLUSH_BYTES,
    QUEUE_TAILS_FLUSH_BYTES_MAX,
)
from twistmq.broker.store.append_fast_path import Queues
from twistmq.broker.store.batch_files import BatchQueueFiles
from twistmq.broker.store.batch_queue import BatchQueue
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.extension_unit import ExtensionUnit, is_address
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.queue_files import QueueFiles
from twistmq.broker.store.queue_sync import QueueSync
from twistmq.protocol.errors import MessageIllegal, StoreDamaged
from twistmq.protocol.record import topic_part
from twistmq.protocol.topic_names import can_be_directory

__all__ = ["QueueTable"]

class QueueTable:
    """Queues by topic and id.

    :param directory: the ``consumequeue`` directory.
    :param file_size: bytes of a queue's files.
    :param batch_directory: the ``batchconsumequeue`` directory.
    :param batch_file_size: bytes of a batch queue's files.
    """

    def __init__(
        self, io: IStoreIO, directory: str, file_size: int, batch_directory: str,
        batch_file_size: int,
    ) -> None:
        self.by_topic: Queues = {}
        self.files = QueueFiles(io, directory, file_size)
        self.batch_files = BatchQueueFiles(
            io, batch_directory, batch_file_size, self.files.open_files)
        #: Says whether a topic's queues are batch queues; None: it has not heard of the topic.
        self.is_batch_topic: Callable[[str], bool | None] = lambda topic: None
        #: Queues with entries in memory, the oldest first.
        self.dirty: dict[ConsumeQueue, None] = {}
        #: Bytes of all those entries.
        self.tail_bytes = 0
        #: Whether there are batch queues: a record may be more than one message.
        self.has_batches = False
        self._io = io
        self._writing: list[ConsumeQueue] = []

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for by_id in self.by_topic.values():
            yield from by_id.values()

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Find a queue; None when nothing was ever stored in it."""
        by_id = self.by_topic.get(topic)
        return None if by_id is None else by_id.get(queue_id)

    def files_of(self, queue: ConsumeQueue) -> QueueFiles:
        """The files of a queue's kind."""
        return self.batch_files if isinstance(queue, BatchQueue) else self.files

    def is_batch(self, topic: str, queue_id: int) -> bool:
        """Whether a queue, there or not, is a batch queue."""
        queue = self.find(topic, queue_id)
        return bool(self.is_batch_topic(topic)) if queue is None else isinstance(queue, BatchQueue)

    def make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Make a queue of the kind that its topic has.

        :raises MessageIllegal: when topic or id cannot be the name of a directory, or the topic
            has queues of the other kind.
        """
        if not can_be_directory(topic):
            raise MessageIllegal(f"{topic!r} cannot be a topic: the store names directories so")
        if queue_id < 0:
            raise MessageIllegal(f"queue id {queue_id} of {topic} is negative")
        by_id = self.by_topic.setdefault(topic, {})
        kinds = {type(queue) for queue in by_id.values()}
        is_batch = self.is_batch_topic(topic)
        if is_batch is None:
            is_batch = BatchQueue in kinds
        self.has_batches = self.has_batches or is_batch
        kind = BatchQueue if is_batch else ConsumeQueue
        if kinds - {kind}:
            raise MessageIllegal(_of_other_kind(topic, is_batch))
        # The same string as in other tables, whoever sends the first message.
        queue = kind(sys.intern(topic), queue_id)
        _enter(queue, by_id)
        return queue

    # --- load

    def load(self, thorough: bool) -> None:
        """Find all queues and where they end.

        :param thorough: after a crash: trust no more than each entry says.
        :raises StoreDamaged: when a file has the wrong length or is missing, or a topic has
            queues of the kind that it should not have.
        """
        for files in (self.files, self.batch_files):
            for queue in files.load_all():
                is_batch = files is self.batch_files
                by_id = self.by_topic.setdefault(queue.topic, {})
                wanted = self.is_batch_topic(queue.topic)
                if is_batch and wanted is None and ConsumeQueue in map(type, by_id.values()):
                    wanted = False
                if wanted is (not is_batch):
                    if queue.starts:
                        raise StoreDamaged(f"{files.queue_directory(queue)} is there, and "
                                           f"{_of_other_kind(queue.topic, wanted)}")
                    continue
                self.has_batches = self.has_batches or is_batch
                _enter(queue, by_id)
                files.recover(queue, thorough)

    def furthest(self) -> ConsumeQueue | None:
        """Find the queue whose newest message is the newest of all."""
        return max(self, key=lambda queue: queue.max_physical, default=None)

    def cut(self, physical_offset: int) -> None:
        """Drop entries of messages at or behind a place in the commit log, in every queue."""
        for queue in self:
            if queue.max_physical > physical_offset:
                before = self.files.waiting_bytes(queue)
                self.files_of(queue).cut(queue, physical_offset)
                self.tail_bytes += self.files.waiting_bytes(queue) - before

    def correct_min_offsets(self, log_min_offset: int) -> None:
        """Move every queue's beginning to its first message that is still in the commit log."""
        for queue in self:
            self.files_of(queue).correct_min_offset(queue, log_min_offset)

    def restart(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Empty a queue whose topic was deleted and created again, and set its next offset."""
        self._forget(queue)
        self.files_of(queue).destroy(queue)
        queue.begin_at(queue_offset)

    def destroy(self, topic: str) -> int:
        """Remove a topic's queues with their files.

        :returns: how many there were.
        """
        by_id = self.by_topic.pop(topic, {})
        self._remove(*by_id.values())
        return len(by_id)

    def expired(self, log_min_offset: int) -> list[ConsumeQueue]:
        """List the queues whose messages are all gone from the commit log."""
        return [queue for queue in self
                if 0 <= queue.max_physical <= log_min_offset
                and queue.next_offset == queue.max_offset]

    def destroy_queue(self, queue: ConsumeQueue) -> None:
        """Remove one queue with its files; the next message in it begins at offset 0."""
        by_id = self.by_topic[queue.topic]
        del by_id[queue.queue_id]
        if not by_id:
            del self.by_topic[queue.topic]
        self._remove(queue)

    def _remove(self, *queues: ConsumeQueue) -> None:
        """Remove queues that are in the table no more; a disk that fails may leave files."""
        for queue in queues:
            queue.is_removed = True
        for queue in queues:
            self._forget(queue)
            self.files_of(queue).destroy(queue)

    def _forget(self, queue: ConsumeQueue) -> None:
        """Leave a queue's entries in memory unwritten."""
        self.tail_bytes -= self.files.waiting_bytes(queue)
        queue.tail.clear()
        self.dirty.pop(queue, None)

    # --- flush

    def write_tail(self, queue: ConsumeQueue) -> None:
        """Write one queue's entries.

        :raises StoreFull, OSError: when the disk is full or fails; the entries wait on.
        """
        before = self.files.waiting_bytes(queue)
        try:
            self.files_of(queue).write_tail(queue)
        finally:
            self.tail_bytes -= before - self.files.waiting_bytes(queue)

    @property
    def should_write(self) -> bool:
        """Whether the entries that wait in memory, over all queues, are so many as to be written.
        """
        enough = min(len(self.dirty) * QUEUE_TAIL_WORTH_BYTES, QUEUE_TAILS_FLUSH_BYTES_MAX)
        return self.tail_bytes >= max(enough, QUEUE_TAILS_FLUSH_BYTES)

    def begin_writing(self, size_min: int = 1) -> None:
        """Choose the queues for write_tails: those with at least this many bytes in memory."""
        self._writing = [queue for queue in self.dirty if len(queue.tail) >= size_min]
        self._writing.reverse()

    def write_tails(self, count_max: int) -> bool:
        """Write the entries of some of the queues that begin_writing chose, the oldest first.

        :returns: whether none of them is left.
        :raises StoreFull, OSError: when the disk is full or fails; the entries wait on.
        """
        for _ in range(min(count_max, len(self._writing))):
            queue = self._writing[-1]
            # A topic may have been deleted since.
            if queue in self.dirty:
                self.write_tail(queue)
                del self.dirty[queue]
            self._writing.pop()
        return not self._writing

    def write_all(self) -> None:
        """Write the entries of all queues at once, for recovery and the end.

        :raises StoreFull, OSError: when the disk is full or fails; the entries wait on.
        """
        self.begin_writing()
        self.write_tails(len(self._writing))

    @property
    def unsynced_count(self) -> int:
        """Files and queues whose newest entries are not durable."""
        return len(self.files.unsynced) + len(self.batch_files.unsynced) + len(self.dirty)

    def sync_job(self) -> QueueSync:
        """Make the job that puts all written entries on disk; run it on a thread."""
        paths = self.files.unsynced | self.batch_files.unsynced
        self.files.unsynced, self.batch_files.unsynced = set(), set()
        if self.files.extensions is not None:
            paths |= self.files.extensions.unsynced
            self.files.extensions.unsynced = set()
        return QueueSync(self._io, paths)

    def rewrite(self, path: str) -> None:
        """Write a file of a queue, or of its extension, again; the next sync is for it too.

        :param path: may be that of a directory, which only has to be synced again, or gone.
        :raises OSError: when it cannot be read or written.
        """
        with suppress(FileNotFoundError, IsADirectoryError):
            self._io.rewrite(path)
        self.files.unsynced.add(path)

    # --- read

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Offset of a queue's first readable message; 0 without a queue."""
        queue = self.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset the queue's next message gets, readable messages counted; 0 without a queue."""
        queue = self.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def ids_by_topic(self) -> dict[str, list[int]]:
        """List the topics that have queues, with the queues' ids in order."""
        return {topic: sorted(by_id) for topic, by_id in self.by_topic.items() if by_id}

    def has_batch_queues(self, topic: str) -> bool:
        """Whether the queues that a topic has are batch queues."""
        return any(isinstance(queue, BatchQueue) for queue in self.by_topic.get(topic, {}).values())

    def is_empty_batch(self, topic: str, queue_id: int) -> bool:
        """Whether nothing was ever stored in a queue that is, or would be, a batch queue."""
        return not self.max_offset(topic, queue_id) and self.is_batch(topic, queue_id)

    def commit_log_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Place of a queue's message in the commit log; -1 when the queue has no such entry."""
        queue = self.find(topic, queue_id)
        entry = None if queue is None else self.files_of(queue).entry(queue, queue_offset)
        return -1 if entry is None else entry[0]

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> list[tuple[int, int, int]]:
        """Read a queue's entries: (place in the commit log, size, tags code).

        An address stays where the code should be when its unit is missing.

        :returns: fewer than wanted where a file or the queue ends; none outside of it.
        """
        found, _ = self.extended_entries(topic, queue_id, queue_offset, max_count)
        return [entry if unit is None else (entry[0], entry[1], unit.tags_code)
                for entry, unit in found]

    def extended_entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> tuple[list[tuple[tuple[int, int, int], ExtensionUnit | None]], int]:
        """Read a queue's entries as they are, each with the unit it points at, if there is one.

        :returns: the entries, and the queue offset behind them, which in a batch queue is further
            than there are entries.
        """
        queue = self.find(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return [], queue_offset
        entries, behind = self.files_of(queue).entries(queue, queue_offset, max_count)
        if self.files.extensions is None:
            return [(entry, None) for entry in entries], behind
        reader = self.files.extensions.reader(queue)
        return [(entry, reader.unit(entry[2]) if is_address(entry[2]) else None)
                for entry in entries], behind


def _enter(queue: ConsumeQueue, by_id: dict[int, ConsumeQueue]) -> None:
    """Put a queue among those of its topic."""
    sibling = next(iter(by_id.values()), None)
    queue.topic_part = topic_part(queue.topic) if sibling is None else sibling.topic_part
    by_id[queue.queue_id] = queue


def _of_other_kind(topic: str, is_batch: bool) -> str:
    """Say that a topic's queues are not of the kind they should be."""
    kind, other = ("BatchCQ", "SimpleCQ") if is_batch else ("SimpleCQ", "BatchCQ")
    return f"the queues of topic {topic} are {other}, its queue.type is {kind}"
