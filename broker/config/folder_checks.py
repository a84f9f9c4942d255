"""Folders and files that a start needs: whether it could use them, without changing any.

``tempfile`` makes an empty file and removes it: no other check says for every user and every mount
whether a folder can be written.
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
#: Folders without a file that are looked into, at most.
_EMPTY_MAX: Final = 1000


def nearest_folder(folder: Path) -> Path:
    """The folder, or the one above it that is there; it may be what is no folder.

    :raises OSError: when the path cannot be one.
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
    """Why no file can be made in a folder, or a folder's be made first; "" when one can."""
    try:
        there = nearest_folder(folder)
        if not there.is_dir():
            return f"{there} is not a folder"
        with tempfile.NamedTemporaryFile(dir=there, prefix=".twistmq-"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def is_own_store(settings: Settings) -> bool:
    """Whether settings are for the store that this process has open."""
    running = settings.running
    name = "storePathRootDir"
    return running is not None and (os.path.realpath(running.text(name))
                                    == os.path.realpath(settings.text(name)))


def require_size(
    settings: Settings, setting: str, folder: Path, size: int, depth: int = 0, *,
    is_made: bool = True,
) -> None:
    """Make sure that a setting is the size of the files it is about.

    They are all of one length, so the first speaks for the others. An empty file is what a crash
    leaves. A broker that runs makes them of the size it has, so no tool may change it.

    :param folder: of the files, as the settings say.
    :param size: that of a file, bytes.
    :param depth: folders between this one and the files.
    :param is_made: whether the broker makes such files.
    :raises SettingsError: when a broker that runs makes them of another size.
    :raises StoreDamaged: when a file has another size.
    """
    running = settings.running
    if running is not None and is_made and is_own_store(settings) and (
            settings.value(setting) != running.value(setting)):
        raise settings.error(setting, "is not the size of the files that this broker makes: it is "
                                      "changed in the file, with another store")
    for _, path in zip(range(_EMPTY_MAX), _files(folder, depth), strict=False):
        found = path.stat().st_size
        if found == size:
            return
        if found:
            raise StoreDamaged(
                f"{path} has {found} bytes, the settings say {size} ({setting}): it was written "
                "with another file size, or it was cut")


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
    """Whether a broker has a folder of a store's open; not to be asked of this process's own."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # of what has no locks
        return False
    finally:
        os.close(descriptor)
    return False


def lock_holder(lock: Path) -> int | None:
    """The process that holds a store's lock: its id, 0 if unknown; None if the lock is free.

    Apache's broker takes the lock of fcntl, ours that of flock as well. Not to be asked of a lock
    of this process: to close the file gives up the lock of fcntl.
    """
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            return max(int(process), 0)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        return None
    finally:
        os.close(descriptor)
