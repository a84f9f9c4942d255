"""Opens the files of a commit log, on this machine or on a file system that pyarrow supports.

A path refers to this machine unless it is a URI such as ``s3://bucket/store`` or
``hdfs://host:8020/store``. ``pyarrow.fs`` reads such a URI, and each task opens its files by the
URI. Files on this machine are read by system calls, without pyarrow.

A URI may contain a password. Errors and log lines show neither the password nor the part of the URI
after a question mark.

Source: FileSystem.from_uri of pyarrow 18 to 26.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from twistmq.broker.store.inspect.files import Reader, is_number, segment_sizes
from twistmq.broker.store.regular_file import open_regular
from twistmq.protocol.errors import StoreError

__all__ = ["LogFile", "LogFolder", "file_system", "open_folder", "open_log_file", "shown_path"]

_FOLDER: Final = "commitlog"
#: The names of file systems in Hadoop, with their names in pyarrow.
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
#: The smallest size of a request to a remote file, and the size of the requests that search for the
#: end of the written data.
_BLOCK_SIZE: Final = 1 << 20
_SCAN_SIZE: Final = 32 << 20
#: The number of digits in the name of a file, which is an offset, and the largest offset: a Java
#: long.
_NAME_LENGTH: Final = 20
_LONG_MAX: Final = 2**63 - 1
#: The errors for a path that is gone or is not a regular file.
_NO_FILE: Final = (errno.ENOENT, errno.EINVAL, errno.EISDIR)
_SECRET: Final = re.compile(r"(://[^/@:]*):[^/@]*@")


class LogFile(Protocol):
    """A file that is open for reading."""

    def read(self, position: int, size: int) -> bytes:
        """Read a range; returns fewer bytes at the end of the file."""

    def data_from(self, position: int) -> int | None:
        """Find the first position from here on that may have data; None if there is not one."""

    def close(self) -> None:
        """Close the file."""


class LogFolder(Protocol):
    """A folder of commit-log files, each named after its first offset in the log."""

    def sizes(self, strange: dict[str, str]) -> dict[int, int]:
        """Return the lengths of the files by their first offsets.

        :param strange: receives the paths that have the name of a log file but are something else,
            each with a description of its kind.
        """

    def path(self, start: int) -> str:
        """Return the path of a file, which may be missing, for :func:`open_log_file`."""

    def head(self, start: int, size: int) -> bytes:
        """Read the first bytes of a file; empty if the file is gone."""

    def written_end(self, start: int) -> int:
        """Find the position after the last byte of a file that is not zero."""

    #: Whether a broker may write to the files during the read.
    is_live: bool


def shown_path(path: str) -> str:
    """Return a path without secrets, for errors and log lines."""
    return _SECRET.sub(r"\1:***@", path).partition("?")[0] if _is_remote(path) else path


def file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the path on it.

    :raises StoreError: when pyarrow does not support it, or it is not available.
    """
    scheme, colon, rest = uri.partition(":")
    with _named(uri):
        system_and_path: tuple[Any, str] = import_module("pyarrow.fs").FileSystem.from_uri(
            _SCHEMES.get(scheme.lower(), scheme) + colon + rest)
    return system_and_path


def open_folder(path: str) -> LogFolder:
    """Open the folder of a log.

    :param path: the folder of the log, or of a store that has the log in ``commitlog``.
    :raises StoreError: when a remote file system is not available.
    """
    if _is_remote(path):
        return _RemoteFolder.find(path)
    root = Path(_local(path))
    return _LocalFolder(root / _FOLDER if (root / _FOLDER).is_dir() else root)


def open_log_file(path: str, data_end: int | None = None) -> LogFile:
    """Open a file.

    :param data_end: the position after the last byte that is not zero; None if it is unknown or may
        grow.
    :raises FileNotFoundError: when the file is gone.
    :raises OSError: when it is not a regular file.
    :raises StoreError: when a remote file system refuses it.
    """
    if not _is_remote(path):
        return _LocalFile(open_regular(_local(path)))
    system, system_path = file_system(path)
    with _named(path):
        return _RemoteFile(path, system.open_input_file(system_path), data_end)


class _LocalFile:
    """A file on this machine.

    It is read by system calls and not mapped into memory, because its owner may truncate it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, position: int, size: int) -> bytes:
        piece = os.pread(self._descriptor, size, position)
        if len(piece) == size:
            return piece
        parts = [piece]
        while piece and (remaining := size - sum(map(len, parts))):
            piece = os.pread(self._descriptor, remaining, position + size - remaining)
            parts.append(piece)
        return b"".join(parts)

    def data_from(self, position: int) -> int | None:
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            # Any other error means that the file system does not report holes.
            return None if error.errno == errno.ENXIO else position

    def close(self) -> None:
        os.close(self._descriptor)


class _LocalFolder:
    """A folder on this machine."""

    is_live = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def sizes(self, strange: dict[str, str]) -> dict[int, int]:
        kinds: dict[Path, str] = {}
        sizes = segment_sizes(self._directory, kinds)
        strange.update({str(path): kind for path, kind in kinds.items()})
        return sizes

    def path(self, start: int) -> str:
        return str(self._directory / f"{start:020d}")

    def head(self, start: int, size: int) -> bytes:
        try:
            with open(open_regular(self.path(start)), "rb") as file:
                return file.read(size)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            return b""

    def written_end(self, start: int) -> int:
        reader = Reader()
        try:
            return reader.written_end(Path(self.path(start)))
        finally:
            reader.close()


class _RemoteFile:
    """A file that pyarrow opened. Consecutive short reads share one request."""

    def __init__(self, path: str, file: Any, data_end: int | None) -> None:
        self._path = path
        self._file = file
        self._data_end = data_end
        with _named(path):
            self.size: int = file.size()
        #: The block that the last short read fetched, and its position.
        self._block = b""
        self._block_at = 0

    def read(self, position: int, size: int) -> bytes:
        if size >= _BLOCK_SIZE:
            return self._asked(position, size)
        at = position - self._block_at
        if at < 0 or at + size > len(self._block):
            self._block, self._block_at, at = self._asked(position, _BLOCK_SIZE), position, 0
        return self._block[at : at + size]

    def _asked(self, position: int, size: int) -> bytes:
        size = min(size, self.size - position)
        if size <= 0:
            return b""
        with _named(self._path):
            return bytes(self._file.read_at(size, position))

    def data_from(self, position: int) -> int | None:
        return None if self._data_end is not None and position >= self._data_end else position

    def close(self) -> None:
        self._file.close()


class _RemoteFolder:
    """A folder on a file system of pyarrow.

    :param uri: the URI of the folder.
    :param system_path: the path of the folder on the file system.
    """

    is_live = False

    def __init__(self, uri: str, system: Any, system_path: str) -> None:
        self._uri = uri
        self._system = system
        self._system_path = system_path

    @classmethod
    def find(cls, uri: str) -> _RemoteFolder:
        """Find the folder of a log from its URI or from the URI of its store."""
        system, system_path = file_system(uri)
        fs = import_module("pyarrow.fs")
        inner = f"{system_path.rstrip('/')}/{_FOLDER}"
        with _named(uri):
            [info] = system.get_file_info([inner])
        if info.type == fs.FileType.Directory:
            return cls(_below(uri, _FOLDER), system, inner)
        return cls(uri, system, system_path)

    def sizes(self, strange: dict[str, str]) -> dict[int, int]:
        fs = import_module("pyarrow.fs")
        with _named(self._uri):
            infos = self._system.get_file_info(
                fs.FileSelector(self._system_path, allow_not_found=True))
        sizes: dict[int, int] = {}
        for info in infos:
            name = info.base_name
            if not is_number(name):
                continue
            kind = "" if info.type == fs.FileType.File else (
                "a folder" if info.type == fs.FileType.Directory else "of another kind")
            if not kind and (len(name) != _NAME_LENGTH or int(name) > _LONG_MAX):
                kind = "a file whose name is not an offset of 20 digits"
            if kind:
                strange[shown_path(_below(self._uri, name))] = kind
            else:
                sizes[int(name)] = info.size
        return sizes

    def path(self, start: int) -> str:
        return _below(self._uri, f"{start:020d}")

    def head(self, start: int, size: int) -> bytes:
        try:
            file = self._opened(start)
        except FileNotFoundError:
            return b""
        try:
            return file.read(0, size)[:size]
        finally:
            file.close()

    def written_end(self, start: int) -> int:
        try:
            file = self._opened(start)
        except FileNotFoundError:
            return 0
        try:
            end = file.size
            while end > 0:
                begin = max(end - _SCAN_SIZE, 0)
                data = file.read(begin, end - begin).rstrip(b"\0")
                if data:
                    return begin + len(data)
                end = begin
            return 0
        finally:
            file.close()

    def _opened(self, start: int) -> _RemoteFile:
        path = self.path(start)
        with _named(path):
            return _RemoteFile(path, self._system.open_input_file(
                f"{self._system_path.rstrip('/')}/{start:020d}"), None)


def _is_remote(path: str) -> bool:
    return "://" in path and not path.lower().startswith("file:")


def _local(path: str) -> str:
    """Return a path on this machine from a text that may be a URI of the scheme file."""
    return unquote(urlsplit(path).path) if path.lower().startswith("file:/") else path


def _below(uri: str, name: str) -> str:
    """Add a name to the path of a URI."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


@contextmanager
def _named(uri: str) -> Iterator[None]:
    """Convert an error of pyarrow to one that names the path, without the secrets of its URI.

    :raises FileNotFoundError: unchanged.
    :raises StoreError: for any other error.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, NotImplementedError, ImportError, KeyError) as error:
        text = " ".join(str(error).split()).replace(uri, shown_path(uri))
        parts = urlsplit(uri)
        for secret in (parts.password, unquote(parts.password or "")):
            if secret:
                text = text.replace(secret, "***")
        raise StoreError(f"option path: {shown_path(uri)}: {text}") from None
