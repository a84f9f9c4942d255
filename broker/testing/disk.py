"""Disks for tests: one in memory, and one that fails on demand.

``MemoryDisk`` behaves like ``RealDisk``, and any number of stores can use it, so that a test can
abandon one store and open another over its files, as after a kill. ``FaultyDisk`` is a
``MemoryDisk`` whose nth write fails, or which runs out of space.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable

from zope.interface import implementer

from twistmq.broker.errors import StoreFull
from twistmq.broker.store.interfaces import IDirectoryLock, IStoreFile, IStoreIO, ReadMap
from twistmq.protocol.errors import StoreError

__all__ = ["FaultyDisk", "FileContents", "MemoryDisk", "MemoryFile"]


class FileContents:
    """The contents of a file; pages that were never written do not use memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.data = mmap.mmap(-1, max(size, 1))
        #: No byte at or after this position was ever written.
        self.written = 0
        #: The time of the last write, ms.
        self.modified_ms = 0


@implementer(IStoreFile)
class MemoryFile:
    """An open file of a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, path: str, contents: FileContents) -> None:
        self.path = path
        self.size = contents.size
        self._disk = disk
        self._contents = contents
        self._open = True

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """See IStoreFile."""
        assert self._open, self.path
        assert 0 <= position <= self.size - len(data), (self.path, position, len(data))
        contents = self._contents
        end = position + len(data)
        # Bytes that were written before already have space on the disk.
        new = max(0, end - max(position, contents.written))
        end -= new - self._disk.before_write(self.path, new)
        contents.data[position:end] = bytes(data)[: end - position]
        contents.written = max(contents.written, end)
        contents.modified_ms = self._disk.now_ms()
        if end < position + len(data):
            raise StoreFull(f"the disk is full: {self.path}")

    def read_at(self, position: int, size: int) -> bytes:
        """See IStoreFile."""
        assert self._open, self.path
        return self._contents.data[position : min(position + size, self.size)]

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """See IStoreFile."""
        return os.write(descriptor, self.read_at(position, size))

    def read_map(self) -> ReadMap:
        """See IStoreFile."""
        assert self._open, self.path
        return self._contents.data

    def sync(self) -> None:
        """See IStoreFile."""
        assert self._open, self.path
        self._disk.before_sync(self.path)

    def begin_sync(self, position: int, size: int) -> None:
        """See IStoreFile."""
        assert self._open, self.path
        self._disk.begun.append((self.path, position, size))

    def length(self) -> int:
        """See IStoreFile."""
        return self._contents.size

    def is_there(self) -> bool:
        """See IStoreFile."""
        return self._disk.has(self.path, self._contents)

    def close(self) -> None:
        """See IStoreFile."""
        self._open = False


@implementer(IDirectoryLock)
class DirectoryLock:
    """A locked directory of a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, path: str, locks: set[str]) -> None:
        self._disk = disk
        self._path = path
        self._locks = locks

    def is_at(self, path: str) -> bool:
        """See IDirectoryLock."""
        return path.rstrip("/") == self._path and self._disk.exists(self._path)

    def release(self) -> None:
        """See IDirectoryLock."""
        self._locks.discard(self._path)


@implementer(IStoreIO)
class MemoryDisk:
    """A disk in memory. ``sync_count`` counts syncs, for tests of flushing."""

    syncs_at_once = 1

    def __init__(self) -> None:
        self.sync_count = 0
        #: The (path, position, size) of the syncs that were begun early.
        self.begun: list[tuple[str, int, int]] = []
        self.used_ratio = 0.1
        #: The clock for the times of files.
        self.now_ms: Callable[[], int] = lambda: 0
        self._files: dict[str, FileContents] = {}
        self._directories: set[str] = {"/"}
        self._locks: set[str] = set()

    def before_write(self, path: str, size: int) -> int:
        """Called before each write; a subclass may raise.

        :param size: the number of bytes that need space.
        :returns: the number of bytes for which there is space.
        """
        return size

    def before_sync(self, path: str) -> None:
        """Called before each sync; a subclass may raise."""
        self.sync_count += 1

    def forget_locks(self) -> None:
        """Release all locks, as at the end of a process."""
        self._locks.clear()

    def open_file(self, path: str) -> MemoryFile:
        """See IStoreIO."""
        return MemoryFile(self, path, self._contents(path))

    def allocate(self, path: str, size: int) -> MemoryFile:
        """See IStoreIO."""
        contents = self._files.get(path)
        if contents is None or contents.size != size:
            self._require_directory(path)
            self.before_write(path, 0)
            contents = self._resized(contents, size)
            contents.modified_ms = self.now_ms()
            self._files[path] = contents
        return MemoryFile(self, path, contents)

    def clear_from(self, path: str, position: int) -> None:
        """See IStoreIO."""
        contents = self._contents(path)
        kept_data = contents.data[:position]
        contents.data = mmap.mmap(-1, max(contents.size, 1))
        contents.data[:position] = kept_data

    def forget_cached(self, path: str, position: int) -> None:
        """See IStoreIO."""

    def rewrite(self, path: str) -> None:
        """See IStoreIO."""
        self._contents(path)
        self.before_write(path, 0)

    def sync_path(self, path: str) -> None:
        """See IStoreIO."""
        if path not in self._directories:
            self._contents(path)
        self.before_sync(path)

    def read_file(self, path: str) -> bytes:
        """See IStoreIO."""
        contents = self._contents(path)
        return contents.data[: contents.size]

    def write_file(self, path: str, data: bytes) -> None:
        """See IStoreIO."""
        self._require_directory(path)
        if self.before_write(path, len(data)) < len(data):
            raise StoreFull(f"the disk is full: {path}")
        contents = FileContents(len(data))
        contents.data[: len(data)] = data
        contents.written = len(data)
        contents.modified_ms = self.now_ms()
        self._files[path] = contents

    def write_file_atomically(
        self, path: str, data: bytes, keep_backup: bool = False, is_private: bool = False
    ) -> None:
        """See IStoreIO."""
        old = self._files.get(path)
        self.write_file(path, data)
        if keep_backup and old is not None:
            self._files[path + ".bak"] = old
        self.before_sync(path)

    def list_directory(self, path: str) -> list[str]:
        """See IStoreIO."""
        if path in self._files:
            raise NotADirectoryError(errno.ENOTDIR, "a file", path)
        start = path.rstrip("/") + "/"
        names = {each[len(start) :].partition("/")[0] for each in self._files | dict.fromkeys(
            self._directories) if each.startswith(start)}
        return sorted(names - {""})

    def make_directory(self, path: str) -> None:
        """See IStoreIO."""
        while path not in self._directories:
            if path in self._files:
                raise FileExistsError(errno.EEXIST, "a file", path)
            self._directories.add(path)
            path = path.rpartition("/")[0] or "/"

    def exists(self, path: str) -> bool:
        """See IStoreIO."""
        return path in self._files or path in self._directories

    def file_size(self, path: str) -> int:
        """See IStoreIO."""
        return self._contents(path).size

    def modified_ms(self, path: str) -> int:
        """See IStoreIO."""
        return self._contents(path).modified_ms

    def remove(self, path: str) -> None:
        """See IStoreIO."""
        below = path + "/"
        for each in [each for each in self._files if each == path or each.startswith(below)]:
            del self._files[each]
        self._directories = {
            each for each in self._directories if each != path and not each.startswith(below)
        }

    def lock(self, path: str) -> Callable[[], None]:
        """See IStoreIO."""
        if path in self._locks:
            raise StoreError(f"the store is in use by another broker: {path}")
        self._locks.add(path)
        self.write_file(path, b"lock")
        return lambda: self._locks.discard(path)

    def lock_directory(self, path: str) -> DirectoryLock:
        """See IStoreIO."""
        path = path.rstrip("/")
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no directory", path)
        if path in self._locks:
            raise StoreError(f"the folder is in use by another broker: {path}")
        self._locks.add(path)
        return DirectoryLock(self, path, self._locks)

    def disk_used_ratio(self, path: str) -> float:
        """See IStoreIO."""
        return self.used_ratio if self.exists(path) else -1.0

    def physical_memory_bytes(self) -> int:
        """See IStoreIO."""
        return 8 << 30

    def open_files_max(self) -> int:
        """See IStoreIO."""
        return 1024

    def process_id(self) -> int:
        """See IStoreIO."""
        return 4711

    def has(self, path: str, contents: FileContents) -> bool:
        """Return whether a path leads to a file."""
        return self._files.get(path) is contents

    def cut(self, path: str, size: int) -> None:
        """Truncate a file as another process would; a store with the open file finds it shorter."""
        contents = self._contents(path)
        contents.size = size
        contents.data[size:] = bytes(len(contents.data) - size)

    def _contents(self, path: str) -> FileContents:
        """Find a file, or fail like the real disk."""
        if path in self._directories:
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no file", path)
        return self._files[path]

    def _require_directory(self, path: str) -> None:
        """Fail when the directory of a new file does not exist."""
        if (path.rpartition("/")[0] or "/") not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no directory", path)

    def _resized(self, contents: FileContents | None, size: int) -> FileContents:
        """Copy contents into a file of a different length."""
        resized = FileContents(size)
        if contents is not None:
            kept_size = min(contents.size, size)
            resized.data[:kept_size] = contents.data[:kept_size]
        return resized


class FaultyDisk(MemoryDisk):
    """A disk that fails on demand.

    Set ``room_bytes`` to make the disk full after that number of further bytes. Set
    ``fail_write_in`` or ``fail_sync_in`` to n to make the nth write or sync from now, and all later
    ones, fail with EIO. None means no fault.
    """

    def __init__(self) -> None:
        super().__init__()
        self.room_bytes: int | None = None
        self.fail_write_in: int | None = None
        self.fail_sync_in: int | None = None

    def before_write(self, path: str, size: int) -> int:
        """Fail, or return how much of a write fits."""
        self.fail_write_in = self._count_down(self.fail_write_in, path)
        if self.room_bytes is None:
            return size
        allowed = min(size, self.room_bytes)
        self.room_bytes -= allowed
        return allowed

    def before_sync(self, path: str) -> None:
        """Fail, or count."""
        self.fail_sync_in = self._count_down(self.fail_sync_in, path)
        super().before_sync(path)

    def _count_down(self, remaining: int | None, path: str) -> int | None:
        """Count down to a failure."""
        if remaining is None:
            return None
        if remaining <= 1:
            raise OSError(errno.EIO, "input/output error", path)
        return remaining - 1
