"""Read-only access to the files of a store: it takes no lock, uses no map and changes nothing.

Plain reads are used because a map of a file that its owner truncates kills the process, and reading
a hole through a map allocates disk space on some file systems. A file that its owner removes during
the check reads as empty and is recorded in ``gone``. Memory is bounded by limits for open files and
cached blocks.
"""

from __future__ import annotations

import errno
import io
import os
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from twistmq.broker.store.regular_file import file_kind, open_regular
from twistmq.broker.store.segment_files import segment_path

__all__ = ["Reader", "Segments", "common_size", "is_number", "segment_sizes"]

_OPEN_MAX: Final = 128
#: The size of a block in bytes, and the number of blocks that are kept: 16 MB. The size is a
#: multiple of the 20 bytes of a queue entry.
_BLOCK_SIZE: Final = 8_000
_BLOCKS_MAX: Final = 2_000
#: The number of digits in a file's name, which is an offset: a Java long.
_NAME_LENGTH: Final = 20
_LONG_MAX: Final = 2**63 - 1
#: The number of bytes read at a time when the end of the written data is searched for.
_SCAN_SIZE: Final = 1 << 20


class Reader:
    """Reads files at positions, keeping few of them open."""

    def __init__(self) -> None:
        #: Paths of files that have disappeared.
        self.gone: set[Path] = set()
        #: Paths that are not regular files, with their kinds. They are not read.
        self.strange: dict[Path, str] = {}
        self._open: OrderedDict[Path, io.FileIO] = OrderedDict()
        self._blocks: OrderedDict[tuple[Path, int], bytes] = OrderedDict()

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Read a range; returns fewer bytes where the file ends.

        :raises OSError: when the disk fails.
        """
        file = self._file(path)
        if file is None:
            return b""
        file.seek(position)
        parts: list[bytes] = []
        while size > 0 and (part := file.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def cached(self, path: Path, position: int, size: int) -> bytes:
        """Read through a cache of blocks, for files that do not change and are read alternately."""
        first, last = position // _BLOCK_SIZE, (position + size - 1) // _BLOCK_SIZE
        if first == last:
            at = position - first * _BLOCK_SIZE
            return self._block(path, first)[at : at + size]
        joined = b"".join(self._block(path, number) for number in range(first, last + 1))
        at = position - first * _BLOCK_SIZE
        return joined[at : at + size]

    def written_end(self, path: Path) -> int:
        """Return the position after the last byte that is not zero; holes are not read."""
        for begin, end in reversed(list(self._extents(path))):
            while begin < end:
                start = max(begin, end - _SCAN_SIZE)
                data = self.read(path, start, end - start).rstrip(b"\0")
                if data:
                    return start + len(data)
                end = start
        return 0

    def sizes(self, directory: Path) -> dict[int, int]:
        """See :func:`segment_sizes`; files that are not regular are added to ``strange``."""
        return segment_sizes(directory, self.strange)

    def is_regular(self, path: Path) -> bool:
        """Return whether an existing path is a regular file; if not, add it to ``strange``."""
        return not self._note_strange(path)

    def _note_strange(self, path: Path) -> bool:
        kind, _ = _look(path)
        if kind:
            self.strange[path] = kind
        return bool(kind)

    def close(self) -> None:
        """Close every file."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._blocks.clear()

    def _file(self, path: Path) -> io.FileIO | None:
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        if path in self.strange:
            return None
        try:
            file = io.FileIO(open_regular(path))
        except FileNotFoundError:
            self.gone.add(path)
            return None
        except OSError as error:
            if not self._note_strange(path):
                raise error
            return None
        self._open[path] = file
        if len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)[1].close()
        return file

    def _block(self, path: Path, number: int) -> bytes:
        key = (path, number)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = self.read(path, number * _BLOCK_SIZE, _BLOCK_SIZE)
            if len(self._blocks) > _BLOCKS_MAX:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(key)
        return block

    def _extents(self, path: Path) -> Iterator[tuple[int, int]]:
        """Yield the ranges of a file that may contain data: (begin, end)."""
        file = self._file(path)
        if file is None:
            return
        end = file.seek(0, os.SEEK_END)
        position = 0
        while position < end:
            try:
                begin = file.seek(position, os.SEEK_DATA)
                position = file.seek(begin, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    # Only ENXIO means that no data follows. With other errors, the file system does
                    # not support holes.
                    yield position, end
                return
            yield begin, position


class Segments:
    """A directory of equally long files that together form one long file.

    :param sizes: lengths by start offset, as ``segment_sizes`` returns them.
    :param file_size: the length that each file should have, in bytes.
    """

    def __init__(
        self, reader: Reader, directory: Path, sizes: dict[int, int], file_size: int
    ) -> None:
        self.directory = directory
        self.sizes = sizes
        self.file_size = file_size
        self.starts = sorted(sizes)
        self.reader = reader
        self._paths = {start: self._path(start) for start in self.starts}

    def path(self, start: int) -> Path:
        """Return the path of the file that starts here, whether or not it exists."""
        return self._paths.get(start) or self._path(start)

    def _path(self, start: int) -> Path:
        return Path(segment_path(str(self.directory), start))

    def start_of(self, offset: int) -> int | None:
        """Return the start of the file that contains an offset; None when there is no such file."""
        index = bisect_right(self.starts, offset) - 1
        if index < 0 or offset >= self.starts[index] + self.file_size:
            return None
        return self.starts[index]

    def locate(self, offset: int) -> tuple[Path, int]:
        """Return the file of an offset, whether or not it exists, and the position in the file."""
        start = self.start_of(offset)
        if start is None:
            start = offset - offset % max(self.file_size, 1)
        return self.path(start), offset - start

    def cached(self, offset: int, size: int) -> bytes:
        """Read within one file through the cache; returns fewer bytes where it ends."""
        start = self.start_of(offset)
        if start is None:
            return b""
        return self.reader.cached(self.path(start), offset - start, size)

    def is_gone(self, offset: int) -> bool:
        """Return whether the file of an offset was removed during the check."""
        return self.locate(offset)[0] in self.reader.gone

    def missing(self) -> Iterator[range]:
        """Yield the start offsets of the files that are missing in between, as one range per gap.

        A gap may be so wide that its files cannot be counted one by one.
        """
        for before, after in zip(self.starts, self.starts[1:], strict=False):
            gap = range(before + self.file_size, after, max(self.file_size, 1))
            if gap:
                yield gap

    def written_end(self) -> int:
        """Return the offset after the last byte that is not zero: nothing is written after it."""
        for start in reversed(self.starts):
            end = self.reader.written_end(self.path(start))
            if end:
                return start + end
        return self.starts[0] if self.starts else 0


def segment_sizes(directory: Path, strange: dict[Path, str] | None = None) -> dict[int, int]:
    """Return the lengths of the files in a directory by start offset; other names are left out.

    :param strange: receives the paths with such names that are not regular files, or whose number
        is not written as a broker writes it, with the reason.
    """
    sizes: dict[int, int] = {}
    for path in directory.iterdir() if directory.is_dir() else ():
        if not is_number(path.name):
            continue
        kind, size = _look(path)
        if not kind and size is None:
            continue
        if not kind and (len(path.name) != _NAME_LENGTH or int(path.name) > _LONG_MAX):
            kind = "a file whose name is not an offset of 20 digits"
        if not kind:
            sizes[int(path.name)] = size or 0
        elif strange is not None:
            strange[path] = kind
    return sizes


def _look(path: Path) -> tuple[str, int | None]:
    """Return the kind of a path that is not a regular file, and its size; None if it has gone."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return ("a link that leads nowhere" if path.is_symlink() else ""), None
    except OSError as error:
        return str(error.strerror), None
    return file_kind(state.st_mode), state.st_size


def is_number(name: str) -> bool:
    """Return whether a name consists only of decimal digits, whatever its length."""
    return name.isascii() and name.isdecimal()


def common_size(sizes: Iterable[int]) -> int:
    """Return the most frequent length, or the largest of several such; 0 without files."""
    counts = Counter(sizes)
    return max(counts, key=lambda size: (counts[size], size), default=0)
