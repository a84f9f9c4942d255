"""The commit log: every message of every topic, one after the other, in files of equal length.

A record never lies in two files: what does not fit ends with a blank record and the next file
begins. Bytes go to the kernel with one ``write_at`` for each file of an append; none waits here.
Messages are copied from a map, and what may be a hole is not: see ``peek``. Places are offsets in
bytes from the first file the log ever had.

Source: CommitLog, MappedFileQueue @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from twisted.logger import Logger

from twistmq.broker.constants import OPEN_LOG_FILES_MAX
from twistmq.broker.errors import StoreFull
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

#: Bytes from which a record's store time can be read, whatever its born host's kind.
_HEAD_SIZE = STORE_TIMESTAMP_POSITION + 12 + 8
_MAGICS = frozenset(
    (magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)
)
_BLANK_MAGIC = (MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")
#: A record whose size is not known is read so far first: for most that is all of it.
_MOST_RECORDS_SIZE = 1024
#: So many zeros are written ahead of small writes that are synced soon, bytes; and up to this size
#: a write is a small one.
ROOM_SIZE: Final = 256 << 10
_SMALL_WRITE_SIZE: Final = ROOM_SIZE >> 3


class CommitLog:
    """The files of one commit log.

    :param file_size: bytes of each file.
    :param syncs_soon: whether each write is followed by a sync that a sender waits for.
    """

    log = Logger()

    def __init__(
        self, io: IStoreIO, directory: str, file_size: int, syncs_soon: bool = False,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        #: Start offsets of the files, ascending.
        self.starts: list[int] = []
        #: Where the next record goes.
        self.max_offset = 0
        #: Up to here the files are on disk.
        self.flushed_offset = 0
        #: Store time in ms of the newest record.
        self.last_store_timestamp = 0
        #: Told where a file starts before the log comes to it.
        self.on_new_file: Callable[[int], None] = lambda start: None
        self._syncs_soon = syncs_soon
        #: Up to here zeros were written ahead.
        self._room_end = 0
        self._io = io
        self._files = OpenFiles(io, OPEN_LOG_FILES_MAX, self._closed)
        self._directory_changed = False
        #: Files that are not as long as they were made, by path: nothing of them is read.
        self._cut: dict[str, StoreDamaged] = {}
        #: Paths of missing or cut files that were logged.
        self._logged_gone: set[str] = set()
        #: (offset, bytes) of writes that failed and may have left something.
        self._failed: list[tuple[int, int]] = []
        #: Why nothing that is written counts as durable any more.
        self._lost: StoreError | None = None
        self._map: ReadMap | None = None
        self._map_start = -1
        self._map_end = -1

    @property
    def min_offset(self) -> int:
        """The offset at which the first file starts."""
        return self.starts[0] if self.starts else self.max_offset

    def load(self) -> None:
        """Find the files; until recovery says otherwise all of them count as written.

        :raises StoreDamaged: when a file has the wrong length or is missing.
        """
        self._io.make_directory(self.directory)
        self.starts = list_segments(self._io, self.directory, self.file_size)
        self.max_offset = self.starts[-1] + self.file_size if self.starts else 0
        self.flushed_offset = self.max_offset
        # A file that was made for a write that failed may be here without its name being durable.
        self._directory_changed = True

    # --- writing

    def write(self, writes: Sequence[tuple[int, bytes]]) -> None:
        """Write at the end, all or nothing.

        :param writes: (offset, bytes), each within one file, the first at ``max_offset``.
        :raises StoreFull: when the disk is full; the log is as before.
        :raises StoreError: when the disk fails; the log is as before.
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
                    # The disk writes while queues and index are.
                    file.begin_sync(offset - start, len(data))
        except StoreError:
            self._erase(done)
            raise
        except OSError as error:
            self._erase(done)
            raise StoreError(f"the commit log cannot be written: {error}") from error
        self.max_offset = writes[-1][0] + len(writes[-1][1])

    def _file_for_write(self, start: int) -> IStoreFile:
        """Open the file that starts here, making it when the log comes to it."""
        path = segment_path(self.directory, start)
        if self.starts and start <= self.starts[-1]:
            return self._open(path)
        self.on_new_file(start)
        file = self._files.allocate(path, self.file_size)
        self.starts.append(start)
        self._directory_changed = True
        return file

    def _make_room(self, file: IStoreFile, start: int, end: int, size: int) -> None:
        """Write zeros behind a small write, so that a sync of the next ones only writes.

        Files are sparse. The first sync of each page waits for the file system's journal too,
        which takes twice as long; with zeros in it a page is like any other. They are what a hole
        reads as: nothing sees whether they, or some of them, were written.
        """
        room = min(ROOM_SIZE, start + self.file_size - end) if size <= _SMALL_WRITE_SIZE else 0
        if room:
            # A full disk is an error for the append that needs the room.
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
        """Make durable that nothing is left of a write that failed. Blocks.

        Before other bytes go there: a loss of power may else leave sectors of both writes as one
        record, whose CRC covers the body alone. And before a clean stop: the next start would not
        know.

        :raises StoreError: when the disk fails; after a sync that did, for good.
        """
        if self._lost is not None:
            raise self._lost
        for offset, size in self._failed:
            start = offset - offset % self.file_size
            try:
                file = self._files.open(segment_path(self.directory, start))
                # Where there is no room for zeros, nothing was written either.
                with suppress(StoreFull):
                    file.write_at(offset - start, bytes(size))
            except OSError as error:
                raise StoreError(f"the commit log cannot be written: {error}") from error
            try:
                file.sync()
            except OSError as error:
                # Other records of this file, which no sync covers any more, may be lost with it.
                self._lost = StoreError(f"the commit log cannot be flushed: {error}")
                raise self._lost from error
        self._failed.clear()

    # --- flushing

    def sync_job(self) -> Callable[[], None]:
        """Make the job that puts everything written so far on disk; run it on a thread.

        Call ``synced`` when it is done: until then its files stay open.

        :raises StoreError, OSError: when a file cannot be opened; no sync was begun then.
        """
        first = self.flushed_offset - self.flushed_offset % self.file_size
        paths = [
            segment_path(self.directory, start)
            for start in self.starts
            if first <= start < self.max_offset
        ]
        # Pinned before they are opened: they may be more than stay open otherwise.
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
            if self._lost is not None:
                raise self._lost
            for file in files:
                file.sync()
            if directory is not None:
                io.sync_path(directory)

        return sync

    def synced(self, offset: int) -> None:
        """Note that the log is on disk up to an offset."""
        self._files.pinned.clear()
        self.flushed_offset = max(self.flushed_offset, offset)

    # --- reading

    def read(self, offset: int, size: int) -> bytes | None:
        """Copy a range; None when any of it is not in the log, or it lies in two files."""
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
        """The map of the file with a place, and what part of the log it holds: from, to.

        :returns: that of another file, or none, where the log has no such place.
        """
        if not self._map_start <= offset < self._map_end and offset >= self.min_offset:
            self._use_file(offset - offset % self.file_size)
        return self._map, self._map_start, min(self._map_end, self.max_offset)

    def peek(self, offset: int, size: int) -> bytes | None:
        """Copy a range that may lie where nothing was ever written; None as ``read``.

        Not from a map: on some file systems (tmpfs) looking at a hole through a map takes room,
        and on a full one that kills the process.
        """
        file = self._file_of(offset, size)
        return None if file is None else file.read_at(offset % self.file_size, size)

    def send_to(self, descriptor: int, offset: int, size: int) -> int:
        """Give a range to a socket, see IStoreFile.send_to; :returns: 0 when it is not there."""
        file = self._file_of(offset, size)
        return 0 if file is None else file.send_to(descriptor, offset % self.file_size, size)

    def _file_of(self, offset: int, size: int) -> IStoreFile | None:
        """The file that a range is in; None when it is not in this log, or not in one file."""
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
        """Whether a record begins at an offset that says of itself that it is there, or the blank
        of a file."""
        head = self.peek(offset, BLANK_SIZE_MIN)
        if head is not None and head[4:] == _BLANK_MAGIC:
            return record_size(head) == self.next_file_start(offset) - offset
        record = self.read_record(offset)
        return record is not None and len(record) >= RECORD_SIZE_MIN and (
            int.from_bytes(record[PHYSICAL_OFFSET_POSITION:][:8], "big") == offset)

    def store_timestamp(self, offset: int) -> int:
        """The store time of the record at an offset, ms; -1 without a record."""
        head = self.peek(offset, _HEAD_SIZE)
        if head is None or head[4:8] not in _MAGICS:
            return -1
        return record_store_timestamp(head)

    def next_file_start(self, offset: int) -> int:
        """The offset at which the file after the one with this offset starts."""
        return offset + self.file_size - offset % self.file_size

    def _use_file(self, start: int) -> None:
        """Point reads at the file that starts here, if there is one."""
        index = (start - self.min_offset) // self.file_size
        if not self.starts or not 0 <= index < len(self.starts):
            return
        file = self._open(segment_path(self.directory, start))
        self._map = file.read_map()
        self._map_start = start
        self._map_end = start + self.file_size

    # --- what others do to the files

    def _open(self, path: str) -> IStoreFile:
        """Open a file of the log, or find it open.

        :raises StoreDamaged: when it was removed or cut.
        """
        if self._cut and path in self._cut:
            raise self._cut[path].with_traceback(None)
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            raise self._gone(path, "was removed or renamed") from None
        if file.size != self.file_size:
            raise self._gone(path, f"was cut to {file.size} bytes")
        return file

    def _gone(self, path: str, how: str) -> StoreDamaged:
        """An error that says how a file is gone; it is logged once a file."""
        error = StoreDamaged(f"the commit-log file {path} {how}")
        if path not in self._logged_gone:
            self._logged_gone.add(path)
            self.log.error("{error}: its messages cannot be read", error=str(error))
        return error

    def look(self) -> str:
        """Look whether the open files are where they were, and as long.

        Of one that was cut nothing is read from now on: to touch a map behind a file's end kills
        the process. One that was removed or renamed is read as long as it is open.

        :returns: how the file that is written, or one that is not flushed, is gone; empty: it is
            not. Of others it is logged.
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
                self._logged_gone.add(path)
            if length != self.file_size and path not in self._cut:
                self._cut[path] = self._gone(path, how)
                self._closed(path)
            elif path not in self._logged_gone:
                self._logged_gone.add(path)
                self.log.error("the commit-log file {path} {how}", path=path, how=how)
        return fault

    # --- cutting and closing

    def drop_first(self) -> Callable[[], None] | None:
        """Take the first file out of the log, which then begins with the next one.

        :returns: what closes the file; None when it is not open. It takes long when most of the
            file is mapped: run it on a thread before the file is removed.
        """
        assert len(self.starts) > 1, self.starts
        assert self.starts[1] <= self.flushed_offset, (self.starts[1], self.flushed_offset)
        path = segment_path(self.directory, self.starts.pop(0))
        assert path not in self._files.pinned, path
        file = self._files.take(path)
        return None if file is None else file.close

    def start_at(self, offset: int) -> None:
        """Let an empty log begin at another place, where a file must start.

        :raises OSError: when a file without a record cannot be removed.
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
        """End the log here: bytes behind become zeros, files behind are removed.

        No sync may be under way.
        """
        removed = False
        while self.starts and self.starts[-1] > offset:
            # The last goes first: whenever this ends, the files that are left have no gap.
            path = segment_path(self.directory, self.starts[-1])
            self._files.close(path)
            self._io.remove(path)
            self.starts.pop()
            removed = True
        if removed:
            # Else a loss of power may put one of them behind what is written next.
            self._io.sync_path(self.directory)
        if self.starts:
            path = segment_path(self.directory, self.starts[-1])
            self._files.close(path)
            position = offset - self.starts[-1]
            if position < self.file_size:
                self._io.clear_from(path, position)
                # Else a loss of power may put it back among what is written there next.
                self._io.sync_path(path)
        self._failed.clear()
        self.max_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        self._room_end = min(self._room_end, offset)

    def limit_flushed(self, offset: int) -> None:
        """Treat the log from an offset on as not yet flushed."""
        self.flushed_offset = min(self.flushed_offset, offset)

    def close(self) -> None:
        """Close every file."""
        self._files.close_all()

    def _closed(self, path: str) -> None:
        """A file was closed: drop its map if it is the one for reads."""
        if path == segment_path(self.directory, self._map_start):
            self._map = None
            self._map_start = self._map_end = -1
