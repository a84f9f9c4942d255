"""Opening files that may be anything: only a regular file is read, and nothing is waited for.

A store may be a stranger's, or have been damaged by hand. Opening a named pipe waits for the other
side for ever, a device gives bytes without an end, and a folder is not readable as a file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["file_kind", "open_regular", "read_regular"]

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


def file_kind(mode: int) -> str:
    """What a mode of ``os.stat`` says that a file is; empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "not a regular file")


def open_regular(path: str | Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a file; :returns: its descriptor.

    :param flags: of ``os.open``; the file is made if they say so.
    :raises OSError: when it cannot be opened, or is not a regular file.
    """
    try:
        _require_regular(os.stat(path).st_mode, path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        # Another file may have taken its place.
        _require_regular(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | Path, size_max: int | None = None) -> bytes:
    """Read a whole file.

    :param size_max: bytes; None: as many as there are.
    :raises OSError: when it cannot be read, is not a regular file, or is longer.
    """
    with open(open_regular(path), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size_max is not None and size > size_max:
            raise OSError(errno.EFBIG, f"it has {size} bytes, the limit is {size_max}", str(path))
        return file.readall()


def _require_regular(mode: int, path: str | Path) -> None:
    kind = file_kind(mode)
    if kind:
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"it is {kind}, and not a regular file", str(path))
