"""The files of all batch queues: ``batchconsumequeue/TOPIC/QUEUE_ID/START``, 300,000 entries each.

The position of an entry in the files is independent of its queue offsets, because one entry covers
all messages of a batch. To find the entry of an offset, the search first selects the file by its
first offset, which is known, and then does a binary search in that file.

Source: BatchConsumeQueue, ConsumeQueueStore @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from twistmq.broker.store.batch_queue import (
    BATCH_ENTRY,
    BATCH_ENTRY_SIZE,
    BatchQueue,
    entry_before,
)
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.queue_files import QueueFiles
from twistmq.broker.store.queue_folders import list_queues
from twistmq.broker.store.segment_files import list_segments, segment_path

__all__ = ["BatchQueueFiles"]

#: The number of entries read at a time when a file is scanned.
_SCAN_ENTRIES: Final = 4096
#: The number of entries at which a binary search ends; these entries are then read at once.
_SEARCH_ENTRIES: Final = 64

BatchEntry = tuple[int, int, int, int, int, int, int, int]


class BatchQueueFiles(QueueFiles):
    """Reads and writes the entries of batch queues.

    :param directory: the ``batchconsumequeue`` directory.
    :param file_size: length of each file in bytes, a multiple of the size of an entry.
    """

    entry_size = BATCH_ENTRY_SIZE

    # --- writing

    def write_tail(self, queue: ConsumeQueue) -> int:
        """Write the entries that wait in memory. See QueueFiles.write_tail."""
        queue = _batch(queue)
        total = 0
        while queue.tail:
            position = queue.tail_index * BATCH_ENTRY_SIZE
            start = position - position % self.file_size
            path = segment_path(self.queue_directory(queue), start)
            data = bytes(queue.tail[: start + self.file_size - position])
            is_new = not queue.starts or start > queue.starts[-1]
            file = self._file_for_write(queue, path, start, 0)
            if is_new:
                queue.bases.append(BATCH_ENTRY.unpack_from(data)[4])
            file.write_at(position - start, data)
            del queue.tail[: len(data)]
            queue.tail_index += len(data) // BATCH_ENTRY_SIZE
            self.unsynced.add(path)
            total += len(data)
        assert len(queue.bases) == len(queue.starts), queue.topic
        return total

    # --- reading

    def read_again(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Read entries left by a crash. See QueueFiles.read_again."""
        queue = _batch(queue)
        index = self._file_of(queue, offset)
        if index >= 0:
            self.unsynced.add(segment_path(self.queue_directory(queue), queue.starts[index]))
        self._mark_directories(queue)
        return self.read(queue, offset, count) or b""

    def read(self, queue: ConsumeQueue, offset: int, count: int) -> bytes | None:
        """Read up to ``count`` entries, beginning with the one that contains an offset.

        :returns: fewer entries where a file or the queue ends. If no entry contains the offset, the
            first one is the next entry. None when the file of this offset has been removed.
        """
        queue = _batch(queue)
        if queue.tail and BATCH_ENTRY.unpack_from(queue.tail)[4] <= offset:
            at = _at_or_behind(queue.tail, offset) * BATCH_ENTRY_SIZE
            return bytes(queue.tail[at : at + count * BATCH_ENTRY_SIZE])
        index = self._file_of(queue, offset)
        if index < 0:
            return bytes(queue.tail[: count * BATCH_ENTRY_SIZE]) if not queue.starts else None
        number = self._find(queue, index, lambda entry: entry[4] + entry[5] <= offset)
        if number == self._entries_in(queue, index):
            # No entry contains the offset; the next entries begin in another file or in memory.
            if index + 1 < len(queue.starts):
                return self.read(queue, queue.bases[index + 1], count)
            return bytes(queue.tail[: count * BATCH_ENTRY_SIZE])
        data = self._read_file(queue, index, number, count)
        if index == len(queue.starts) - 1:
            data += queue.tail[: count * BATCH_ENTRY_SIZE - len(data)]
        return data

    def batch_entry(self, queue: ConsumeQueue, offset: int) -> BatchEntry | None:
        """Read the entry that contains an offset; None if it does not exist."""
        if not queue.min_offset <= offset < queue.max_offset:
            return None
        data = self.read(queue, offset, 1)
        return BATCH_ENTRY.unpack(data) if data else None

    def entry(self, queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
        """Read one entry: (physical offset, size, tags code); None if it does not exist."""
        entry = self.batch_entry(queue, offset)
        return None if entry is None else entry[:3]

    def entries(
        self, queue: ConsumeQueue, offset: int, count: int
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Read up to ``count`` entries. See QueueFiles.entries."""
        entries = list(BATCH_ENTRY.iter_unpack(self.read(queue, offset, count) or b""))
        if entries:
            offset = entries[-1][4] + entries[-1][5]
        return [entry[:3] for entry in entries], offset

    def offset_by_time(self, queue: BatchQueue, timestamp: int, upper: bool) -> int:
        """Find a queue offset by store time. See QueueReader.offset_by_time.

        Differs from Apache, whose search returns 0 when the time lies between two entries.
        """

        def is_before(entry: BatchEntry) -> bool:
            return entry[3] < timestamp or (upper and entry[3] == timestamp)

        last, behind = queue.min_offset, queue.max_offset
        for index in range(len(queue.starts)):
            number = self._find(queue, index, is_before)
            if number:
                last = BATCH_ENTRY.unpack(self._read_file(queue, index, number - 1, 1))[4]
            if number < self._entries_in(queue, index):
                behind = BATCH_ENTRY.unpack(self._read_file(queue, index, number, 1))[4]
                break
        else:
            for entry in BATCH_ENTRY.iter_unpack(queue.tail):
                if not is_before(entry):
                    behind = entry[4]
                    break
                last = entry[4]
        return max(last if upper else behind, queue.min_offset)

    def _file_of(self, queue: BatchQueue, offset: int) -> int:
        """Return the index of the file that contains an offset; -1 if it precedes all files."""
        for index in range(len(queue.bases) - 1, -1, -1):
            if queue.bases[index] <= offset:
                return index
        return -1

    def _entries_in(self, queue: BatchQueue, index: int) -> int:
        """Return the number of entries in a file."""
        whole = self.file_size // BATCH_ENTRY_SIZE
        return min(whole, queue.tail_index - queue.starts[index] // BATCH_ENTRY_SIZE)

    def _read_file(self, queue: BatchQueue, index: int, number: int, count: int) -> bytes:
        """Read some entries of a file, fewer where they end."""
        count = min(count, self._entries_in(queue, index) - number)
        file = self._files.open(segment_path(self.queue_directory(queue), queue.starts[index]))
        return file.read_at(number * BATCH_ENTRY_SIZE, count * BATCH_ENTRY_SIZE)

    def _find(
        self, queue: BatchQueue, index: int, is_before: Callable[[BatchEntry], bool]
    ) -> int:
        """Find the first entry of a file for which ``is_before`` is false."""
        low, high = 0, self._entries_in(queue, index)
        while high - low > _SEARCH_ENTRIES:
            middle = (low + high) // 2
            if is_before(BATCH_ENTRY.unpack(self._read_file(queue, index, middle, 1))):
                low = middle + 1
            else:
                high = middle
        for entry in BATCH_ENTRY.iter_unpack(self._read_file(queue, index, low, high - low)):
            if not is_before(entry):
                break
            low += 1
        return low

    # --- loading

    def load_all(self) -> Iterator[ConsumeQueue]:
        """Find every queue that has a directory. See QueueFiles.load_all."""
        for topic, queue_id in list_queues(self._io, self.directory):
            queue = BatchQueue(topic, queue_id)
            queue.starts = list_segments(self._io, self.queue_directory(queue), self.file_size)
            yield queue

    def recover(self, queue: ConsumeQueue, thorough: bool) -> None:
        """Find where the entries of a queue end. See QueueFiles.recover.

        Differs from Apache: after a crash all files are checked, not only the last three. A hole in
        an earlier file would mislead every binary search.
        """
        queue = _batch(queue)
        starts = queue.starts
        if not starts:
            return
        queue.bases = [self._first_base(queue, start) for start in starts]
        per_file = self.file_size // BATCH_ENTRY_SIZE
        end = 0
        first = 0 if thorough else len(starts) - 1
        for index in range(first, len(starts)):
            queue.tail_index = starts[index] // BATCH_ENTRY_SIZE + per_file
            if thorough:
                count, end = self._count_valid(queue, index, end)
            else:
                count = self._find(queue, index, _is_written)
            queue.tail_index += count - per_file
            if count < per_file:
                break
        self._end_at_index(queue, clear=thorough)
        queue.min_offset = queue.bases[0] if queue.bases else 0
        queue.next_offset = queue.end_offset

    def _first_base(self, queue: BatchQueue, start: int) -> int:
        """Return the first offset of the first entry of a file."""
        file = self._files.open(segment_path(self.queue_directory(queue), start))
        base: int = BATCH_ENTRY.unpack(file.read_at(0, BATCH_ENTRY_SIZE))[4]
        return base

    def _count_valid(self, queue: BatchQueue, index: int, end: int) -> tuple[int, int]:
        """Count the valid entries at the beginning of a file, whose offsets must ascend.

        :param end: the offset after the last entry of the previous file.
        :returns: the number of entries, and the offset after the last one.
        """
        count = 0
        while data := self._read_file(queue, index, count, _SCAN_ENTRIES):
            for entry in BATCH_ENTRY.iter_unpack(data):
                if not _is_written(entry) or entry[4] < end:
                    return count, end
                end = entry[4] + entry[5]
                count += 1
        return count, end

    def _end_at_index(self, queue: BatchQueue, clear: bool) -> None:
        """End the files, and the queue with them, before entry number ``tail_index``.

        :param clear: fill the rest of the last file with zeros.
        """
        assert not queue.tail, queue.topic
        self._drop_files(queue, queue.tail_index * BATCH_ENTRY_SIZE)
        del queue.bases[len(queue.starts) :]
        if queue.starts and queue.tail_index * BATCH_ENTRY_SIZE == queue.starts[-1]:
            # A file without an entry has no first offset; the next entry sets it.
            self._drop_files(queue, queue.starts[-1] - 1)
            queue.bases.pop()
        if clear and queue.starts:
            self._clear_behind(queue)
        if not queue.starts:
            queue.tail_index = 0
            queue.max_physical = -1
            return
        last = BATCH_ENTRY.unpack(self._read_file(
            queue, len(queue.starts) - 1, self._entries_in(queue, len(queue.starts) - 1) - 1, 1))
        queue.end_offset = last[4] + last[5]
        queue.max_physical = last[0] + last[1]

    # --- cutting

    def cut(self, queue: ConsumeQueue, physical_offset: int) -> None:
        """Drop the entries of records at or after an offset in the commit log."""
        queue = _batch(queue)
        queue.cut(physical_offset)
        if queue.tail:
            return
        for index in range(len(queue.starts) - 1, -1, -1):
            number = self._find(queue, index, lambda entry: entry[0] < physical_offset)
            if number < self._entries_in(queue, index):
                self._cut_to(queue, index, number)
            if number:
                break

    def cut_at(self, queue: ConsumeQueue, end: int) -> None:
        """Drop the entries from the one that contains an offset, in a queue with no entries in
        memory."""
        queue = _batch(queue)
        assert not queue.tail, queue.topic
        for index in range(max(self._file_of(queue, end), 0), len(queue.starts)):
            number = self._find(queue, index, lambda entry: entry[4] + entry[5] <= end)
            if number < self._entries_in(queue, index):
                self._cut_to(queue, index, number)
                break

    def _cut_to(self, queue: BatchQueue, index: int, number: int) -> None:
        """End the queue before one of its entries."""
        end = queue.tail_index
        queue.tail_index = queue.starts[index] // BATCH_ENTRY_SIZE + number
        assert queue.tail_index <= end, (queue.tail_index, end)
        if queue.tail_index == end:
            return
        file = self._files.open(segment_path(self.queue_directory(queue), queue.starts[index]))
        base = BATCH_ENTRY.unpack(
            file.read_at(number * BATCH_ENTRY_SIZE, BATCH_ENTRY_SIZE))[4]
        self._end_at_index(queue, clear=True)
        if not queue.starts:
            # The files are removed, but the queue keeps its offsets.
            queue.end_offset = queue.min_offset = base
        queue.next_offset = queue.end_offset

    def correct_min_offset(self, queue: ConsumeQueue, log_min_offset: int) -> None:
        """Move the beginning of the queue to its first record that is still in the commit log."""
        queue = _batch(queue)
        if queue.min_offset >= queue.max_offset:
            return
        if 0 <= queue.max_physical <= log_min_offset:
            queue.min_offset = queue.max_offset
            return
        first = self.batch_entry(queue, queue.min_offset)
        if first is not None and first[0] >= log_min_offset:
            return
        for index in range(len(queue.starts)):
            number = self._find(queue, index, lambda entry: entry[0] < log_min_offset)
            if number < self._entries_in(queue, index):
                kept_entry = BATCH_ENTRY.unpack(self._read_file(queue, index, number, 1))
                queue.min_offset = max(queue.min_offset, kept_entry[4])
                return
        for entry in BATCH_ENTRY.iter_unpack(queue.tail):
            if entry[0] >= log_min_offset:
                queue.min_offset = max(queue.min_offset, entry[4])
                return

    def remove_unreachable(self, queue: ConsumeQueue) -> list[str]:
        """Remove the files that end before the beginning of the queue. See QueueFiles."""
        queue = _batch(queue)
        directories: list[str] = []
        while len(queue.starts) > 1 and queue.bases[1] <= queue.min_offset:
            path = segment_path(self.queue_directory(queue), queue.starts[0])
            self._files.close(path)
            self.unsynced.discard(path)
            self._io.remove(path)
            del queue.starts[0], queue.bases[0]
            directories = [self.queue_directory(queue)]
        return directories

    def _clear_behind(self, queue: ConsumeQueue) -> None:
        """Fill the rest of the last file, after the last entry, with zeros."""
        position = _batch(queue).tail_index * BATCH_ENTRY_SIZE - queue.starts[-1]
        if position < self.file_size:
            path = segment_path(self.queue_directory(queue), queue.starts[-1])
            self._files.close(path)
            self._io.clear_from(path, position)
            self.unsynced.add(path)

    def destroy(self, queue: ConsumeQueue) -> None:
        """Remove a queue's files."""
        super().destroy(queue)
        _batch(queue).bases.clear()


def _batch(queue: ConsumeQueue) -> BatchQueue:
    """Return the queue as a batch queue."""
    assert isinstance(queue, BatchQueue), queue.topic
    return queue


def _is_written(entry: BatchEntry) -> bool:
    """Return whether the fields of an entry are valid."""
    return entry[0] >= 0 and entry[1] > 0 and entry[4] >= 0 and entry[5] > 0


def _at_or_behind(entries: bytes | bytearray, offset: int) -> int:
    """Return the number of the entry that contains an offset, or of the next one."""
    number = max(entry_before(entries, offset), 0)
    if number * BATCH_ENTRY_SIZE < len(entries):
        entry = BATCH_ENTRY.unpack_from(entries, number * BATCH_ENTRY_SIZE)
        if entry[4] + entry[5] <= offset:
            number += 1
    return number
