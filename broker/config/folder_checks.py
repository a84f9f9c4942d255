"""Checks whether a start could use the folders and files that it needs, without changing them.

``tempfile`` creates an empty file and removes it, because no other check shows for every user and
every mount whether a folder is writable.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twistmq.broker.config.settings import Settings
from twistmq.protocol.errors import StoreDamaged

__all__ = ["is_locked", "is_own_store", "lock_holder", "nearest_folder", "not_writable",
           "require_size"]

_FLOCK: Final = struct.Struct("hhqqi4x")
#: The largest number of folders without a file that are searched.
_EMPTY_MAX: Final = 1000


def nearest_folder(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists; the result may also be a file.

    :raises OSError: when the path cannot be the path of a folder.
    """
    while not _is_there(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except ValueError as error:  # a NUL
        raise OSError(0, str(error)) from None
    return True


def not_writable(folder: Path) -> str:
    """Return why no file can be created in a folder or in its nearest parent; "" if one can."""
    try:
        existing = nearest_folder(folder)
        if not existing.is_dir():
            return f"{existing} is not a folder"
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".twistmq-"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def is_own_store(settings: Settings) -> bool:
    """Return whether the settings are for the store that this process has open."""
    running = settings.running
    name = "storePathRootDir"
    return running is not None and (os.path.realpath(running.text(name))
                                    == os.path.realpath(settings.text(name)))


def require_size(
    settings: Settings, setting: str, folder: Path, size: int, depth: int = 0, *,
    is_made: bool = True,
) -> None:
    """Make sure that a setting gives the size of the existing files to which it applies.

    All of the files have the same length, so checking the first one is enough. Empty files are left
    by a crash. A running broker creates the files with the size that the setting had at its start,
    so no tool may change the setting.

    :param folder: the folder of the files according to the settings.
    :param size: the size of a file, bytes.
    :param depth: the number of folder levels between this folder and the files.
    :param is_made: whether the broker makes such files.
    :raises SettingsError: when a running broker creates the files with another size.
    :raises StoreDamaged: when a file has another size.
    """
    running = settings.running
    if running is not None and is_made and is_own_store(settings) and (
            settings.value(setting) != running.value(setting)):
        raise settings.error(setting, "is not the size of the files that this broker makes: it "
                                      "can only be changed in the file, with another store")
    for _, path in zip(range(_EMPTY_MAX), _files(folder, depth), strict=False):
        file_size = path.stat().st_size
        if file_size == size:
            return
        if file_size:
            raise StoreDamaged(
                f"{path} has {file_size} bytes, but the settings require {size} ({setting}): it "
                "was written with another file size, or it was truncated")


def _files(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir()) if not depth else list(folder.iterdir())
    except (OSError, ValueError):
        return
    for entry in entries:
        if depth:
            yield from _files(entry, depth - 1)
        elif entry.name.isdecimal() and entry.is_file():
            yield entry


def is_locked(folder: Path) -> bool:
    """Return whether a broker has a store's folder open; not for the folder of this process."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def lock_holder(lock: Path) -> int | None:
    """Return the id of the process that holds a store's lock; 0 if unknown, None if it is free.

    Apache's broker takes the lock with fcntl, and this broker also takes a lock with flock. The
    function must not be called for a lock of this process, because closing the file releases the
    lock of fcntl.
    """
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return None
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
        if kind != fcntl.F_UNLCK:
            return max(int(process), 0)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        return None
    finally:
        os.close(descriptor)
