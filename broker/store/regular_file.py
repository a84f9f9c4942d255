"""Opening files of unknown kind: only regular files are read, so that opening never blocks.

A store may come from an untrusted source, or a person may have damaged it. Opening a named pipe
waits for the other side for ever, a device returns bytes without an end, and a folder cannot be
read as a file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["NEW_FILE", "file_kind", "named_kind", "open_regular", "read_named", "read_regular",
           "require_regular"]

#: The flags that create a file or make it empty.
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


def file_kind(mode: int) -> str:
    """Return the kind of file that a mode of ``os.stat`` stands for; empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "not a regular file")


def open_regular(path: str | Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a file and return its descriptor.

    :param flags: flags of ``os.open``; the file is created if they include O_CREAT.
    :raises OSError: when it cannot be opened, or is not a regular file.
    """
    try:
        require_regular(os.stat(path).st_mode, path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        # Another file may have replaced it since.
        require_regular(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | Path, size_max: int | None = None) -> bytes:
    """Read a whole file.

    :param size_max: the maximum size in bytes; None means that there is no limit.
    :raises OSError: when it cannot be read, is not a regular file, or is longer.
    """
    with open(open_regular(path), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size_max is not None and size > size_max:
            raise OSError(errno.EFBIG, f"it has {size} bytes, the limit is {size_max}", str(path))
        return file.readall()


def named_kind(path: str | Path) -> str:
    """Return the kind of a file that a user names in a setting; empty when it can be read.

    The null device can be read, and so can a pipe that is already open in this process: a shell
    passes one for ``<(command)``. A named pipe would wait for a writer that may never come.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return ""  # The error of opening it states the reason.
    target = os.path.realpath(path)
    if target == os.devnull or (stat.S_ISFIFO(mode) and target.startswith("/proc/")):
        return ""
    return file_kind(mode)


def read_named(path: str | Path) -> bytes:
    """Read a whole file that a user names in a setting.

    :raises OSError: when it cannot be read, or is of another kind; see :func:`named_kind`.
    """
    if named_kind(path):
        return read_regular(path)  # It raises the error.
    with open(path, "rb") as file:
        return file.read()


def require_regular(mode: int, path: str | Path) -> None:
    """Raise an error for a file that is not a regular file.

    :param mode: the mode that ``os.stat`` returns.
    :raises OSError: when it is of another kind; the text states which one.
    """
    kind = file_kind(mode)
    if kind:
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"it is {kind}, and not a regular file", str(path))
