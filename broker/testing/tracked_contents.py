"""The contents of a file of a PowerLossDisk, as the process reads them and on the disk.

The writes since the last sync are kept in order, so that a loss of power can leave each sector in
any of its earlier states.
"""

from __future__ import annotations

import random
from typing import Final

from twistmq.broker.testing.disk import FileContents

__all__ = ["Copies", "TrackedContents"]

#: The unit of tracking: the smallest number of bytes that a disk writes at once.
_SECTOR: Final = 512
#: The sizes of the unit that a crash keeps or loses; disks of both kinds are in use.
_UNITS: Final = (512, 4096)


class Copies:
    """The bytes of a file, as a memory map returns them."""

    def __init__(self, contents: TrackedContents) -> None:
        self._contents = contents

    def __getitem__(self, key: slice, /) -> bytes:
        return bytes(self._contents.data[key])


class TrackedContents(FileContents):
    """The bytes of a file as the process reads them, and its bytes on the disk."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.data: bytearray = bytearray(size)  # type: ignore[assignment]
        self.written = 0
        self.modified_ms = 0
        #: The bytes that survive a loss of power.
        self.durable = bytearray(size)
        #: Whether the length of the file survives as well.
        self.has_size = size == 0
        #: Pairs of (position, bytes) that were written since the last sync, in order.
        self.pending: list[tuple[int, bytes]] = []
        #: The sectors that a failed sync left unchanged on the disk.
        self.dropped: set[int] = set()

    def __deepcopy__(self, _: object) -> TrackedContents:
        twin = TrackedContents(0)
        twin.size, twin.written, twin.modified_ms = self.size, self.written, self.modified_ms
        twin.data, twin.durable = bytearray(self.data), bytearray(self.durable)
        twin.has_size = self.has_size
        twin.pending, twin.dropped = list(self.pending), set(self.dropped)
        return twin

    def write(self, position: int, data: bytes) -> None:
        """Change bytes as the process reads them."""
        if data:
            self.data[position : position + len(data)] = data
            self.pending.append((position, data))

    def sync(self) -> None:
        """Make the written bytes durable."""
        for sector in self._touched(_SECTOR):
            part = slice(sector * _SECTOR, (sector + 1) * _SECTOR)
            self.durable[part] = self.data[part]
            self.dropped.discard(sector)
        self.pending.clear()
        self.has_size = True

    def fail_sync(self) -> None:
        """Drop the pending writes, as a kernel does after a failed sync."""
        self.dropped |= self._touched(_SECTOR)
        self.pending.clear()

    def crash(self, chance: random.Random) -> None:
        """Take the state after a loss of power."""
        image = bytearray(self.durable)
        if not self.has_size and chance.random() < 0.5:
            image.clear()
        else:
            for sector in sorted(self.dropped):
                if chance.random() < 0.5:
                    part = slice(sector * _SECTOR, (sector + 1) * _SECTOR)
                    image[part] = self.data[part]
            self._keep_some(image, chance)
        self.size = len(image)
        self.data = image
        self.durable = bytearray(image)
        self.written = min(self.written, self.size)
        self.has_size = True
        self.pending.clear()
        self.dropped.clear()

    def _keep_some(self, image: bytearray, chance: random.Random) -> None:
        """Give each unit one of its states."""
        unit = chance.choice(_UNITS)
        for number in sorted(self._touched(unit)):
            low, high = number * unit, (number + 1) * unit
            writes = [(position, data) for position, data in self.pending
                      if position < high and position + len(data) > low]
            kept_count = chance.choice((0, len(writes), chance.randint(0, len(writes))))
            for position, data in writes[:kept_count]:
                _put(image, position, data, low, high)
            if kept_count < len(writes) and chance.random() < 0.5:
                position, data = writes[kept_count]
                begin, end = max(low, position), min(high, position + len(data))
                if not any(image[begin:end]):
                    _put(image, position, data, begin, chance.randint(begin, end))
                    return

    def _touched(self, unit: int) -> set[int]:
        """Return the numbers of the units that were written."""
        return {number for position, data in self.pending
                for number in range(position // unit, (position + len(data) - 1) // unit + 1)}


def _put(image: bytearray, position: int, data: bytes, low: int, high: int) -> None:
    """Write the part of ``data`` that lies between ``low`` and ``high``."""
    begin, end = max(low, position), min(high, position + len(data))
    image[begin:end] = data[begin - position : end - position]
