"""The real disk: all blocking calls of the store, except for reads through ``regular_file``, which
the tools use as well.

Files are written with ``pwrite`` and mapped for reading only. On a full disk, a write into a mapped
hole would kill the process, whereas a failing ``pwrite`` is an ordinary error. The lock is taken
twice: with ``fcntl``, because a Java broker on the same directory checks that lock, and with
``flock``, because an ``fcntl`` lock does not exclude other stores in the same process. Directories
are locked through their descriptors, because Apache's broker does not accept an additional file in
the directory of the commit log.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from zope.interface import implementer

from twistmq.broker.errors import StoreFull
from twistmq.broker.store.interfaces import IDirectoryLock, IStoreFile, IStoreIO, ReadMap
from twistmq.broker.store.regular_file import (
    NEW_FILE,
    open_regular,
    read_regular,
    require_regular,
)
from twistmq.protocol.errors import StoreError

__all__ = ["DirectoryLock", "RealDisk", "RealFile"]

#: The number of bytes that ``clear_from`` and ``rewrite`` write at a time.
_CLEAR_SIZE: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: The errors for a lock that another process holds.
_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
#: The function sync_file_range(descriptor, offset, size, flags) of Linux; None on other systems.
_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
#: Its flag that starts writing without waiting.
_SYNC_FILE_RANGE_WRITE: Final = 2


def _full_or_same(error: OSError, path: str) -> Exception:
    """Convert the error of a full disk to StoreFull; return other errors unchanged."""
    if error.errno in _FULL:
        return StoreFull(f"the disk is full: {path}")
    return error


def _leads_to(path: str, descriptor: int) -> bool:
    """Return whether a path leads to an open file or directory."""
    try:
        path_stat = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return os.path.samestat(path_stat, os.fstat(descriptor))


def _written_parts(descriptor: int, position: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are not holes, from a position on: (begin, end)."""
    size = os.fstat(descriptor).st_size
    assert 0 <= position <= size, (position, size)
    while position < size:
        try:
            begin = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            # The rest of the file is a hole.
            return
        position = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, position


@implementer(IStoreFile)
class RealFile:
    """An open file.

    :param descriptor: owned by this object from now on.
    """

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """See IStoreFile."""
        assert 0 <= position <= self.size - len(data), (self.path, position, len(data))
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written < len(data):
                rest = memoryview(data)[written:]
                while rest:
                    position += written
                    written = os.pwrite(self._descriptor, rest, position)
                    rest = rest[written:]
        except OSError as error:
            raise _full_or_same(error, self.path) from error

    def read_at(self, position: int, size: int) -> bytes:
        """See IStoreFile."""
        return os.pread(self._descriptor, size, position)

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """See IStoreFile."""
        return os.sendfile(descriptor, self._descriptor, position, size)

    def read_map(self) -> ReadMap:
        """See IStoreFile."""
        if self._map is None:
            self._map = mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ)
        return self._map

    def sync(self) -> None:
        """See IStoreFile."""
        os.fdatasync(self._descriptor)

    def begin_sync(self, position: int, size: int) -> None:
        """See IStoreFile."""
        if _sync_file_range is not None:
            _sync_file_range(self._descriptor, position, size, _SYNC_FILE_RANGE_WRITE)

    def length(self) -> int:
        """See IStoreFile."""
        return os.fstat(self._descriptor).st_size

    def is_there(self) -> bool:
        """See IStoreFile."""
        return _leads_to(self.path, self._descriptor)

    def close(self) -> None:
        """See IStoreFile."""
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@implementer(IDirectoryLock)
class DirectoryLock:
    """A directory whose descriptor is open and locked.

    :param descriptor: owned by this object from now on.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def is_at(self, path: str) -> bool:
        """See IDirectoryLock."""
        return _leads_to(path, self._descriptor)

    def release(self) -> None:
        """See IDirectoryLock."""
        os.close(self._descriptor)


@implementer(IStoreIO)
class RealDisk:
    """The machine's file system."""

    #: Concurrent syncs of many files share the writes of the file system's journal: 1,500 syncs
    #: take 7 s one by one and 0.2 s on 32 threads (ext4).
    syncs_at_once = 32

    def open_file(self, path: str) -> RealFile:
        """See IStoreIO."""
        descriptor = open_regular(path, os.O_RDWR)
        return RealFile(path, descriptor, os.fstat(descriptor).st_size)

    def allocate(self, path: str, size: int) -> RealFile:
        """See IStoreIO."""
        try:
            descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                os.ftruncate(descriptor, size)
            except OSError:
                os.close(descriptor)
                raise
        except OSError as error:
            raise _full_or_same(error, path) from error
        return RealFile(path, descriptor, size)

    def clear_from(self, path: str, position: int) -> None:
        """See IStoreIO."""
        # Truncating and extending the file would leave a wrong length if a crash came in between.
        descriptor = open_regular(path, os.O_RDWR)
        try:
            for begin, end in _written_parts(descriptor, position):
                while begin < end:
                    begin += os.pwrite(descriptor, bytes(min(_CLEAR_SIZE, end - begin)), begin)
        finally:
            os.close(descriptor)

    def forget_cached(self, path: str, position: int) -> None:
        """See IStoreIO."""
        if not hasattr(os, "posix_fadvise"):  # as on macOS
            return
        with suppress(OSError):
            descriptor = open_regular(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, position, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def rewrite(self, path: str) -> None:
        """See IStoreIO."""
        with open(open_regular(path, os.O_RDWR), "r+b", buffering=0) as file:
            descriptor = file.fileno()
            for begin, end in _written_parts(descriptor, 0):
                while begin < end:
                    data = os.pread(descriptor, min(_CLEAR_SIZE, end - begin), begin)
                    begin += os.pwrite(descriptor, data, begin)

    def sync_path(self, path: str) -> None:
        """See IStoreIO."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read_file(self, path: str) -> bytes:
        """See IStoreIO."""
        return read_regular(path)

    def write_file(self, path: str, data: bytes) -> None:
        """See IStoreIO."""
        try:
            with open(open_regular(path, NEW_FILE), "wb", buffering=0) as file:
                file.write(data)
        except OSError as error:
            raise _full_or_same(error, path) from error

    def write_file_atomically(
        self, path: str, data: bytes, keep_backup: bool = False, is_private: bool = False
    ) -> None:
        """See IStoreIO."""
        temporary = path + ".tmp"
        mode = 0o600 if is_private else 0o666
        try:
            with open(open_regular(temporary, NEW_FILE, mode), "wb", buffering=0) as file:
                if is_private:  # A file that a crash has left may have another mode.
                    os.fchmod(file.fileno(), mode)
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
        except OSError as error:
            raise _full_or_same(error, temporary) from error
        if keep_backup and os.path.exists(path):
            self._back_up(path)
        os.replace(temporary, path)
        self.sync_path(os.path.dirname(path))

    def _back_up(self, path: str) -> None:
        """Give the file a second name, so that it exists at every moment."""
        backup = path + ".bak"
        if os.path.exists(backup):
            os.remove(backup)
        try:
            os.link(path, backup)
        except OSError:
            # Some file systems have no links. On these, only the backup exists for a moment.
            os.replace(path, backup)

    def list_directory(self, path: str) -> list[str]:
        """See IStoreIO."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        """See IStoreIO."""
        os.makedirs(path, exist_ok=True)

    def exists(self, path: str) -> bool:
        """See IStoreIO."""
        return os.path.exists(path)

    def file_size(self, path: str) -> int:
        """See IStoreIO."""
        state = os.stat(path)
        require_regular(state.st_mode, path)
        return state.st_size

    def modified_ms(self, path: str) -> int:
        """See IStoreIO."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def remove(self, path: str) -> None:
        """See IStoreIO."""
        try:
            os.remove(path)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(path)

    def lock(self, path: str) -> Callable[[], None]:
        """See IStoreIO."""
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreError(f"the store is in use by another broker: {path}") from error
        os.pwrite(descriptor, b"lock", 0)
        return lambda: os.close(descriptor)

    def lock_directory(self, path: str) -> DirectoryLock:
        """See IStoreIO."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD:
                os.close(descriptor)
                raise StoreError(f"the folder is in use by another broker: {path}") from error
            # NFS locks only files that are open for writing, which a directory never is; other file
            # systems have no locks.
        return DirectoryLock(descriptor)

    def disk_used_ratio(self, path: str) -> float:
        """See IStoreIO."""
        try:
            state = os.statvfs(path)
        except FileNotFoundError:
            return -1.0
        used = state.f_blocks - state.f_bfree
        # Blocks reserved for root count as neither used nor free, as in Apache's figure.
        total = used + state.f_bavail
        return used / total if total else 0.0

    def physical_memory_bytes(self) -> int:
        """See IStoreIO."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def open_files_max(self) -> int:
        """See IStoreIO."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return sys.maxsize if limit == resource.RLIM_INFINITY else limit

    def process_id(self) -> int:
        """See IStoreIO."""
        return os.getpid()
