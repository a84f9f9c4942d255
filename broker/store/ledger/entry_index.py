"""The index of a ledger: a unit of 32 bytes for each entry, which finds the entry by its index.

The unit of entry n is at byte 32 * n of the index, which is divided into files like the log. Units
are written with each append. They are synced later with the consume queues, because recovery
rebuilds them from the heads in the log, and a unit that the log does not confirm is never used.

Source: DLedgerMmapFileStore, DLedgerIndexEntry @dledger-0.3.1.2.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct

from twistmq.broker.store.entry_heads import UNIT, UNIT_SIZE
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.segment_files import OpenFiles, list_segments, segment_path
from twistmq.protocol.errors import StoreError

__all__ = ["INDEX_FILE_SIZE", "EntryIndex", "EntryUnit"]

#: The length of each file in bytes. Apache's members cannot change it.
INDEX_FILE_SIZE: Final = 5 * 1024 * 1024 * UNIT_SIZE
_OPEN_FILES_MAX: Final = 8
_MAGIC: Final = 1


class EntryUnit(Struct, frozen=True, gc=False):
    """The place of an entry in the log, its size in bytes, and its term."""

    position: int
    size: int
    index: int
    term: int

    @property
    def end(self) -> int:
        """The offset in the log after the entry."""
        return self.position + self.size


class EntryIndex:
    """The index files of one ledger.

    :param file_size: the length of each file in bytes, a multiple of the size of a unit.
    """

    def __init__(self, io: IStoreIO, directory: str, file_size: int = INDEX_FILE_SIZE) -> None:
        assert file_size % UNIT_SIZE == 0, file_size
        self.directory = directory
        self._io = io
        self._file_size = file_size
        self._files = OpenFiles(io, _OPEN_FILES_MAX)
        #: The start offsets of the files, in bytes of the index.
        self._starts: list[int] = []
        #: Files and the directory that have changed since the last sync.
        self._unsynced: set[str] = set()
        self._failure: StoreError | None = None

    def load(self) -> None:
        """Find the files. The index does not know the entries before the first file.

        :raises StoreDamaged: when a file has the wrong length, or is missing between others.
        """
        self._io.make_directory(self.directory)
        self._starts = list_segments(self._io, self.directory, self._file_size)
        self._unsynced.add(self.directory)

    # --- reading

    def unit(self, index: int) -> EntryUnit | None:
        """Return the unit of an entry; None when the index does not have it."""
        units = self.units(index, 1)
        return units[0] if units else None

    def units(self, first: int, count: int) -> list[EntryUnit]:
        """Return the units of consecutive entries, up to the first one that the index lacks."""
        data = self.read(first, count)
        units: list[EntryUnit] = []
        for magic, position, size, index, term in UNIT.iter_unpack(
                data[: len(data) - len(data) % UNIT_SIZE]):
            if magic != _MAGIC or index != first + len(units):
                break
            units.append(EntryUnit(position, size, index, term))
        return units

    def read(self, first: int, count: int) -> bytes:
        """Read the units of consecutive entries; fewer when the files do not contain all of
        them."""
        parts: list[bytes] = []
        offset, end = first * UNIT_SIZE, (first + count) * UNIT_SIZE
        while offset < end and self._starts and (
                self._starts[0] <= offset < self._starts[-1] + self._file_size):
            start = offset - offset % self._file_size
            size = min(end, start + self._file_size) - offset
            file = self._files.open(segment_path(self.directory, start))
            parts.append(file.read_at(offset - start, size))
            offset += size
        return b"".join(parts)

    def has_room_for(self, index: int) -> bool:
        """Return whether the unit of an entry can be written without a gap between files."""
        offset = index * UNIT_SIZE
        return not self._starts or (
            self._starts[0] <= offset <= self._starts[-1] + self._file_size)

    # --- writing

    def write(self, first: int, units: bytes | bytearray) -> None:
        """Write the units of consecutive entries.

        :raises StoreFull: when the disk is full; some units may be written.
        :raises StoreError: when the disk fails.
        """
        offset, at = first * UNIT_SIZE, 0
        try:
            while at < len(units):
                start = offset - offset % self._file_size
                size = min(len(units) - at, start + self._file_size - offset)
                path = segment_path(self.directory, start)
                if not self._starts or start > self._starts[-1]:
                    file = self._files.allocate(path, self._file_size)
                    self._starts.append(start)
                    self._unsynced.add(self.directory)
                else:
                    file = self._files.open(path)
                file.write_at(offset - start, units[at : at + size])
                self._unsynced.add(path)
                offset += size
                at += size
        except OSError as error:
            raise StoreError(f"the entry index cannot be written: {error}") from error

    def write_different(self, first: int, units: bytes) -> None:
        """Write the units of consecutive entries that differ from the units in the files.

        :raises StoreError: as ``write`` does.
        """
        if self.read(first, len(units) // UNIT_SIZE) != units:
            self.write(first, units)

    def cut_job(self, index: int) -> Callable[[], None]:
        """Clear the units from an entry on. The work on the disk is left to a job.

        Until the job is done, no unit may be written, and those from this entry on may not be read.

        :returns: the job, for a thread.
        """
        offset = index * UNIT_SIZE
        removed: list[str] = []
        while self._starts and self._starts[-1] >= offset:
            path = segment_path(self.directory, self._starts.pop())
            self._files.close(path)
            self._unsynced.discard(path)
            self._unsynced.add(self.directory)
            removed.append(path)
        last = self._starts[-1] if self._starts else offset
        cleared = ""
        if self._starts and offset < last + self._file_size:
            cleared = segment_path(self.directory, last)
            self._unsynced.add(cleared)
        io = self._io

        def cut() -> None:
            for path in removed:
                io.remove(path)
            if cleared:
                io.clear_from(cleared, offset - last)

        return cut

    def start_over(self) -> None:
        """Remove every file.

        :raises OSError: when the disk fails.
        """
        self.start_over_job()()

    def start_over_job(self) -> Callable[[], None]:
        """Return a job that removes every file; see ``cut_job``."""
        cut, io = self.cut_job(0), self._io

        def start_over() -> None:
            cut()
            io.sync_path(self.directory)

        return start_over

    def drop_before(self, index: int) -> Callable[[], None] | None:
        """Remove from the index the files that contain only units before an entry.

        :returns: the function that closes and removes them; None without such files.
        """
        paths = []
        while len(self._starts) > 1 and self._starts[1] <= index * UNIT_SIZE:
            paths.append(segment_path(self.directory, self._starts.pop(0)))
        if not paths:
            return None
        files = [self._files.take(path) for path in paths]
        self._unsynced.difference_update(paths)
        self._unsynced.add(self.directory)
        io = self._io

        def remove() -> None:
            for path, file in zip(paths, files, strict=True):
                if file is not None:
                    file.close()
                io.remove(path)

        return remove

    # --- durability

    def sync_job(self) -> Callable[[], None]:
        """Return a job that makes all written units durable. Run it on a thread.

        Once a sync has failed, every later job raises StoreError as well: a successful sync would
        not prove that the earlier units are on disk. Only the next start rebuilds them.
        """
        paths, self._unsynced = sorted(self._unsynced), set()
        io = self._io

        def sync() -> None:
            if self._failure is not None:
                raise self._failure
            try:
                for path in paths:
                    # A file may have been removed since.
                    with suppress(FileNotFoundError):
                        io.sync_path(path)
            except OSError as error:
                self._failure = StoreError(f"the entry index cannot be flushed: {error}")
                raise self._failure from error

        return sync

    def close(self) -> None:
        """Close every file."""
        self._files.close_all()
