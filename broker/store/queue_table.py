"""All consume queues of a store, and the writing of their waiting entries in small steps.

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
    """The queues by topic and queue id.

    :param directory: the ``consumequeue`` directory.
    :param file_size: length of each file of a queue in bytes.
    :param batch_directory: the ``batchconsumequeue`` directory.
    :param batch_file_size: length of each file of a batch queue in bytes.
    """

    def __init__(
        self, io: IStoreIO, directory: str, file_size: int, batch_directory: str,
        batch_file_size: int,
    ) -> None:
        self.by_topic: Queues = {}
        self.files = QueueFiles(io, directory, file_size)
        self.batch_files = BatchQueueFiles(
            io, batch_directory, batch_file_size, self.files.open_files)
        #: Returns whether the queues of a topic are batch queues, or None for an unknown topic.
        self.is_batch_topic: Callable[[str], bool | None] = lambda topic: None
        #: The queues with entries in memory, the oldest first.
        self.dirty: dict[ConsumeQueue, None] = {}
        #: The total size of these entries in bytes.
        self.tail_bytes = 0
        #: Whether there are batch queues, in which a record may contain more than one message.
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
        """Return the files for queues of this kind."""
        return self.batch_files if isinstance(queue, BatchQueue) else self.files

    def is_batch(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue is a batch queue, or would be one if it existed."""
        queue = self.find(topic, queue_id)
        return bool(self.is_batch_topic(topic)) if queue is None else isinstance(queue, BatchQueue)

    def make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Create a queue of the kind that its topic has.

        :raises MessageIllegal: when the topic or the id cannot be the name of a directory, or when
            the topic has queues of the other kind.
        """
        if not can_be_directory(topic):
            raise MessageIllegal(f"{topic!r} cannot be a topic: it cannot name a directory")
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
        # Share one string object with the other tables of topics.
        queue = kind(sys.intern(topic), queue_id)
        _enter(queue, by_id)
        return queue

    # --- load

    def load(self, thorough: bool) -> None:
        """Find all queues and their ends.

        :param thorough: check each entry instead of trusting the files, as after a crash.
        :raises StoreDamaged: when a file has the wrong length or is missing, or when a topic has
            queues of the wrong kind.
        """
        for files in (self.files, self.batch_files):
            for queue in files.load_all():
                is_batch = files is self.batch_files
                by_id = self.by_topic.setdefault(queue.topic, {})
                should_be_batch = self.is_batch_topic(queue.topic)
                if is_batch and should_be_batch is None and (
                        ConsumeQueue in map(type, by_id.values())):
                    should_be_batch = False
                if should_be_batch is (not is_batch):
                    if queue.starts:
                        raise StoreDamaged(f"{files.queue_directory(queue)} exists, and "
                                           f"{_of_other_kind(queue.topic, should_be_batch)}")
                    continue
                self.has_batches = self.has_batches or is_batch
                _enter(queue, by_id)
                files.recover(queue, thorough)

    def furthest(self) -> ConsumeQueue | None:
        """Return the queue that contains the newest message of all queues."""
        return max(self, key=lambda queue: queue.max_physical, default=None)

    def cut(self, physical_offset: int) -> None:
        """Drop the entries of messages at or after a commit-log offset, in every queue."""
        for queue in self:
            if queue.max_physical > physical_offset:
                before = self.files.waiting_bytes(queue)
                self.files_of(queue).cut(queue, physical_offset)
                self.tail_bytes += self.files.waiting_bytes(queue) - before

    def correct_min_offsets(self, log_min_offset: int) -> None:
        """Move the beginning of every queue to its first message that is still in the log."""
        for queue in self:
            self.files_of(queue).correct_min_offset(queue, log_min_offset)

    def restart(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Empty a queue whose topic was deleted and created again, and set its next offset."""
        self._forget(queue)
        self.files_of(queue).destroy(queue)
        queue.begin_at(queue_offset)

    def destroy(self, topic: str) -> int:
        """Remove the queues of a topic and their files.

        :returns: the number of queues removed.
        """
        by_id = self.by_topic.pop(topic, {})
        self._remove(*by_id.values())
        return len(by_id)

    def expired(self, log_min_offset: int) -> list[ConsumeQueue]:
        """List the queues whose messages have all been removed from the commit log."""
        return [queue for queue in self
                if 0 <= queue.max_physical <= log_min_offset
                and queue.next_offset == queue.max_offset]

    def destroy_queue(self, queue: ConsumeQueue) -> None:
        """Remove one queue and its files; the next message in it gets offset 0."""
        by_id = self.by_topic[queue.topic]
        del by_id[queue.queue_id]
        if not by_id:
            del self.by_topic[queue.topic]
        self._remove(queue)

    def _remove(self, *queues: ConsumeQueue) -> None:
        """Remove queues that have left the table; a failing disk may leave files behind."""
        for queue in queues:
            queue.is_removed = True
        for queue in queues:
            self._forget(queue)
            self.files_of(queue).destroy(queue)

    def _forget(self, queue: ConsumeQueue) -> None:
        """Discard the entries of a queue that wait in memory."""
        self.tail_bytes -= self.files.waiting_bytes(queue)
        queue.tail.clear()
        self.dirty.pop(queue, None)

    # --- flush

    def write_tail(self, queue: ConsumeQueue) -> None:
        """Write the entries of one queue.

        :raises StoreFull, OSError: when the disk is full or fails; unwritten entries stay in
            memory.
        """
        before = self.files.waiting_bytes(queue)
        try:
            self.files_of(queue).write_tail(queue)
        finally:
            self.tail_bytes -= before - self.files.waiting_bytes(queue)

    @property
    def should_write(self) -> bool:
        """Whether enough entries wait in memory, over all queues, to write them."""
        worth_bytes = min(len(self.dirty) * QUEUE_TAIL_WORTH_BYTES, QUEUE_TAILS_FLUSH_BYTES_MAX)
        return self.tail_bytes >= max(worth_bytes, QUEUE_TAILS_FLUSH_BYTES)

    def begin_writing(self, size_min: int = 1) -> None:
        """Choose the queues for ``write_tails``: those with at least this many bytes in memory."""
        self._writing = [queue for queue in self.dirty if len(queue.tail) >= size_min]
        self._writing.reverse()

    def write_tails(self, count_max: int) -> bool:
        """Write the entries of some of the queues that ``begin_writing`` chose, the oldest first.

        :returns: whether all of them are written.
        :raises StoreFull, OSError: when the disk is full or fails; unwritten entries stay in
            memory.
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
        """Write the entries of all queues at once, during recovery and at the stop.

        :raises StoreFull, OSError: when the disk is full or fails; unwritten entries stay in
            memory.
        """
        self.begin_writing()
        self.write_tails(len(self._writing))

    @property
    def unsynced_count(self) -> int:
        """The number of files and queues whose newest entries are not durable."""
        return len(self.files.unsynced) + len(self.batch_files.unsynced) + len(self.dirty)

    def sync_job(self) -> QueueSync:
        """Make the job that puts all written entries on disk. Run it on a thread."""
        paths = self.files.unsynced | self.batch_files.unsynced
        self.files.unsynced, self.batch_files.unsynced = set(), set()
        if self.files.extensions is not None:
            paths |= self.files.extensions.unsynced
            self.files.extensions.unsynced = set()
        return QueueSync(self._io, paths)

    def rewrite(self, path: str) -> None:
        """Rewrite a file of a queue or of its extension, and have the next sync include it.

        :param path: may also be a directory, which only has to be synced again, or a removed file.
        :raises OSError: when the file cannot be read or written.
        """
        with suppress(FileNotFoundError, IsADirectoryError):
            self._io.rewrite(path)
        self.files.unsynced.add(path)

    # --- read

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first readable message of a queue; 0 without a queue."""
        queue = self.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last readable message of a queue; 0 without a queue."""
        queue = self.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def ids_by_topic(self) -> dict[str, list[int]]:
        """Return the topics that have queues, with the ids of the queues in ascending order."""
        return {topic: sorted(by_id) for topic, by_id in self.by_topic.items() if by_id}

    def last_message(self, topic: str) -> int:
        """Return the commit-log offset of the last byte of a topic's messages.

        :returns: that offset; negative when no message was dispatched since the start.
        """
        return max((queue.max_physical for queue in self.by_topic.get(topic, {}).values()),
                   default=-1) - 1

    def has_batch_queues(self, topic: str) -> bool:
        """Return whether the existing queues of a topic are batch queues."""
        return any(isinstance(queue, BatchQueue) for queue in self.by_topic.get(topic, {}).values())

    def is_empty_batch(self, topic: str, queue_id: int) -> bool:
        """Return whether nothing was ever stored in a queue that is, or would be, a batch queue."""
        return not self.max_offset(topic, queue_id) and self.is_batch(topic, queue_id)

    def commit_log_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the commit-log offset of a message; -1 when the queue has no such entry."""
        queue = self.find(topic, queue_id)
        entry = None if queue is None else self.files_of(queue).entry(queue, queue_offset)
        return -1 if entry is None else entry[0]

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> list[tuple[int, int, int]]:
        """Read entries of a queue: (commit-log offset, size, tags code).

        When the extension unit of an entry is missing, its address stays in place of the tags code.

        :returns: fewer entries than wanted where a file or the queue ends; none outside the queue.
        """
        entries, _ = self.extended_entries(topic, queue_id, queue_offset, max_count)
        return [entry if unit is None else (entry[0], entry[1], unit.tags_code)
                for entry, unit in entries]

    def extended_entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> tuple[list[tuple[tuple[int, int, int], ExtensionUnit | None]], int]:
        """Read entries of a queue as they are stored, each with its extension unit, if it has one.

        :returns: the entries, and the queue offset after them. In a batch queue this offset grows
            by more than the number of entries.
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
    """Add a queue to the queues of its topic."""
    sibling = next(iter(by_id.values()), None)
    queue.topic_part = topic_part(queue.topic) if sibling is None else sibling.topic_part
    by_id[queue.queue_id] = queue


def _of_other_kind(topic: str, is_batch: bool) -> str:
    """Return a text stating that the queues of a topic are of the wrong kind."""
    kind, other = ("BatchCQ", "SimpleCQ") if is_batch else ("SimpleCQ", "BatchCQ")
    return f"the queues of topic {topic} are {other}, its queue.type is {kind}"
