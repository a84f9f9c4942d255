"""The extensions of queues: ``consumequeue_ext/TOPIC/QUEUE_ID/START``, one unit per entry.

Units are created together with entries. They wait in memory like entries and are written before
them, so that no address on disk points at a missing unit. Like entries, they can be rebuilt from
the commit log. Existing files are kept consistent with the files of their queues even while new
units are switched off.

Source: ConsumeQueueExt, ConsumeQueue.putMessagePositionInfoWrapper @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from twisted.logger import Logger

from twistmq.broker.constants import OPEN_QUEUE_FILES_MAX
from twistmq.broker.store.append_fast_path import Queues
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.extension_fast_path import UnitFiles, extend_entries
from twistmq.broker.store.extension_reader import UnitReader
from twistmq.broker.store.extension_unit import (
    FILE_END,
    UNIT_SIZE_MIN,
    FilterBitmap,
    place_of,
)
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.segment_files import OpenFiles, list_segments, segment_path
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.record import MessageRecord

__all__ = ["QueueExtensions"]

#: The number of units that are read at a time.
_READ_UNITS: Final = 64


class QueueExtensions:
    """Reads and writes the units of all queues.

    :param directory: the ``consumequeue_ext`` directory.
    :param file_size: length of each file in bytes.
    :param bitmap_bits: the expected size of a bitmap in bits, which determines how much is read at
        a time.
    :param extends: whether new entries get units.
    """

    log = Logger()

    def __init__(
        self, io: IStoreIO, directory: str, file_size: int, bitmap_bits: int, extends: bool
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.extends = extends
        #: The number of bytes that are read at a time.
        self._read_size = _READ_UNITS * (UNIT_SIZE_MIN + bitmap_bits // 8)
        #: The paths written since the last thorough flush.
        self.unsynced: set[str] = set()
        self._io = io
        self._open = OpenFiles(io, min(OPEN_QUEUE_FILES_MAX, max(1, io.open_files_max() // 4)))
        self._by_queue: dict[ConsumeQueue, UnitFiles] = {}
        self._logged_texts: set[str] = set()

    # --- entering

    def extend(
        self, records: Iterable[MessageRecord], queues: Queues, make_bitmap: FilterBitmap | None
    ) -> int:
        """Create the units of the entries that were just made for these records.

        :param make_bitmap: computes the bitmaps; with None, units have no bitmaps.
        :returns: the size of the new units in bytes.
        """
        return extend_entries(
            records, queues, self._files, self.file_size, make_bitmap, self._say_too_long)

    def _say_too_long(self, queue: ConsumeQueue, size: int) -> None:
        self._say_once(f"{queue.topic}: a bitmap of {size} bytes does not fit, so its entry "
                       "has no unit")

    def _files(self, queue: ConsumeQueue) -> UnitFiles:
        """Return the extension of a queue. A new queue has an empty one, even when its directory
        has files."""
        files = self._by_queue.get(queue)
        if files is None:
            files = self._by_queue[queue] = UnitFiles(self._directory(queue))
            self._io.remove(files.directory)
        return files

    def _directory(self, queue: ConsumeQueue) -> str:
        return f"{self.directory}/{queue.topic}/{queue.queue_id}"

    # --- writing

    def waiting_bytes(self, queue: ConsumeQueue) -> int:
        """Return the size of the units that are not written yet, in bytes."""
        files = self._by_queue.get(queue)
        return 0 if files is None else len(files.tail)

    def write_tail(self, queue: ConsumeQueue) -> None:
        """Write the units that wait in memory.

        :raises StoreFull: when the disk is full; unwritten units stay in memory.
        :raises OSError: when the disk fails; unwritten units stay in memory.
        """
        files = self._by_queue.get(queue)
        if files is None:
            return
        while files.tail:
            position = files.tail_start
            start = position - position % self.file_size
            data = bytes(files.tail[: start + self.file_size - position])
            path = segment_path(files.directory, start)
            if start not in files.starts[-1:]:
                self._make_file(files, start)
            self._open.open(path).write_at(position - start, data)
            self.unsynced.add(path)
            del files.tail[: len(data)]
            files.tail_start += len(data)

    def _make_file(self, files: UnitFiles, start: int) -> None:
        """Create the file that starts here, and any earlier files that were lost."""
        if not files.starts:
            self._io.make_directory(files.directory)
        self._mark_directories(files)
        following = files.starts[-1] + self.file_size if files.starts else start
        for each in range(following, start + 1, self.file_size):
            path = segment_path(files.directory, each)
            self._open.allocate(path, self.file_size)
            self.unsynced.add(path)
            files.starts.append(each)

    def _mark_directories(self, files: UnitFiles) -> None:
        """Make the next thorough flush sync the names of the files as well."""
        path = files.directory
        for _ in range(4):
            self.unsynced.add(path)
            path = path.rpartition("/")[0] or "/"

    # --- reading

    def reader(self, queue: ConsumeQueue, again: bool = False) -> UnitReader:
        """Return a reader for one sequential pass over the units of a queue.

        :param again: read units that a crash left, see ``read_again``.
        """
        read = self.read_again if again else self.read
        return UnitReader(lambda position, size: read(queue, position, size), self._read_size)

    def read(self, queue: ConsumeQueue, position: int, size: int) -> bytes:
        """Read from a position on: fewer bytes where a file ends, and none after the last unit."""
        files = self._by_queue.get(queue)
        if files is None:
            return b""
        if position >= files.tail_start:
            at = position - files.tail_start
            return bytes(files.tail[at : at + size])
        start = position - position % self.file_size
        if start not in files.starts:
            return b""
        size = min(size, start + self.file_size - position)
        file = self._open.open(segment_path(files.directory, start))
        return file.read_at(position - start, size)

    def read_again(self, queue: ConsumeQueue, position: int, size: int) -> bytes:
        """Read units left by a crash, which may not be durable; the next flush syncs them."""
        files = self._by_queue.get(queue)
        if files is not None:
            self.unsynced.add(segment_path(files.directory, position - position % self.file_size))
            self._mark_directories(files)
        return self.read(queue, position, size)

    # --- beginnings and ends

    def settle(self, queue: ConsumeQueue, last_address: int | None, thorough: bool) -> None:
        """Find where the units of a queue end, and remove everything after that point.

        :param last_address: the address of the last unit of the queue; None when none of its last
            entries has a unit.
        :param thorough: clear remaining bytes after the end, as after a crash.
        :raises StoreDamaged: when a file has the wrong length or is missing while units are
            enabled.
        """
        files = self._by_queue.get(queue)
        if files is None:
            files = UnitFiles(self._directory(queue))
            try:
                files.starts = list_segments(self._io, files.directory, self.file_size)
            except StoreDamaged as error:
                if self.extends:
                    raise
                self._say_once(f"extensions are switched off, and some cannot be read: {error}")
                return
            self._by_queue[queue] = files
        files.tail.clear()
        end = files.tail_start = files.starts[-1] + self.file_size if files.starts else 0
        if last_address is not None:
            position = place_of(last_address)
            unit = self.reader(queue).unit(last_address)
            if unit is not None:
                end = position + unit.size
            elif position >= end:
                # Its file is lost. No new unit may get an address that an existing entry already
                # contains.
                end = position - position % self.file_size + self.file_size
        elif queue.tail_start == queue.min_offset:
            # No entry points at a unit.
            end = 0
        self._drop(files, end)
        files.tail_start = end
        if files.starts and end < files.starts[-1] + self.file_size and (
            thorough or self._has_excess(files)
        ):
            path = segment_path(files.directory, files.starts[-1])
            self._open.close(path)
            self._io.clear_from(path, end - files.starts[-1])
            self.unsynced.add(path)

    def _has_excess(self, files: UnitFiles) -> bool:
        """Return whether there are bytes after the last unit."""
        start = files.starts[-1]
        file = self._open.open(segment_path(files.directory, start))
        return any(file.read_at(files.tail_start - start, len(FILE_END)))

    def _drop(self, files: UnitFiles, end: int) -> None:
        """Remove the files that start at or after a position."""
        while files.starts and files.starts[-1] >= end:
            path = segment_path(files.directory, files.starts.pop())
            self._remove(path)
            self._mark_directories(files)

    def remove_before(self, queue: ConsumeQueue, address: int | None) -> str | None:
        """Remove the files that end before a unit, except the last file.

        :param address: the address of the first unit that is needed; None when no unit is needed.
        :returns: the directory if a file was removed.
        :raises OSError: when a file cannot be removed; it and the following files stay.
        """
        files = self._by_queue.get(queue)
        removed = False
        while files is not None and len(files.starts) > 1 and (
            address is None or files.starts[1] <= place_of(address)
        ):
            self._remove(segment_path(files.directory, files.starts[0]))
            del files.starts[0]
            removed = True
        return files.directory if files is not None and removed else None

    def _remove(self, path: str) -> None:
        self._open.close(path)
        self.unsynced.discard(path)
        self._io.remove(path)

    def destroy(self, queue: ConsumeQueue) -> None:
        """Remove a queue's files."""
        files = self._by_queue.pop(queue, None)
        if files is not None:
            for start in files.starts:
                self._remove(segment_path(files.directory, start))
        self._io.remove(self._directory(queue))
        topic_directory = f"{self.directory}/{queue.topic}"
        if not self._io.list_directory(topic_directory):
            self._io.remove(topic_directory)

    def close(self) -> None:
        """Close every file."""
        self._open.close_all()

    def _say_once(self, text: str) -> None:
        if text not in self._logged_texts:
            self._logged_texts.add(text)
            self.log.warn("{text}", text=text)
