"""The interfaces through which the store uses the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from zope.interface import Attribute, Interface

__all__ = [
    "IDirectoryLock",
    "IStoreFile",
    "IStoreIO",
    "ReadMap",
]


class ReadMap(Protocol):
    """The bytes of a file, read by slices, which are copies: they stay valid after a close."""

    def __getitem__(self, key: slice, /) -> bytes:
        """Copy a range of bytes."""


class IStoreFile(Interface):
    """An open file of a fixed length. Positions are bytes from the start of the file."""

    size: int = Attribute("Length of the file in bytes.")

    def write_at(position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data`` to the kernel; none of it stays in a buffer of the process.

        :raises StoreFull: when the disk or a quota is full; some of the data may have been written.
        :raises OSError: when the disk fails.
        """

    def read_at(position: int, size: int) -> bytes:
        """Read a range; returns fewer bytes at the end of the file."""

    def send_to(descriptor: int, position: int, size: int) -> int:
        """Send bytes to a socket, without a copy where the system supports it.

        :param descriptor: the descriptor of a non-blocking socket.
        :returns: the number of bytes that the socket accepted; 0 at the end of the file.
        :raises BlockingIOError: when the socket accepts no bytes now.
        :raises OSError: when the disk fails, or the connection is lost.
        """

    def read_map() -> ReadMap:
        """Return a map of the whole file, created once and kept until the file is closed."""

    def sync() -> None:
        """Make written bytes survive a loss of power. Blocks: call it on a thread."""

    def begin_sync(position: int, size: int) -> None:
        """Start writing a range to the disk, so that a sync that follows soon waits less.

        This call guarantees nothing and does not fail: the sync raises any error of the disk.
        """

    def length() -> int:
        """Return the length of the file on disk in bytes: ``size``, unless another process changed
        it."""

    def is_there() -> bool:
        """Return whether the path still leads to this file; False once it is removed or renamed."""

    def close() -> None:
        """Close the file; a second call has no effect."""


class IDirectoryLock(Interface):
    """A directory that only one store uses."""

    def is_at(path: str) -> bool:
        """Return whether a path leads to the directory, directly or through links."""

    def release() -> None:
        """Release the directory, so that another store can take it."""


class IStoreIO(Interface):
    """All operations of a store on a disk. Paths are absolute strings."""

    syncs_at_once: int = Attribute("The useful number of concurrent calls of sync_path.")

    def open_file(path: str) -> IStoreFile:
        """Open an existing file for reading and writing.

        :raises OSError: when it does not exist or cannot be opened.
        """

    def allocate(path: str, size: int) -> IStoreFile:
        """Open a file, creating it if necessary, and set its length; new bytes read as zeros.

        The file is sparse: disk space is allocated when bytes are written.

        :raises StoreFull: when the disk has no room for it.
        """

    def clear_from(path: str, position: int) -> None:
        """Make the rest of a file read as zeros; its length never changes."""

    def forget_cached(path: str, position: int) -> None:
        """Let the system forget what it has read of a file from a position on.

        A read that reaches a hole makes the system read ahead in it, again and again as the file is
        written and read there. This takes 20 ms if the device reads ahead 8 MiB. The call
        guarantees nothing and does not fail.
        """

    def rewrite(path: str) -> None:
        """Write all bytes of a file again, except holes, so that the next sync writes them too.

        After a failed sync, the kernel may treat pages as clean that it could not write. The file
        must not be written during this call.

        :raises OSError: when it cannot be read or written.
        """

    def sync_path(path: str) -> None:
        """Make a file, or the entries of a directory, survive a loss of power. Blocks."""

    def read_file(path: str) -> bytes:
        """Read a whole small file.

        :raises OSError: when it does not exist or cannot be read.
        """

    def write_file(path: str, data: bytes) -> None:
        """Replace the contents of a small file in place."""

    def write_file_atomically(
        path: str, data: bytes, keep_backup: bool = False, is_private: bool = False
    ) -> None:
        """Replace a file so that after any crash either the old or the new file exists as a whole.

        :param keep_backup: keep the previous file under ``path + ".bak"``.
        :param is_private: whether only the owner may read and write the file.
        :raises StoreFull: when the disk is full; the old file stays.
        """

    def list_directory(path: str) -> list[str]:
        """List the names in a directory, sorted; empty if the directory does not exist.

        :raises NotADirectoryError: when the path is a file.
        """

    def make_directory(path: str) -> None:
        """Create a directory and its parents; an existing directory is not an error."""

    def exists(path: str) -> bool:
        """Return whether a file or directory exists."""

    def file_size(path: str) -> int:
        """Return the length of a file in bytes.

        :raises OSError: when the path is not a file.
        """

    def modified_ms(path: str) -> int:
        """Return the time of the last write to a file, in Unix ms.

        :raises FileNotFoundError: when it does not exist.
        """

    def remove(path: str) -> None:
        """Remove a file, or a directory with all its contents; a missing path is not an error."""

    def lock(path: str) -> Callable[[], None]:
        """Take the exclusive lock of a store and write "lock" into the file.

        :returns: a function that releases the lock.
        :raises StoreError: when another process, or another store in this process, holds it.
        """

    def lock_directory(path: str) -> IDirectoryLock:
        """Lock a directory for one store, without creating a file in it.

        Some file systems have no such locks; there, a second store is not noticed.

        :raises StoreError: when another process, or another store in this process, holds it.
        :raises OSError: when it does not exist or cannot be read.
        """

    def disk_used_ratio(path: str) -> float:
        """Return the used fraction of the disk of a path, 0.0 to 1.0; -1.0 if there is no such
        path."""

    def physical_memory_bytes() -> int:
        """Return the size of the machine's memory."""

    def open_files_max() -> int:
        """Return how many files and connections the process may have open."""

    def process_id() -> int:
        """Return the process id that the abort file contains."""
