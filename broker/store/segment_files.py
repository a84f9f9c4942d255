"""Directories of equally long files that together are one long file.

Each file's name is the offset of its first byte, 20 decimal digits; names follow each other without
a gap. Commit log and consume queues are such directories. ``OpenFiles`` keeps few of them open.

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
    """Path of the file whose first byte has this offset."""
    return f"{directory}/{start:020d}"


def list_segments(io: IStoreIO, directory: str, file_size: int) -> list[int]:
    """List the start offsets of a directory's files, ascending.

    An empty file is what a crash leaves between making a file and giving it its length, or a loss
    of power of a file that was never synced: the last is removed, one before it gets its length
    back and holds nothing. Names that are no numbers are not the store's and are left alone.

    :param file_size: length every file must have, bytes.
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
                f"{path} has {size} bytes, the settings say {file_size}: it was written with "
                "another file size, or it was cut"
            )
        starts.append(int(name))
    for before, after in pairwise(starts):
        if after != before + file_size:
            raise StoreDamaged(f"{segment_path(directory, before + file_size)} is missing")
    return starts


def sync_parents(io: IStoreIO, path: str) -> None:
    """Make it durable that a path is there, whichever directories had to be made for it.

    A directory that may not be read was not made by this process and is left out.
    """
    while path not in ("", "/"):
        path = path.rpartition("/")[0]
        with suppress(PermissionError):
            io.sync_path(path or "/")


class OpenFiles:
    """The open files, up to a limit: the least recently used one is closed for the next.

    :param open_max: files that stay open.
    :param on_close: told the path of each file that is closed.
    """

    def __init__(
        self, io: IStoreIO, open_max: int, on_close: Callable[[str], None] | None = None
    ) -> None:
        assert open_max > 0, open_max
        self._io = io
        self._open_max = open_max
        self._on_close = on_close
        self._files: OrderedDict[str, IStoreFile] = OrderedDict()
        #: Paths a thread is working on: they stay open.
        self.pinned: set[str] = set()

    def open(self, path: str) -> IStoreFile:
        """Open a file that exists, or find it open."""
        file = self._files.get(path)
        if file is None:
            return self._keep(path, self._io.open_file(path))
        self._files.move_to_end(path)
        return file

    def allocate(self, path: str, size: int) -> IStoreFile:
        """Make a file of this length, or open it when it exists."""
        return self._files.get(path) or self._keep(path, self._io.allocate(path, size))

    def close(self, path: str) -> None:
        """Close a file if it is open; before it is removed or cut."""
        file = self.take(path)
        if file is not None:
            file.close()

    def take(self, path: str) -> IStoreFile | None:
        """Hand a file over, if it is open, to be closed elsewhere; it counts as closed here."""
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
        """The path of each file that is open, and the file."""
        return iter(self._files.items())

    def _keep(self, path: str, file: IStoreFile) -> IStoreFile:
        """Enter a file that was opened, closing others beyond the limit."""
        self._files[path] = file
        # Each is looked at once at the most: all may be pinned.
        for _ in range(len(self._files)):
            if len(self._files) <= self._open_max:
                break
            oldest = next(iter(self._files))
            if oldest in self.pinned or oldest == path:
                self._files.move_to_end(oldest)
            else:
                self.close(oldest)
        return file
