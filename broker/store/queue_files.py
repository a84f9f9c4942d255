"""The files of all consume queues: ``consumequeue/TOPIC/QUEUE_ID/START``, 300,000 entries each.

Only a limited number of them is open at a time, so that a broker can have tens of thousands of
queues. The waiting entries of a queue are written together; written entries are not durable until
the next thorough flush.

Source: ConsumeQueue, ConsumeQueueStore @5.3.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from twistmq.broker.constants import OPEN_QUEUE_FILES_MAX
from twistmq.broker.store.consume_queue import (
    ENTRY,
    ENTRY_SIZE,
    FILLER,
    FILLER_SIZE,
    ConsumeQueue,
)
from twistmq.broker.store.extension_unit import is_address
from twistmq.broker.store.interfaces import IStoreFile, IStoreIO
from twistmq.broker.store.queue_extension import QueueExtensions
from twistmq.broker.store.queue_folders import list_queues
from twistmq.broker.store.segment_files import (
    OpenFiles,
    list_segments,
    segment_path,
)

__all__ = ["QueueFiles"]

#: The number of files, counted from the last one, that a thorough recovery reads. Source:
#: ConsumeQueue.recover.
_RECOVER_FILES = 3
#: The number of entries of a file that are read first. On a broker with many queues, most queues
#: have fewer.
_FEW_ENTRIES = 64
#: The number of entries read at a time when a queue is scanned.
_SCAN_ENTRIES = 4096


class QueueFiles:
    """Reads and writes the entries of queues.

    :param directory: the ``consumequeue`` directory.
    :param file_size: length of each file in bytes, a multiple of the size of an entry.
    :param open_files: the open files of another object that shares the limit; None creates separate
        ones.
    """

    #: The size of an entry in bytes.
    entry_size = ENTRY_SIZE

    def __init__(
        self, io: IStoreIO, directory: str, file_size: int, open_files: OpenFiles | None = None
    ) -> None:
        assert file_size % self.entry_size == 0, file_size
        self.directory = directory
        self.file_size = file_size
        #: The paths written since the last thorough flush.
        self.unsynced: set[str] = set()
        #: The extension units of the entries; None when entries have no units.
        self.extensions: QueueExtensions | None = None
        self._io = io
        #: The files that are open.
        self.open_files = self._files = open_files or OpenFiles(
            io, min(OPEN_QUEUE_FILES_MAX, io.open_files_max() // 2))

    def queue_directory(self, queue: ConsumeQueue) -> str:
        """Return the directory that holds the files of a queue."""
        return f"{self.directory}/{queue.topic}/{queue.queue_id}"

    # --- writing

    def waiting_bytes(self, queue: ConsumeQueue) -> int:
        """Return the size of the entries and extension units that wait in memory."""
        size = len(queue.tail)
        return size if self.extensions is None else size + self.extensions.waiting_bytes(queue)

    def write_tail(self, queue: ConsumeQueue) -> int:
        """Write the entries that wait in memory, after the extension units that they point at.

        :returns: the number of bytes written.
        :raises StoreFull: when the disk is full; unwritten entries stay in memory.
        :raises OSError: when the disk fails; unwritten entries stay in memory.
        """
        total = 0
        if self.extensions is not None:
            self.extensions.write_tail(queue)
        while queue.tail:
            position = queue.tail_start * ENTRY_SIZE
            start = position - position % self.file_size
            path = segment_path(self.queue_directory(queue), start)
            data = bytes(queue.tail[: start + self.file_size - position])
            file = self._file_for_write(queue, path, start, position - start)
            file.write_at(position - start, data)
            del queue.tail[: len(data)]
            queue.tail_start += len(data) // ENTRY_SIZE
            self.unsynced.add(path)
            total += len(data)
        return total

    def _file_for_write(
        self, queue: ConsumeQueue, path: str, start: int, blank: int
    ) -> IStoreFile:
        """Open the file that starts here; a new file gets fillers up to its first entry."""
        if queue.starts and queue.starts[0] <= start <= queue.starts[-1]:
            return self._files.open(path)
        if not queue.starts:
            self._io.make_directory(self.queue_directory(queue))
        self._mark_directories(queue)
        file = self._files.allocate(path, self.file_size)
        if blank:
            file.write_at(0, FILLER * (blank // ENTRY_SIZE))
        queue.starts.append(start)
        return file

    def _mark_directories(self, queue: ConsumeQueue) -> None:
        """Make the next thorough flush sync the names of a queue's files as well."""
        path = self.queue_directory(queue)
        for _ in range(4):
            self.unsynced.add(path)
            path = path.rpartition("/")[0] or "/"

    # --- reading

    def read_again(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Read entries left by a crash, which may not be durable, and have the next flush sync
        them."""
        position = offset * ENTRY_SIZE
        start = position - position % self.file_size
        self.unsynced.add(segment_path(self.queue_directory(queue), start))
        self._mark_directories(queue)
        return self.read(queue, offset, count) or b""

    def read(self, queue: ConsumeQueue, offset: int, count: int) -> bytes | None:
        """Read up to ``count`` entries from an offset on, fewer where a file or the queue ends.

        :returns: the bytes of the entries; None when the file of this offset has been removed.
        """
        if offset >= queue.tail_start:
            at = (offset - queue.tail_start) * ENTRY_SIZE
            return bytes(queue.tail[at : at + count * ENTRY_SIZE])
        position = offset * ENTRY_SIZE
        start = position - position % self.file_size
        if not queue.starts or not queue.starts[0] <= start <= queue.starts[-1]:
            return None
        written = min(count, queue.tail_start - offset)
        written = min(written, (start + self.file_size - position) // ENTRY_SIZE)
        file = self._files.open(segment_path(self.queue_directory(queue), start))
        data = file.read_at(position - start, written * ENTRY_SIZE)
        if written < count and offset + written == queue.tail_start:
            data += queue.tail[: (count - written) * ENTRY_SIZE]
        return data

    def entry(self, queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
        """Read one entry: (physical offset, size, tags code); None if it does not exist."""
        if not queue.min_offset <= offset < queue.max_offset:
            return None
        data = self.read(queue, offset, 1)
        return ENTRY.unpack(data) if data is not None and len(data) == ENTRY_SIZE else None

    def entries(
        self, queue: ConsumeQueue, offset: int, count: int
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Read up to ``count`` entries.

        :returns: (physical offset, size, tags code) of each entry, and the queue offset after the
            last one.
        """
        entries = list(ENTRY.iter_unpack(self.read(queue, offset, count) or b""))
        return entries, offset + len(entries)

    # --- loading

    def load_all(self) -> Iterator[ConsumeQueue]:
        """Find every queue that has a directory. The queues are not recovered yet.

        :raises StoreDamaged: when a file has the wrong length or is missing.
        """
        for topic, queue_id in list_queues(self._io, self.directory):
            queue = ConsumeQueue(topic, queue_id)
            queue.starts = list_segments(self._io, self.queue_directory(queue), self.file_size)
            yield queue

    def recover(self, queue: ConsumeQueue, thorough: bool) -> None:
        """Find where the entries of a queue end, and remove the files after that point.

        :param thorough: check every entry of the last files, as after a crash. Otherwise entries
            are trusted to fill the last file from its start without a gap.
        """
        if queue.starts:
            self._find_end(queue, thorough)
        self._settle_extension(queue, thorough)

    def _find_end(self, queue: ConsumeQueue, thorough: bool) -> None:
        """Find the last entry, and remove everything after it."""
        starts = queue.starts
        per_file = self.file_size // ENTRY_SIZE
        first = max(0, len(starts) - _RECOVER_FILES) if thorough else len(starts) - 1
        for index in range(first, len(starts)):
            count = self._count_entries(queue, starts[index], thorough)
            queue.tail_start = starts[index] // ENTRY_SIZE + count
            if count < per_file:
                break
        self._drop_files(queue, queue.tail_start * ENTRY_SIZE)
        if not queue.tail_start:
            # The first message may have any offset; its file must then begin with fillers.
            self._drop_files(queue, -1)
        if thorough and starts:
            # A hole may hide entries after it, which must not reappear when it is filled.
            self._clear_behind(queue)
        queue.min_offset = starts[0] // ENTRY_SIZE if starts else queue.tail_start
        queue.next_offset = queue.tail_start
        queue.max_physical = self._last_physical(queue)

    def _count_entries(self, queue: ConsumeQueue, start: int, thorough: bool) -> int:
        """Count the valid entries at the beginning of a file."""
        file = self._files.open(segment_path(self.queue_directory(queue), start))
        per_file = self.file_size // ENTRY_SIZE
        count_in = _valid_entries if thorough else _trusted_entries
        data = file.read_at(0, min(_FEW_ENTRIES, per_file) * ENTRY_SIZE)
        count = count_in(data)
        if count and start == queue.starts[0]:
            physical_offset, size, _ = ENTRY.unpack_from(data)
            if size != FILLER_SIZE:
                queue.known_offset, queue.known_physical = start // ENTRY_SIZE, physical_offset
        if count < _FEW_ENTRIES:
            return count
        # Few queues have many entries, so one or two more reads find most ends.
        step = _FEW_ENTRIES
        while count < per_file and (thorough or step < _SCAN_ENTRIES):
            data = file.read_at(count * ENTRY_SIZE, step * ENTRY_SIZE)
            valid = count_in(data)
            count += valid
            if valid * ENTRY_SIZE < len(data):
                return count
            step = min(2 * step, _SCAN_ENTRIES)
        return bisect_left(range(per_file), True, count, key=lambda at: not _valid_entries(
            file.read_at(at * ENTRY_SIZE, ENTRY_SIZE)))

    def _last_physical(self, queue: ConsumeQueue) -> int:
        """Return the commit-log offset after the last message of a queue; -1 if it is empty."""
        last = self.entry(queue, queue.tail_start - 1)
        if last is None or last[1] == FILLER_SIZE:
            return -1
        return last[0] + last[1]

    def _settle_extension(self, queue: ConsumeQueue, thorough: bool) -> None:
        """End the extension with the unit of the last entry that has one.

        If none of the last few thousand entries has a unit, the extension continues in a new file.
        """
        if self.extensions is None:
            return
        codes: list[int] = []
        at = max(queue.min_offset, queue.tail_start - _SCAN_ENTRIES)
        while data := self.read(queue, at, queue.tail_start - at):
            codes += [code for _, _, code in ENTRY.iter_unpack(data) if is_address(code)]
            at += len(data) // ENTRY_SIZE
        # Addresses ascend. An address torn by a loss of power is smaller than the original one.
        self.extensions.settle(queue, max(codes, default=None), thorough)

    # --- cutting

    def cut(self, queue: ConsumeQueue, physical_offset: int) -> None:
        """Drop the entries of messages at or after an offset in the commit log."""
        queue.cut(physical_offset)
        if queue.tail:
            return
        end = queue.tail_start
        while end > queue.min_offset:
            begin = max(queue.min_offset, end - _SCAN_ENTRIES)
            begin = max(begin, end - 1 - (end - 1) * ENTRY_SIZE % self.file_size // ENTRY_SIZE)
            data = self.read(queue, begin, end - begin)
            if data is None:
                break
            keep = self._kept(data, physical_offset)
            end = begin + keep
            if keep:
                break
        if end < queue.tail_start:
            self.cut_at(queue, end)

    def cut_at(self, queue: ConsumeQueue, end: int) -> None:
        """Drop the entries from a queue offset on, in a queue that has no entries in memory."""
        assert not queue.tail, queue.topic
        queue.tail_start = queue.next_offset = end
        queue.known_offset = -1
        self._drop_files(queue, end * ENTRY_SIZE)
        if queue.starts:
            self._clear_behind(queue)
        queue.max_physical = self._last_physical(queue)
        self._settle_extension(queue, thorough=True)

    def _kept(self, data: bytes, physical_offset: int) -> int:
        """Return the number of entries before the trailing run of entries at or after an offset."""
        count = len(data) // ENTRY_SIZE
        while count:
            offset, size, _ = ENTRY.unpack_from(data, (count - 1) * ENTRY_SIZE)
            if offset < physical_offset and size != FILLER_SIZE:
                break
            count -= 1
        return count

    def _drop_files(self, queue: ConsumeQueue, end: int) -> None:
        """Remove the files that start after a position."""
        directory = self.queue_directory(queue)
        count = len(queue.starts)
        while queue.starts and queue.starts[-1] > end:
            path = segment_path(directory, queue.starts.pop())
            self._files.close(path)
            self.unsynced.discard(path)
            self._io.remove(path)
        if len(queue.starts) < count:
            # Otherwise a removed file may reappear after a loss of power, and after a kill no one
            # expects it.
            self._io.sync_path(directory)

    def _clear_behind(self, queue: ConsumeQueue) -> None:
        """Fill the rest of the last file, after the last entry, with zeros."""
        # A killed process may have created the file without writing an entry that would reveal it.
        self._mark_directories(queue)
        position = queue.tail_start * ENTRY_SIZE - queue.starts[-1]
        if position < self.file_size:
            path = segment_path(self.queue_directory(queue), queue.starts[-1])
            self._io.clear_from(path, position)
            self.unsynced.add(path)

    def correct_min_offset(self, queue: ConsumeQueue, log_min_offset: int) -> None:
        """Move the beginning of the queue to its first message that is still in the commit log."""
        low, high = queue.min_offset, queue.max_offset
        if low >= high:
            return
        if 0 <= queue.max_physical <= log_min_offset:
            # All messages have been removed. This case must not open the files of thousands of idle
            # queues.
            queue.min_offset = high
            return
        if queue.known_offset == low and queue.known_physical >= log_min_offset:
            return
        first = self.entry(queue, low)
        if first is not None and first[0] >= log_min_offset and first[1] != FILLER_SIZE:
            queue.known_offset, queue.known_physical = low, first[0]
            return
        while low < high:
            middle = (low + high) // 2
            # A filler has no offset to compare, so the message after it decides.
            behind, physical_offset = self._first_message(queue, middle, high)
            if behind < high and physical_offset < log_min_offset:
                low = behind + 1
            else:
                high = middle
        queue.min_offset, first_physical = self._first_message(queue, low, queue.max_offset)
        queue.known_offset = -1 if first_physical < 0 else queue.min_offset
        queue.known_physical = first_physical

    def _first_message(self, queue: ConsumeQueue, begin: int, end: int) -> tuple[int, int]:
        """Find the first entry from ``begin`` on that is not a filler.

        :returns: the offset of the entry and the commit-log offset of its message; ``end`` and -1
            when there is no such entry before ``end``.
        """
        count = 1
        while begin < end:
            data = self.read(queue, begin, min(count, end - begin))
            if not data:
                # The file has been removed, and its entries with it.
                position = begin * ENTRY_SIZE
                begin = (position - position % self.file_size + self.file_size) // ENTRY_SIZE
                continue
            for physical_offset, size, _ in ENTRY.iter_unpack(data):
                if size != FILLER_SIZE:
                    return begin, physical_offset
                begin += 1
            count = _SCAN_ENTRIES
        return end, -1

    def remove_unreachable(self, queue: ConsumeQueue) -> list[str]:
        """Remove the files that end before the beginning of the queue, except the last file.

        :returns: the directories from which files were removed.
        :raises OSError: when a file cannot be removed; it and the following files stay.
        """
        directories: list[str] = []
        if self.extensions is not None:
            first = self.entry(queue, queue.min_offset)
            # An entry without a unit does not show which earlier units are still needed.
            if first is None or is_address(first[2]):
                extension = self.extensions.remove_before(queue, first and first[2])
                directories += [extension] if extension is not None else []
        while len(queue.starts) > 1 and queue.starts[1] <= queue.min_offset * ENTRY_SIZE:
            path = segment_path(self.queue_directory(queue), queue.starts[0])
            self._files.close(path)
            self.unsynced.discard(path)
            self._io.remove(path)
            del queue.starts[0]
            if self.queue_directory(queue) not in directories:
                directories.append(self.queue_directory(queue))
        return directories

    def destroy(self, queue: ConsumeQueue) -> None:
        """Remove a queue's files."""
        directory = self.queue_directory(queue)
        for start in queue.starts:
            self._files.close(segment_path(directory, start))
            self.unsynced.discard(segment_path(directory, start))
        self._io.remove(directory)
        topic_directory = f"{self.directory}/{queue.topic}"
        if not self._io.list_directory(topic_directory):
            self._io.remove(topic_directory)
        # The next thorough flush makes the removal durable.
        self.unsynced.update((topic_directory, self.directory))
        queue.starts.clear()
        queue.tail.clear()
        if self.extensions is not None:
            self.extensions.destroy(queue)

    def close(self) -> None:
        """Close every file."""
        self._files.close_all()
        if self.extensions is not None:
            self.extensions.close()


def _valid_entries(data: bytes) -> int:
    """Count the valid entries at the beginning of ``data``."""
    count = 0
    for physical_offset, size, _ in ENTRY.iter_unpack(data):
        if physical_offset < 0 or size <= 0:
            break
        count += 1
    return count


def _trusted_entries(data: bytes) -> int:
    """Count the valid entries at the beginning of ``data``, which must precede all invalid ones."""
    def is_behind(at: int) -> bool:
        physical_offset, size, _ = ENTRY.unpack_from(data, at * ENTRY_SIZE)
        return not (physical_offset >= 0 and size > 0)

    return bisect_left(range(len(data) // ENTRY_SIZE), True, key=is_behind)
