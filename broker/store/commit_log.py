"""The commit log: the messages of all topics, one after the other, in files of equal length.

A record never spans two files. When it does not fit, the file ends with a blank record and the next
file begins. Each append writes its bytes to the kernel with one ``write_at`` per file, and nothing
waits in memory here. Messages are read from a memory map, but ranges that may be holes are not, see
``peek``. Offsets are counted in bytes from the first file that the log ever had.

Source: CommitLog, MappedFileQueue @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from twisted.logger import Logger

from twistmq.broker.constants import LOG_OFFSET_MAX, OPEN_LOG_FILES_MAX
from twistmq.broker.errors import StoreFull
from twistmq.broker.store.entry_heads import EntryHeads
from twistmq.broker.store.interfaces import IStoreFile, IStoreIO, ReadMap
from twistmq.broker.store.segment_files import OpenFiles, list_segments, segment_path
from twistmq.protocol.errors import StoreDamaged, StoreError
from twistmq.protocol.record import (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_POSITION,
    record_size,
    record_store_timestamp,
)

__all__ = ["ROOM_SIZE", "CommitLog"]

#: The number of bytes that contain the store time of a record, for IPv4 and IPv6 hosts.
_HEAD_SIZE = STORE_TIMESTAMP_POSITION + 12 + 8
_MAGICS = frozenset(
    (magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)
)
_BLANK_MAGIC = (MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")
#: The first read of a record whose size is not known, in bytes. Most records fit into it.
_MOST_RECORDS_SIZE = 1024
#: The number of zero bytes written ahead of small writes that are synced soon, and the size up to
#: which a write counts as small.
ROOM_SIZE: Final = 256 << 10
_SMALL_WRITE_SIZE: Final = ROOM_SIZE >> 3


class CommitLog:
    """The files of one commit log.

    :param file_size: length of each file in bytes.
    :param syncs_soon: whether each write is followed by a sync that a sender waits for.
    """

    log = Logger()

    #: The size of the head in front of each record; 0 without heads.
    head_size: int = 0
    #: Makes the heads; None in a log without heads.
    framing: EntryHeads | None = None

    def __init__(
        self, io: IStoreIO, directory: str, file_size: int, syncs_soon: bool = False,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        #: Start offsets of the files, ascending.
        self.starts: list[int] = []
        #: The offset of the next record.
        self.max_offset = 0
        #: The log is on disk up to this offset.
        self.flushed_offset = 0
        #: The store time of the newest record, in ms.
        self.last_store_timestamp = 0
        #: Called with the start offset of a file before the log creates it.
        self.on_new_file: Callable[[int], None] = lambda start: None
        #: Recovery does not make messages readable that begin at or after this offset, because the
        #: replicas may not have agreed on them.
        self.confirmed_end = LOG_OFFSET_MAX
        self._syncs_soon = syncs_soon
        #: Zeros were written ahead up to this offset.
        self._room_end = 0
        self._io = io
        self._files = OpenFiles(io, OPEN_LOG_FILES_MAX, self._closed)
        self._directory_changed = False
        #: Files whose length has changed, by path. Nothing is read from them.
        self._cut: dict[str, StoreDamaged] = {}
        #: The paths of missing or truncated files that have been logged.
        self._logged_losses: set[str] = set()
        #: Removed files that a running sync still uses.
        self._removed: list[IStoreFile] = []
        #: The (offset, size) of failed writes, whose remains may still be in the files.
        self._failed: list[tuple[int, int]] = []
        #: The reason why written data no longer counts as durable.
        self._durability_error: StoreError | None = None
        self._map: ReadMap | None = None
        self._map_start = -1
        self._map_end = -1

    @property
    def record_size_max(self) -> int:
        """The size of the largest record that the log takes, in bytes."""
        return self.file_size - BLANK_SIZE_MIN

    @property
    def min_offset(self) -> int:
        """The offset at which the first file starts."""
        return self.starts[0] if self.starts else self.max_offset

    def load(self) -> None:
        """Find the files. Until recovery has found the end, all of them count as fully written.

        :raises StoreDamaged: when a file has the wrong length or is missing.
        """
        self._io.make_directory(self.directory)
        self.starts = list_segments(self._io, self.directory, self.file_size)
        self.max_offset = self.starts[-1] + self.file_size if self.starts else 0
        self.flushed_offset = self.max_offset
        # A file that was created for a failed write may exist without a durable name.
        self._directory_changed = True

    def check_heads(self, start: int) -> int:
        """Check that heads of records follow one another from an offset on, where one must begin.

        :returns: the offset at which the last of them ends; all that was written in a log without
            heads.
        """
        return self.max_offset

    def end_at(self, offset: int) -> None:
        """Note that recovery has found the end of the log here."""
        self.max_offset = self.flushed_offset = offset
        if self.starts:
            # Recovery has read beyond it.
            self._io.forget_cached(segment_path(self.directory, self.starts[-1]),
                                   max(0, offset - self.starts[-1]))

    # --- writing

    def write(self, writes: Sequence[tuple[int, bytes]]) -> None:
        """Write at the end of the log, all or nothing.

        :param writes: (offset, bytes) of each write. Each lies within one file, and the first one
            begins at ``max_offset``.
        :raises StoreFull: when the disk is full; the log is unchanged.
        :raises StoreError: when the disk fails; the log is unchanged.
        """
        assert writes[0][0] == self.max_offset, (writes[0][0], self.max_offset)
        if self._failed:
            self.erase_failed()
        done: list[tuple[int, int]] = []
        try:
            for offset, data in writes:
                start = offset - offset % self.file_size
                file = self._file_for_write(start)
                done.append((offset, len(data)))
                file.write_at(offset - start, data)
                if self._syncs_soon:
                    if offset + len(data) > self._room_end:
                        self._make_room(file, start, offset + len(data), len(data))
                    # The disk writes the bytes while queues and index are updated.
                    file.begin_sync(offset - start, len(data))
        except StoreError:
            self._erase(done)
            raise
        except OSError as error:
            self._erase(done)
            raise StoreError(f"the commit log cannot be written: {error}") from error
        self.max_offset = writes[-1][0] + len(writes[-1][1])

    def _file_for_write(self, start: int) -> IStoreFile:
        """Open the file that starts at this offset, and create it if it does not exist yet."""
        path = segment_path(self.directory, start)
        if self.starts and start <= self.starts[-1]:
            return self._open(path)
        self.on_new_file(start)
        file = self._files.allocate(path, self.file_size)
        self.starts.append(start)
        self._directory_changed = True
        return file

    def _make_room(self, file: IStoreFile, start: int, end: int, size: int) -> None:
        """Write zeros after a small write, so that syncs of the following writes need no metadata.

        Files are sparse. The first sync of each page also waits for the journal of the file system,
        which takes twice as long. A page that already holds zeros is like any other page. A hole
        also reads as zeros, so readers see no difference, even when only some of the zeros were
        written.
        """
        room = min(ROOM_SIZE, start + self.file_size - end) if size <= _SMALL_WRITE_SIZE else 0
        if room:
            # A full disk is reported by the append that needs the room.
            with suppress(StoreFull, OSError):
                file.write_at(end - start, bytes(room))
        self._room_end = end + room

    def _erase(self, done: list[tuple[int, int]]) -> None:
        """Make sure that no part of a failed write can be taken for a record after a kill."""
        self._failed = done
        for offset, _ in done:
            position = offset % self.file_size
            try:
                file = self._files.open(segment_path(self.directory, offset - position))
                file.write_at(position, bytes(min(BLANK_SIZE_MIN, self.file_size - position)))
            except (StoreError, OSError) as error:
                self.log.error(
                    "a failed write could not be erased at {offset}: {error}",
                    offset=offset,
                    error=error,
                )

    def erase_failed(self) -> None:
        """Overwrite the remains of failed writes with zeros and sync them. Blocks.

        This must happen before other bytes are written there. Otherwise a loss of power could
        combine sectors of both writes into one record, and the CRC would not notice because it
        covers only the body. It must also happen before a clean stop, because the next start does
        not know about the failed write.

        :raises StoreError: when the disk fails. After a failed sync the error is permanent.
        """
        if self._durability_error is not None:
            raise self._durability_error
        for offset, size in self._failed:
            start = offset - offset % self.file_size
            try:
                file = self._files.open(segment_path(self.directory, start))
                # If there is no room for the zeros, the failed write has written nothing either.
                with suppress(StoreFull):
                    file.write_at(offset - start, bytes(size))
            except OSError as error:
                raise StoreError(f"the commit log cannot be written: {error}") from error
            try:
                file.sync()
            except OSError as error:
                # Other records of this file may be lost as well, because no later sync covers them.
                self._durability_error = StoreError(f"the commit log cannot be flushed: {error}")
                raise self._durability_error from error
        self._failed.clear()

    # --- flushing

    def sync_job(self) -> Callable[[], None]:
        """Make the job that puts everything written so far on disk. Run it on a thread.

        Call ``synced`` when the job is done; until then its files stay open.

        :raises StoreError, OSError: when a file cannot be opened. No sync has begun in that case.
        """
        first = self.flushed_offset - self.flushed_offset % self.file_size
        paths = [
            segment_path(self.directory, start)
            for start in self.starts
            if first <= start < self.max_offset
        ]
        # Pin the files before opening them: there may be more than the limit of open files.
        self._files.pinned.update(paths)
        try:
            files = [self._open(path) for path in paths]
        except (StoreError, OSError):
            self._files.pinned.clear()
            raise
        directory = self.directory if self._directory_changed else None
        self._directory_changed = False
        io = self._io

        def sync() -> None:
            if self._durability_error is not None:
                raise self._durability_error
            for file in files:
                file.sync()
            if directory is not None:
                io.sync_path(directory)

        return sync

    def synced(self, offset: int) -> None:
        """Note that the log is on disk up to an offset."""
        self._files.pinned.clear()
        while self._removed:
            self._removed.pop().close()
        self.flushed_offset = max(self.flushed_offset, min(offset, self.max_offset))

    def companion_job(self) -> Callable[[], None] | None:
        """Make the job that puts on disk what belongs to the log and is synced with the queues.

        :returns: the job, for a thread; None when there is nothing beside the log.
        """
        return None

    def state_job(self) -> Callable[[], None] | None:
        """Make the job that saves how far the log was confirmed.

        :returns: the job, for a thread; None when nothing has to be saved.
        """
        return None

    # --- reading

    def read(self, offset: int, size: int) -> bytes | None:
        """Copy a range; None when part of it is not in the log, or it spans two files."""
        end = offset + size
        if not (self._map_start <= offset and end <= self._map_end):
            if offset < self.min_offset or offset < 0 or size <= 0:
                return None
            self._use_file(offset - offset % self.file_size)
            if not (self._map_start <= offset and end <= self._map_end):
                return None
        if end > self.max_offset or size <= 0:
            return None
        assert self._map is not None
        start = self._map_start
        return self._map[offset - start : end - start]

    def map_at(self, offset: int) -> tuple[ReadMap | None, int, int]:
        """Return the map of the file that contains an offset, and the range of the log that it
        covers.

        :returns: (map, begin, end). When the log does not contain the offset, it is the map of
            another file, or None.
        """
        if not self._map_start <= offset < self._map_end and offset >= self.min_offset:
            self._use_file(offset - offset % self.file_size)
        return self._map, self._map_start, min(self._map_end, self.max_offset)

    def peek(self, offset: int, size: int) -> bytes | None:
        """Copy a range that may contain holes; None in the same cases as ``read``.

        This does not use a map. On some file systems, such as tmpfs, reading a hole through a map
        allocates memory, and on a full file system that kills the process.
        """
        file = self._file_of(offset, size)
        return None if file is None else file.read_at(offset % self.file_size, size)

    def send_to(self, descriptor: int, offset: int, size: int) -> int:
        """Send a range to a socket, see IStoreFile.send_to.

        :returns: 0 when the log does not contain the range.
        """
        file = self._file_of(offset, size)
        return 0 if file is None else file.send_to(descriptor, offset % self.file_size, size)

    def _file_of(self, offset: int, size: int) -> IStoreFile | None:
        """Return the file that contains a range; None when it is not in the log, or not in one
        file."""
        start = offset - offset % self.file_size
        end = offset + size
        if not self.min_offset <= offset < end <= min(self.max_offset, start + self.file_size):
            return None
        if not self.starts or start > self.starts[-1]:
            return None
        return self._open(segment_path(self.directory, start))

    def read_record(self, offset: int) -> bytes | None:
        """Copy the record that starts at an offset; None when no record starts there."""
        room = min(self.max_offset - offset, self.file_size - offset % self.file_size)
        data = self.peek(offset, max(min(room, _MOST_RECORDS_SIZE), RECORD_SIZE_MIN))
        if data is None or data[4:8] not in _MAGICS:
            return None
        size = record_size(data)
        return data[:size] if 0 < size <= len(data) else self.peek(offset, size)

    def begins_at(self, offset: int) -> bool:
        """Return whether a record with this physical offset, or the blank record of a file, begins
        here."""
        head = self.peek(offset, BLANK_SIZE_MIN)
        if head is not None and head[4:] == _BLANK_MAGIC:
            return record_size(head) == self.next_file_start(offset) - offset
        record = self.read_record(offset)
        return record is not None and len(record) >= RECORD_SIZE_MIN and (
            int.from_bytes(record[PHYSICAL_OFFSET_POSITION:][:8], "big") == offset)

    def store_timestamp(self, offset: int) -> int:
        """Return the store time of the record at an offset, in ms; -1 without a record."""
        head = self.peek(offset, _HEAD_SIZE)
        if head is None or head[4:8] not in _MAGICS:
            return -1
        return record_store_timestamp(head)

    def file_timestamp(self, offset: int) -> int:
        """Return the store time of the first record of the file that contains an offset, in ms; -1
        without a record."""
        return self.store_timestamp(offset - offset % self.file_size + self.head_size)

    def newest_timestamp(self, otherwise_ms: int) -> int:
        """Return the store time of the last record, in ms.

        :param otherwise_ms: the result where the log cannot find its last record.
        """
        return otherwise_ms

    def next_file_start(self, offset: int) -> int:
        """Return the start of the file that follows the one with this offset."""
        return offset + self.file_size - offset % self.file_size

    def _use_file(self, start: int) -> None:
        """Use the file that starts at this offset for reads, if it exists."""
        index = (start - self.min_offset) // self.file_size
        if not self.starts or not 0 <= index < len(self.starts):
            return
        file = self._open(segment_path(self.directory, start))
        self._map = file.read_map()
        self._map_start = start
        self._map_end = start + self.file_size

    # --- files that other processes remove or truncate

    def _open(self, path: str) -> IStoreFile:
        """Open a file of the log, or return it if it is open.

        :raises StoreDamaged: when the file was removed or truncated.
        """
        if self._cut and path in self._cut:
            raise self._cut[path].with_traceback(None)
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            raise self._loss_error(path, "was removed or renamed") from None
        if file.size != self.file_size:
            raise self._loss_error(path, f"was cut to {file.size} bytes")
        return file

    def _loss_error(self, path: str, how: str) -> StoreDamaged:
        """Return an error that states how a file was lost; it is logged once per file."""
        error = StoreDamaged(f"the commit-log file {path} {how}")
        if path not in self._logged_losses:
            self._logged_losses.add(path)
            self.log.error("{error}: its messages cannot be read", error=str(error))
        return error

    def check_files(self) -> str:
        """Check that the open files are still at their paths and have the same length.

        Nothing is read from a truncated file any more, because touching a map beyond the end of its
        file kills the process. A file that was removed or renamed is read as long as it is open.

        :returns: how the file that is being written, or one that is not flushed, was lost; empty
            when they are intact. For other files the loss is only logged.
        """
        fault = ""
        for path, file in list(self._files):
            length = file.length()
            if length != self.file_size:
                how = f"was cut to {length} bytes"
            elif not file.is_there():
                how = "was removed, renamed or replaced"
            else:
                continue
            start = int(path.rpartition("/")[2])
            if start == self.starts[-1] or start + self.file_size > self.flushed_offset:
                fault = f"the commit-log file {path} {how}"
                self._logged_losses.add(path)
            if length != self.file_size and path not in self._cut:
                self._cut[path] = self._loss_error(path, how)
                self._closed(path)
            elif path not in self._logged_losses:
                self._logged_losses.add(path)
                self.log.error("the commit-log file {path} {how}", path=path, how=how)
        return fault

    # --- cutting and closing

    def drop_first(self) -> Callable[[], None] | None:
        """Remove the first file from the log, which then begins with the next one.

        :returns: the function that closes the file; None when it is not open. Closing takes long
            when most of the file is mapped, so run it on a thread, before the file is deleted.
        """
        assert len(self.starts) > 1, self.starts
        assert self.starts[1] <= self.flushed_offset, (self.starts[1], self.flushed_offset)
        path = segment_path(self.directory, self.starts.pop(0))
        assert path not in self._files.pinned, path
        file = self._files.take(path)
        return None if file is None else file.close

    def start_at(self, offset: int) -> None:
        """Move the beginning of an empty log to another offset, which must be the start of a file.

        :raises OSError: when a file without records cannot be removed.
        """
        assert self.max_offset == self.min_offset, (self.min_offset, self.max_offset)
        assert offset % self.file_size == 0, offset
        if self.starts:
            path = segment_path(self.directory, self.starts.pop())
            self._files.close(path)
            self._io.remove(path)
            self._io.sync_path(self.directory)
        self.max_offset = self.flushed_offset = self._room_end = offset

    def truncate(self, offset: int) -> None:
        """End the log at this offset: the bytes after it become zeros, and the files after it are
        removed.

        A running sync goes on. It covers nothing from this offset on, see ``CommitFlush.cut``.
        """
        self.cut_job(offset)()

    def cut_job(self, offset: int) -> Callable[[], None]:
        """End the log at this offset as ``truncate`` does, but leave the work on the disk to a job.

        Nothing may be written to the log before the job is done. After a crash that comes earlier,
        the log may still have what was cut, or the beginning of it.

        :returns: the job, for a thread.
        """
        # The last file goes first, so that an interruption never leaves a gap between files.
        removed = [start for start in reversed(self.starts) if start > offset]
        self.starts = [start for start in self.starts if start <= offset]
        for start in removed:
            self._forget_file(start)
        last = self.starts[-1] if self.starts else offset
        path = segment_path(self.directory, last)
        if self.starts and path not in self._files.pinned:
            self._files.close(path)
        is_cleared = bool(self.starts) and offset - last < self.file_size
        self._failed.clear()
        self.max_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        self._room_end = min(self._room_end, offset)
        io, directory = self._io, self.directory

        def cut() -> None:
            for start in removed:
                io.remove(segment_path(directory, start))
            if removed:
                # Otherwise one of them may reappear after a loss of power and follow newly written
                # bytes.
                io.sync_path(directory)
            if is_cleared:
                io.clear_from(path, offset - last)
                # Otherwise the old bytes may reappear after a loss of power, mixed with newly
                # written ones.
                io.sync_path(path)

        return cut

    def cut_later(self, offset: int) -> Callable[[], None]:
        """End the log, of which nothing after the offset is in queues or index; see ``cut_job``."""
        return self.cut_job(offset)

    def _remove_file(self, start: int) -> None:
        """Remove the file that starts at an offset; a running sync keeps it open until its end."""
        self._forget_file(start)
        self._io.remove(segment_path(self.directory, start))

    def _forget_file(self, start: int) -> None:
        """Close the file that starts at an offset; a running sync keeps it open until its end."""
        path = segment_path(self.directory, start)
        file = self._files.take(path)
        if file is not None and path in self._files.pinned:
            self._removed.append(file)
        elif file is not None:
            file.close()

    def limit_flushed(self, offset: int) -> None:
        """Treat the log from an offset on as not yet flushed."""
        self.flushed_offset = min(self.flushed_offset, offset)

    def close(self) -> None:
        """Close every file."""
        while self._removed:
            self._removed.pop().close()
        self._files.close_all()

    def _closed(self, path: str) -> None:
        """Drop the map for reads if its file was closed."""
        if path == segment_path(self.directory, self._map_start):
            self._map = None
            self._map_start = self._map_end = -1
