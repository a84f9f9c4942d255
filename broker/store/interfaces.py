"""The interfaces of the disk, as the store uses it."""

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
    """A file's bytes as a slice gives them: copies, so the file may be closed afterwards."""

    def __getitem__(self, key: slice, /) -> bytes:
        """Copy a range of bytes."""


class IStoreFile(Interface):
    """An open file of a fixed length. Positions are bytes from the file's start."""

    size: int = Attribute("Length of the file in bytes.")

    def write_at(position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``; nothing of it waits in user space afterwards.

        :raises StoreFull: when the disk or a quota is full; some of it may have been written.
        :raises OSError: when the disk fails.
        """

    def read_at(position: int, size: int) -> bytes:
        """Read; fewer bytes come back at the end of the file."""

    def send_to(descriptor: int, position: int, size: int) -> int:
        """Give bytes to a socket, where the system can without a copy.

        :param descriptor: of a socket that does not block.
        :returns: how many it took; 0 at the end of the file.
        :raises BlockingIOError: when it takes none now.
        :raises OSError: when the disk fails, or the connection is lost.
        """

    def read_map() -> ReadMap:
        """Give the whole file for reading by slices; made once, kept until the file closes."""

    def sync() -> None:
        """Make what was written survive a loss of power. Blocks: call it on a thread."""

    def begin_sync(position: int, size: int) -> None:
        """Let the disk begin to write a range, so that a sync that follows soon waits less.

        It promises nothing and does not fail: an error of the disk is raised by the sync.
        """

    def length() -> int:
        """The file's length on disk, bytes: ``size``, unless another process changed it."""

    def is_there() -> bool:
        """Whether its path still leads to this file: false once it is removed or renamed."""

    def close() -> None:
        """Close the file; a second time does nothing."""


class IDirectoryLock(Interface):
    """A directory that one store uses and no other."""

    def is_at(path: str) -> bool:
        """Whether a path leads to it, by whatever links."""

    def release() -> None:
        """Release the directory, so that another store can take it."""


class IStoreIO(Interface):
    """Everything a store does with a disk. Paths are absolute text."""

    syncs_at_once: int = Attribute("how many calls of sync_path are worth making at a time")

    def open_file(path: str) -> IStoreFile:
        """Open a file that exists, for reading and writing.

        :raises OSError: when it does not exist or may not be opened.
        """

    def allocate(path: str, size: int) -> IStoreFile:
        """Open a file and give it this length; bytes it did not hold before read as zeros.

        The file is sparse: space is taken when bytes are written.

        :raises StoreFull: when the disk has no room for it.
        """

    def clear_from(path: str, position: int) -> None:
        """Make the rest of a file read as zeros; its length is the same at every moment."""

    def rewrite(path: str) -> None:
        """Write again all that was ever written to a file, so that the next sync writes it too.

        After a failed sync the kernel may count pages as clean that it could not write. The file
        must not be written meanwhile.

        :raises OSError: when it cannot be read or written.
        """

    def sync_path(path: str) -> None:
        """Make a file, or a directory's entries, survive a loss of power. Blocks."""

    def read_file(path: str) -> bytes:
        """Read a whole small file.

        :raises OSError: when it does not exist or cannot be read.
        """

    def write_file(path: str, data: bytes) -> None:
        """Replace a small file's contents in place."""

    def write_file_atomically(path: str, data: bytes, keep_backup: bool = False) -> None:
        """Replace a file so that after any crash it is the old one or the new one, whole.

        :param keep_backup: leave what it was before under ``path + ".bak"``.
        :raises StoreFull: when the disk is full; the old file stays.
        """

    def list_directory(path: str) -> list[str]:
        """List the names in a directory, sorted; empty if the directory does not exist.

        :raises NotADirectoryError: when a file is.
        """

    def make_directory(path: str) -> None:
        """Make a directory and those above it; one that exists is fine."""

    def exists(path: str) -> bool:
        """Whether a file or directory is there."""

    def file_size(path: str) -> int:
        """Length of a file in bytes.

        :raises OSError: when it is not a file.
        """

    def modified_ms(path: str) -> int:
        """When a file was written to last, Unix ms.

        :raises FileNotFoundError: when it does not exist.
        """

    def remove(path: str) -> None:
        """Remove a file, or a directory with all it holds; one that is not there is fine."""

    def lock(path: str) -> Callable[[], None]:
        """Take the exclusive lock of a store and write "lock" into the file.

        :returns: a function that releases the lock.
        :raises StoreError: when another process, or another store of this one, holds it.
        """

    def lock_directory(path: str) -> IDirectoryLock:
        """Lock a directory for one store, without a file in it. Some file systems have no such
        locks: there, a second store is not noticed.

        :raises StoreError: when another process, or another store of this one, holds it.
        :raises OSError: when it does not exist or may not be read.
        """

    def disk_used_ratio(path: str) -> float:
        """Used part of the disk under a path, 0.0 to 1.0; -1.0 when the path does not exist."""

    def physical_memory_bytes() -> int:
        """The machine's memory."""

    def open_files_max() -> int:
        """How many files and connections the process may have open."""

    def process_id() -> int:
        """The number the abort file holds."""
