"""Directories of equally long files that together form one long file.

The name of each file is the offset of its first byte, in 20 decimal digits; the files follow each
other without a gap. Commit log and consume queues are such directories. ``OpenFiles`` limits how
many files are open.

Source: MappedFileQueue @5.3.3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise

from twistmq.broker.store.interfaces import IStoreFile, IStoreIO
from twistmq.protocol.errors import StoreDamaged

__all__ = ["OpenFiles", "list_segments", "segment_path", "sync_parents"]


def segment_path(directory: str, start: int) -> str:
    """Return the path of the file whose first byte has this offset."""
    return f"{directory}/{start:020d}"


def list_segments(io: IStoreIO, directory: str, file_size: int) -> list[int]:
    """List the start offsets of the files in a directory, in ascending order.

    An empty file remains when a crash comes between creating a file and setting its length, or when
    a file was never synced before a loss of power. If it is the last file, it is removed; otherwise
    it gets its length back and contains only zeros. Names that are not numbers do not belong to the
    store and are left alone.

    :param file_size: the length that every file must have, in bytes.
    :raises StoreDamaged: when a file has another length or files are missing in between.
    """
    starts: list[int] = []
    names = [name for name in io.list_directory(directory) if name.isdecimal()]
    for name in names:
        path = f"{directory}/{name}"
        size = io.file_size(path)
        if size == 0 and name == names[-1]:
            io.remove(path)
            continue
        if size == 0:
            io.allocate(path, file_size).close()
            size = file_size
        if size != file_size:
            raise StoreDamaged(
                f"{path} has {size} bytes, but the settings require {file_size}: it was written "
                "with another file size, or it was truncated"
            )
        starts.append(int(name))
    for before, after in pairwise(starts):
        if after != before + file_size:
            raise StoreDamaged(f"{segment_path(directory, before + file_size)} is missing")
    return starts


def sync_parents(io: IStoreIO, path: str) -> None:
    """Make the existence of a path durable, including all directories that lead to it.

    A directory that cannot be read was not made by this process and is skipped.
    """
    while path not in ("", "/"):
        path = path.rpartition("/")[0]
        with suppress(PermissionError):
            io.sync_path(path or "/")


class OpenFiles:
    """The open files, up to a limit: the least recently used one is closed for the next.

    :param open_max: the number of files that stay open.
    :param on_close: called with the path of each file that is closed.
    """

    def __init__(
        self, io: IStoreIO, open_max: int, on_close: Callable[[str], None] | None = None
    ) -> None:
        assert open_max > 0, open_max
        self._io = io
        self._open_max = open_max
        self._on_close = on_close
        self._files: OrderedDict[str, IStoreFile] = OrderedDict()
        #: The paths that a thread is working on, which stay open.
        self.pinned: set[str] = set()

    def open(self, path: str) -> IStoreFile:
        """Return the open file of a path, opening it if necessary. The file must exist."""
        file = self._files.get(path)
        if file is None:
            return self._keep(path, self._io.open_file(path))
        self._files.move_to_end(path)
        return file

    def allocate(self, path: str, size: int) -> IStoreFile:
        """Create a file of this length, or open it when it exists."""
        return self._files.get(path) or self._keep(path, self._io.allocate(path, size))

    def close(self, path: str) -> None:
        """Close a file if it is open. Call this before the file is removed or truncated."""
        file = self.take(path)
        if file is not None:
            file.close()

    def take(self, path: str) -> IStoreFile | None:
        """Hand an open file to the caller, who must close it; it no longer counts as open here."""
        file = self._files.pop(path, None)
        if file is not None and self._on_close is not None:
            self._on_close(path)
        return file

    def close_all(self) -> None:
        """Close every file."""
        for path in list(self._files):
            self.close(path)

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[tuple[str, IStoreFile]]:
        """Iterate over the open files: (path, file)."""
        return iter(self._files.items())

    def _keep(self, path: str, file: IStoreFile) -> IStoreFile:
        """Add an opened file, closing others beyond the limit."""
        self._files[path] = file
        # Examine each file at most once, because all of them may be pinned.
        for _ in range(len(self._files)):
            if len(self._files) <= self._open_max:
                break
            oldest = next(iter(self._files))
            if oldest in self.pinned or oldest == path:
                self._files.move_to_end(oldest)
            else:
                self.close(oldest)
        return file
