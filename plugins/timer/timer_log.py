"""The timer log: units one after the other, in files of equal length below ``timerlog``.

No unit lies in two files. Bytes go to the kernel at once, and are made durable with the check
point. Behind the last unit all is zeros: Apache's broker goes on after the last unit it finds.

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

#: Files that stay open: waiting messages are looked up all over the log.
_OPEN_FILES_MAX: Final = 64
#: Bytes of units that a scan reads at once.
_SCAN_SIZE: Final = UNIT_SIZE * 4096


class TimerLog:
    """The files of one timer log.

    :param file_size: bytes of each file.
    """

    def __init__(self, io: IStoreIO, directory: str, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size
        #: Start positions of the files, ascending.
        self.starts: list[int] = []
        #: Where the next unit goes.
        self.end = 0
        self._io = io
        self._files = OpenFiles(io, _OPEN_FILES_MAX)
        self._synced_end = 0
        self._directory_changed = False
        #: (position, bytes) of writes that failed and may have left something.
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
        """The position of the unit after the one that ends at ``position``."""
        room = self.file_size - position % self.file_size
        return position if room >= UNIT_SIZE + BLANK_SIZE_MIN else position + room

    def write(self, units: Iterable[tuple[int, LogUnit]]) -> None:
        """Write units at the end, all or none.

        :param units: each with its position: of the first ``next_position(end)``, of each other
            that after the one before it.
        :raises StoreFull: when the disk is full; the log is as before.
        :raises StoreError: when the disk fails; the log is as before.
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
        """The bytes to write and their places, a piece for each file."""
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
        """Make zeros of what failed writes left: a scan must not take it for units."""
        for position, size in self._failed:
            start = position - position % self.file_size
            if self.starts and start <= self.starts[-1]:
                # Where there is no room for zeros, nothing was written either.
                with suppress(StoreFull):
                    self._files.open(segment_path(self.directory, start)).write_at(
                        position - start, bytes(size))
        self._failed.clear()

    def sync_job(self) -> Callable[[], None]:
        """Make the job that makes durable what is written up to now; run it on a thread."""
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
        """Read the unit at a position; None at a position without one."""
        start = position - position % self.file_size
        if not self.begin <= position <= self.end - UNIT_SIZE:
            return None
        at = position - start
        data = self._files.open(segment_path(self.directory, start)).read_at(at, UNIT_SIZE)
        return decode_unit(data)

    def units(self, position: int, end: int) -> Iterator[tuple[int, LogUnit]]:
        """Read units in their order, from one of them to the first place without one.

        :param end: no unit from here on is read.
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

    def units_from_end(self) -> Iterator[LogUnit]:
        """Read the units, the last one first."""
        per_file = (self.file_size - BLANK_SIZE_MIN) // UNIT_SIZE
        end = self.end
        while end > self.begin:
            start = (end - 1) - (end - 1) % self.file_size
            for number in reversed(range(min((end - start) // UNIT_SIZE, per_file))):
                unit = self.unit(start + number * UNIT_SIZE)
                if unit is not None:
                    yield unit
            end = start

    # --- cutting and closing

    def truncate(self, end: int) -> None:
        """End the log here, durably: bytes behind become zeros, files behind are removed."""
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
        """Go on here: the log is durable up to this place, and zeros are behind."""
        self.end = self._synced_end = end

    def drop_first(self) -> None:
        """Remove the first file, which is not the last."""
        assert len(self.starts) > 1, self.starts
        path = segment_path(self.directory, self.starts.pop(0))
        self._files.close(path)
        self._io.remove(path)

    def last_unit_of_first_file(self) -> LogUnit | None:
        """The last unit that lies in the first file, where that is not the last file."""
        count = (self.file_size - BLANK_SIZE_MIN) // UNIT_SIZE
        return self.unit(self.begin + (count - 1) * UNIT_SIZE) if len(self.starts) > 1 else None

    def close(self) -> None:
        """Close every file."""
        self._files.close_all()
