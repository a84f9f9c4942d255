"""File systems that run full, hang, fail and lose their power while processes use them.

    with BlockDisk(folder / "images", folder / "store") as disk:
        disk.fill()

A disk is an ext4 file system in a file, and this file is on another ext4 file system, which is in a
file as well. The upper one is what a process uses; the lower one is its device. When the lower one
is frozen, the device hangs: a process can write into the memory of the system, and its syncs wait.
When the lower one is shut down, the device fails with EIO. When the upper one is shut down, all
that was not synced is lost, as when the power fails. This needs the rights of root, and loop
devices.

Source: ioctl_fsfreeze(2), EXT4_IOC_SHUTDOWN in fs/ext4/ext4.h.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["BlockDisk"]

_FREEZE: Final = 0xC0045877
_THAW: Final = 0xC0045878
_SHUTDOWN: Final = 0x8004587D
#: The shutdown does not write the journal.
_AT_ONCE: Final = struct.pack("i", 2)
_MIB: Final = 1 << 20
#: The sizes of the writes of ``fill``. The large writes take most of the room, and the small ones
#: take the rest.
_FILL_SIZE: Final = 256 * 1024
_REST_SIZES: Final = (4096, 4096, 512)


class BlockDisk:
    """A disk of one process.

    :param images: the folder of its two files, and of the lower file system.
    :param top: the folder that the process uses; it is empty until the disk is mounted.
    :param size_mib: of the upper file system.
    """

    def __init__(self, images: Path, top: Path, size_mib: int = 512) -> None:
        self.top = top
        self._images, self._lower = images, images / "lower"
        self._size = size_mib * _MIB
        self._is_frozen = False

    def __enter__(self) -> Self:
        for folder in (self._lower, self.top):
            folder.mkdir(parents=True)
        _make(self._images / "device", self._size + self._size // 2)
        _mount(self._images / "device", self._lower)
        _make(self._lower / "device", self._size)
        _mount(self._lower / "device", self.top)
        (self.top / "lost+found").rmdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._unmount()

    def _unmount(self) -> None:
        self.thaw()
        for folder in (self.top, self._lower):
            subprocess.run(["umount", folder], check=True)

    # --- faults

    def fill(self) -> None:
        """Use up the room for data."""
        with (self.top / "filler").open("wb", buffering=0) as file:
            for size in (_FILL_SIZE, *_REST_SIZES):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass
                # The file system may have kept more for the data than it needs.
                os.fsync(file.fileno())

    def empty(self) -> None:
        """Make room again."""
        (self.top / "filler").unlink()

    def freeze(self) -> None:
        """Let the device hang from now on."""
        _control(self._lower, _FREEZE, bytes(4))
        self._is_frozen = True

    def thaw(self) -> None:
        """Let the device work again if it hangs."""
        if self._is_frozen:
            _control(self._lower, _THAW, bytes(4))
            self._is_frozen = False

    def fail(self) -> None:
        """Let the device fail from now on."""
        _control(self._lower, _SHUTDOWN, _AT_ONCE)

    def cut_power(self) -> None:
        """Lose all that was not synced; from now on, the files cannot be used."""
        _control(self.top, _SHUTDOWN, _AT_ONCE)

    def restore(self) -> None:
        """Make the disk work again after ``fail`` or ``cut_power``; no process may use it."""
        self._unmount()
        _mount(self._images / "device", self._lower)
        _mount(self._lower / "device", self.top)


def _make(path: Path, size: int) -> None:
    """Make a file that contains an empty file system, without room that only root may use."""
    with path.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", path], check=True)


def _mount(device: Path, folder: Path) -> None:
    subprocess.run(["mount", "-o", "loop", device, folder], check=True)


def _control(folder: Path, request: int, argument: bytes) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, request, argument)
    finally:
        os.close(descriptor)
