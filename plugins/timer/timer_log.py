"""The timer log: units one after another, in files of equal length in the folder ``timerlog``.

A unit never spans two files. Bytes are passed to the kernel at once and are made durable together
with the check point. All bytes after the last unit are zeros, because Apache's broker continues
after the last unit that it finds.

Source: TimerLog, MappedFileQueue.deleteExpiredFileByOffsetForTimerLog @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from twistmq.broker.api import StoreError
from twistmq.broker.api.errors import StoreFull
from twistmq.broker.api.store import IStoreFile, IStoreIO, OpenFiles, list_segments, segment_path
from twistmq.plugins.timer.log_unit import (
    BLANK_SIZE_MIN,
    UNIT_SIZE,
    LogUnit,
    decode_unit,
    encode_blank,
    encode_unit,
)

__all__ = ["TimerLog"]

#: The number of files that stay open, since waiting messages are looked up all over the log.
_OPEN_FILES_MAX: Final = 64
#: The number of bytes of units that a scan reads at once.
_SCAN_SIZE: Final = UNIT_SIZE * 4096


class TimerLog:
    """The files of one timer log.

    :param file_size: the size of each file, in bytes.
    """

    def __init__(self, io: IStoreIO, directory: str, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size
        #: Start positions of the files, ascending.
        self.starts: list[int] = []
        #: The position of the next unit.
        self.end = 0
        self._io = io
        self._files = OpenFiles(io, _OPEN_FILES_MAX)
        self._synced_end = 0
        self._directory_changed = False
        #: (position, size in bytes) of writes that failed and may have left data.
        self._failed: list[tuple[int, int]] = []

    @property
    def begin(self) -> int:
        """The position at which the first file starts."""
        return self.starts[0] if self.starts else 0

    def load(self) -> None:
        """Find the files; the caller sets the end of the log by :meth:`truncate`.

        :raises StoreDamaged: when a file has the wrong length or is missing.
        """
        self._io.make_directory(self.directory)
        self.starts = list_segments(self._io, self.directory, self.file_size)
        self.end = self._synced_end = self.starts[-1] + self.file_size if self.starts else 0
        self._directory_changed = True

    # --- writing

    def next_position(self, position: int) -> int:
        """Return the position of the unit after the one that ends at ``position``."""
        room = self.file_size - position % self.file_size
        return position if room >= UNIT_SIZE + BLANK_SIZE_MIN else position + room

    def write(self, units: Iterable[tuple[int, LogUnit]]) -> None:
        """Write units at the end: either all of them or none.

        :param units: each unit with its position. The position of the first one is
            ``next_position(end)``; the position of each other one follows from the unit before it.
        :raises StoreFull: when the disk is full; the log stays as it was.
        :raises StoreError: when the disk fails; the log stays as it was.
        """
        done: list[tuple[int, int]] = []
        try:
            self._erase_failed()
            for position, data in self._chunks(units):
                done.append((position, len(data)))
                start = position - position % self.file_size
                self._file_for_write(start).write_at(position - start, data)
        except OSError as error:
            self._failed += done
            raise StoreError(f"the timer log cannot be written: {error}") from error
        except StoreFull:
            self._failed += done
            raise
        if done:
            self.end = sum(done[-1])

    def _chunks(self, units: Iterable[tuple[int, LogUnit]]) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes to write and their positions, one piece for each file."""
        begin, chunk = self.end, bytearray()
        for position, unit in units:
            end = begin + len(chunk)
            if position != end:
                assert position == self.next_position(end), (position, end)
                yield begin, bytes(chunk + encode_blank(position - end))
                begin, chunk = position, bytearray()
            chunk += encode_unit(unit)
        if chunk:
            yield begin, bytes(chunk)

    def _file_for_write(self, start: int) -> IStoreFile:
        path = segment_path(self.directory, start)
        if self.starts and start <= self.starts[-1]:
            return self._files.open(path)
        file = self._files.allocate(path, self.file_size)
        self.starts.append(start)
        self._directory_changed = True
        return file

    def _erase_failed(self) -> None:
        """Overwrite the remains of failed writes with zeros, so that no scan finds units there."""
        for position, size in self._failed:
            start = position - position % self.file_size
            if self.starts and start <= self.starts[-1]:
                # If the disk has no room for the zeros, nothing was written there either.
                with suppress(StoreFull):
                    self._files.open(segment_path(self.directory, start)).write_at(
                        position - start, bytes(size))
        self._failed.clear()

    def sync_job(self) -> Callable[[], None]:
        """Make the job that makes all written bytes durable; run it on a thread."""
        first = self._synced_end - self._synced_end % self.file_size
        paths = [segment_path(self.directory, start) for start in self.starts
                 if first <= start < self.end]
        end, io = self.end, self._io
        directory = self.directory if self._directory_changed else None
        self._directory_changed = False

        def sync() -> None:
            try:
                for path in paths:
                    io.sync_path(path)
                if directory is not None:
                    io.sync_path(directory)
            except OSError:
                self._directory_changed |= directory is not None
                raise
            self._synced_end = max(self._synced_end, end)

        return sync

    # --- reading

    def unit(self, position: int) -> LogUnit | None:
        """Read the unit at a position; None if the position does not have one."""
        start = position - position % self.file_size
        if not self.begin <= position <= self.end - UNIT_SIZE:
            return None
        at = position - start
        data = self._files.open(segment_path(self.directory, start)).read_at(at, UNIT_SIZE)
        return decode_unit(data)

    def units(self, position: int, end: int) -> Iterator[tuple[int, LogUnit]]:
        """Read units in order, from a given one to the first position that does not have one.

        :param end: units at or after this position are not read.
        """
        while position < end and self.starts and position <= self.starts[-1] + self.file_size:
            start = position - position % self.file_size
            if start > self.starts[-1]:
                return
            file = self._files.open(segment_path(self.directory, start))
            room = min(end, start + self.file_size - BLANK_SIZE_MIN) - position
            data = file.read_at(position - start, min(_SCAN_SIZE, room - room % UNIT_SIZE))
            for at in range(0, len(data), UNIT_SIZE):
                unit = decode_unit(data[at:at + UNIT_SIZE])
                if unit is None:
                    return
                yield position + at, unit
            following = self.next_position(position + len(data))
            if following == position:
                return
            position = following

    def units_from_end(self) -> Iterator[tuple[int, LogUnit]]:
        """Read the units with their positions, the last one first."""
        per_file = (self.file_size - BLANK_SIZE_MIN) // UNIT_SIZE
        end = self.end
        while end > self.begin:
            start = (end - 1) - (end - 1) % self.file_size
            for number in reversed(range(min((end - start) // UNIT_SIZE, per_file))):
                position = start + number * UNIT_SIZE
                unit = self.unit(position)
                if unit is not None:
                    yield position, unit
            end = start

    # --- cutting and closing

    def truncate(self, end: int) -> None:
        """Make the log end here, durably: later bytes become zeros, and later files are removed."""
        removed = False
        while self.starts and self.starts[-1] >= end and self.starts[-1] > 0:
            path = segment_path(self.directory, self.starts.pop())
            self._files.close(path)
            self._io.remove(path)
            removed = True
        if removed:
            self._io.sync_path(self.directory)
        if self.starts and end < self.starts[-1] + self.file_size:
            path = segment_path(self.directory, self.starts[-1])
            self._files.close(path)
            self._io.clear_from(path, end - self.starts[-1])
            self._io.sync_path(path)
        self.resume(end)

    def resume(self, end: int) -> None:
        """Continue here: the log is durable up to this position, and only zeros follow."""
        self.end = self._synced_end = end

    def drop_first(self) -> None:
        """Remove the first file, which must not be the last one."""
        assert len(self.starts) > 1, self.starts
        path = segment_path(self.directory, self.starts.pop(0))
        self._files.close(path)
        self._io.remove(path)

    def last_unit_of_first_file(self) -> LogUnit | None:
        """Return the last unit of the first file, unless that is also the last file."""
        count = (self.file_size - BLANK_SIZE_MIN) // UNIT_SIZE
        return self.unit(self.begin + (count - 1) * UNIT_SIZE) if len(self.starts) > 1 else None

    def close(self) -> None:
        """Close every file."""
        self._files.close_all()
