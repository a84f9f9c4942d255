"""A disk in memory that loses data without a sync, like a real disk after a power failure.

    disk = PowerLossDisk()
    ...                             # a store works on it
    disk.crash(random.Random(1))    # and another one is opened over its files

A real disk may do the following, and this disk does it at random:

* each sector keeps any of the states that it had since the last sync of the file. Synced data is
  never lost;
* the sector that is being written at the power failure may be torn at any byte, if its place was
  empty before; in that case no later sector is written. All other sectors are complete;
* a file that was never synced may have a length of zero;
* in each directory that was not synced, the created, renamed and removed names are lost from some
  change on. The order of changes is kept, because every journalling file system keeps it;
* after a failed sync, the kernel treats the data that it could not write as written: a later
  successful sync does not make this data durable, unless the sector is written again.

``kill`` ends only the process, so that no written data is lost. With ``cut_in``, either end happens
in the middle of an operation of the store. With ``before_change`` and ``copy``, either end happens
to a copy of the disk while the store continues. FaultyDisk provides the limit of space and the
failures.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from copy import deepcopy

from zope.interface import implementer

from twistmq.broker.errors import StoreFull
from twistmq.broker.store.interfaces import IStoreFile, IStoreIO, ReadMap
from twistmq.broker.testing.disk import FaultyDisk, MemoryFile
from twistmq.broker.testing.tracked_contents import Copies, TrackedContents

__all__ = ["PowerCut", "PowerLossDisk"]


class PowerCut(BaseException):
    """The process ends at this point. The code of a store must not catch this exception."""


@implementer(IStoreFile)
class _File(MemoryFile):
    """An open file of a PowerLossDisk."""

    _disk: PowerLossDisk
    _contents: TrackedContents

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """See IStoreFile."""
        assert self._open, self.path
        assert 0 <= position <= self.size - len(data), (self.path, position, len(data))
        self._disk.write(self.path, self._contents, position, bytes(data))

    def read_at(self, position: int, size: int) -> bytes:
        """See IStoreFile."""
        assert self._open, self.path
        return bytes(self._contents.data[position : position + size])

    def read_map(self) -> ReadMap:
        """See IStoreFile."""
        assert self._open, self.path
        return Copies(self._contents)

    def sync(self) -> None:
        """See IStoreFile."""
        assert self._open, self.path
        self._disk.sync_contents(self.path, self._contents)


class _Directory:
    """One life of a directory: a directory that is created again starts empty."""


#: A change of a name: its path, its new file or directory (or None), and its parent directory.
_Change = tuple[str, TrackedContents | _Directory | None, _Directory]


@implementer(IStoreIO)
class PowerLossDisk(FaultyDisk):
    """A disk that loses data without a sync.

    Set ``cut_in`` to n to make the nth change or sync from now, and all later ones, raise PowerCut
    until ``crash`` or ``kill``. Set ``fail_sync_of`` to the beginning of a path to make only the
    next sync of such a path fail. ``before_change`` is called before each change and sync.
    """

    _files: dict[str, TrackedContents]  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.cut_in: int | None = None
        self.fail_sync_of: str | None = None
        self.before_change: Callable[[], None] | None = None
        root = _Directory()
        #: The existing directories.
        self._lives = {"/": root}
        #: The file or directory on the disk, and the directory that contains it, by path.
        self._durable: dict[str, tuple[TrackedContents | _Directory, _Directory]] = {
            "/": (root, root)}
        #: The changes of names in each directory, in their order.
        self._changes: dict[str, list[_Change]] = {}

    def copy(self) -> PowerLossDisk:
        """Return a disk with the same data, synced or not, without faults and clock."""
        twin = PowerLossDisk()
        twin._files, twin._directories, twin._lives, twin._durable, twin._changes = deepcopy(
            (self._files, self._directories, self._lives, self._durable, self._changes))
        twin._locks = set(self._locks)
        return twin

    # --- the end

    @property
    def is_cut(self) -> bool:
        """Whether the process counts as ended."""
        return self.cut_in == 0

    @property
    def has_dropped(self) -> bool:
        """Whether a process can still read data that a failed sync dropped."""
        return any(contents.dropped for contents in self._files.values())

    def kill(self) -> None:
        """End the process: its locks are released, and all written data is kept."""
        self.cut_in = None
        self.forget_locks()

    def crash(self, chance: random.Random) -> None:
        """Lose power: some of the data without a sync is lost."""
        self.kill()
        for directory in sorted(self._changes):
            changes = self._changes[directory]
            kept_count = chance.choice((0, len(changes), chance.randint(0, len(changes))))
            self._apply(changes[:kept_count])
        self._changes.clear()
        self._lives = {"/": self._lives["/"]}
        self._files = {}
        for path in sorted(self._durable):
            entry, owner = self._durable[path]
            if self._lives.get(_parent(path)) is not owner:
                del self._durable[path]
            elif isinstance(entry, _Directory):
                self._lives[path] = entry
            else:
                self._files[path] = entry
        self._directories = set(self._lives)
        for contents in {id(each): each for each in self._files.values()}.values():
            contents.crash(chance)

    def _apply(self, changes: list[_Change]) -> None:
        """Make changes of directories durable."""
        for path, now, directory in changes:
            if now is not None:
                self._durable[path] = now, directory
            elif path in self._durable and self._durable[path][1] is directory:
                del self._durable[path]

    def _note(self, path: str, now: TrackedContents | _Directory | None) -> None:
        """Record that a name was given or removed."""
        parent = _parent(path)
        self._changes.setdefault(parent, []).append((path, now, self._lives[parent]))

    # --- faults

    def before_write(self, path: str, size: int) -> int:
        """Cut, fail, or return how much fits."""
        self._count_to_cut()
        return super().before_write(path, size)

    def before_sync(self, path: str) -> None:
        """Cut, fail, or count."""
        self._count_to_cut()
        if self.fail_sync_of is not None and path.startswith(self.fail_sync_of):
            self.fail_sync_of = None
            raise OSError(errno.EIO, "input/output error", path)
        super().before_sync(path)

    def _count_to_cut(self) -> None:
        if self.before_change is not None:
            self.before_change()
        if self.cut_in is None:
            return
        self.cut_in = max(0, self.cut_in - 1)
        if self.cut_in == 0:
            raise PowerCut

    # --- files

    def write(self, path: str, contents: TrackedContents, position: int, data: bytes) -> None:
        """Write into a file, only in part if there is not enough space."""
        end = position + len(data)
        new = max(0, end - max(position, contents.written))
        fitting = len(data) - new + self.before_write(path, new)
        contents.write(position, data[:fitting])
        contents.written = max(contents.written, position + fitting)
        contents.modified_ms = self.now_ms()
        if fitting < len(data):
            raise StoreFull(f"the disk is full: {path}")

    def sync_contents(self, path: str, contents: TrackedContents) -> None:
        """Sync a file."""
        try:
            self.before_sync(path)
        except OSError:
            contents.fail_sync()
            raise
        contents.sync()

    def open_file(self, path: str) -> MemoryFile:
        """See IStoreIO."""
        return _File(self, path, self._contents(path))

    def allocate(self, path: str, size: int) -> MemoryFile:
        """See IStoreIO."""
        contents = self._files.get(path)
        if contents is None or contents.size != size:
            assert contents is None or contents.size == 0, f"{path} would change its length"
            self._require_directory(path)
            self.before_write(path, 0)
            contents = self._enter(path, TrackedContents(size))
            contents.modified_ms = self.now_ms()
        return _File(self, path, contents)

    def clear_from(self, path: str, position: int) -> None:
        """See IStoreIO."""
        contents = self._contents(path)
        self.before_write(path, 0)
        contents.write(position, bytes(contents.size - position))

    def rewrite(self, path: str) -> None:
        """See IStoreIO."""
        contents = self._contents(path)
        self.before_write(path, 0)
        contents.write(0, bytes(contents.data))

    def sync_path(self, path: str) -> None:
        """See IStoreIO."""
        if path not in self._directories:
            self.sync_contents(path, self._contents(path))
            return
        # The journal keeps the names whose sync failed, and tries to write them again.
        self.before_sync(path)
        self._apply(self._changes.pop(path, []))

    def read_file(self, path: str) -> bytes:
        """See IStoreIO."""
        return bytes(self._contents(path).data)

    def write_file(self, path: str, data: bytes) -> None:
        """See IStoreIO."""
        self._require_directory(path)
        if path in self._directories:
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        self._enter(path, self._new_contents(path, data))

    def write_file_atomically(
        self, path: str, data: bytes, keep_backup: bool = False, is_private: bool = False
    ) -> None:
        """See IStoreIO."""
        self._require_directory(path)
        contents = self._new_contents(path, data)
        self.sync_contents(path, contents)
        if keep_backup and path in self._files:
            self._enter(path + ".bak", self._files[path])
        self._enter(path, contents)
        self.sync_path(_parent(path))

    def _new_contents(self, path: str, data: bytes) -> TrackedContents:
        """Create a file without a name."""
        contents = TrackedContents(len(data))
        self.write(path, contents, 0, data)
        return contents

    def _enter(self, path: str, contents: TrackedContents) -> TrackedContents:
        """Give a file a name."""
        self._files[path] = contents
        self._note(path, contents)
        return contents

    def _contents(self, path: str) -> TrackedContents:
        super()._contents(path)
        return self._files[path]

    # --- directories

    def make_directory(self, path: str) -> None:
        """See IStoreIO."""
        before = set(self._directories)
        super().make_directory(path)
        for directory in sorted(self._directories - before):
            life = self._lives[directory] = _Directory()
            self._note(directory, life)

    def remove(self, path: str) -> None:
        """See IStoreIO."""
        self._count_to_cut()
        before = self._files.keys() | self._directories
        super().remove(path)
        removed_paths = before - self._files.keys() - self._directories
        for each in sorted(removed_paths, reverse=True):
            self._note(each, None)
            self._lives.pop(each, None)


def _parent(path: str) -> str:
    """The directory that holds a path."""
    return path.rpartition("/")[0] or "/"
