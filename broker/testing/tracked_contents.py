"""The contents of a file of a PowerLossDisk: as the process reads them, and on the disk.

The writes since the last sync are kept in order, so that a loss of power can leave each sector in
any state it went through.
"""

from __future__ import annotations

import random
from typing import Final

from twistmq.broker.testing.disk import FileContents

__all__ = ["Copies", "TrackedContents"]

#: Bytes that are tracked by themselves: what a disk writes at once, at the least.
_SECTOR: Final = 512
#: Sizes of the unit in which a crash keeps or loses: disks of both kinds are around.
_UNITS: Final = (512, 4096)


class Copies:
    """A file's bytes as a map gives them."""

    def __init__(self, contents: TrackedContents) -> None:
        self._contents = contents

    def __getitem__(self, key: slice, /) -> bytes:
        return bytes(self._contents.data[key])


class TrackedContents(FileContents):
    """A file's bytes as the process reads them, and its bytes on the disk."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.data: bytearray = bytearray(size)  # type: ignore[assignment]
        self.written = 0
        self.modified_ms = 0
        #: Bytes that no loss of power takes away.
        self.durable = bytearray(size)
        #: Whether its length is one of them.
        self.has_size = size == 0
        #: (position, bytes) written since the last sync, in order.
        self.pending: list[tuple[int, bytes]] = []
        #: Sectors that a failed sync left as they were on the disk.
        self.dropped: set[int] = set()

    def __deepcopy__(self, _: object) -> TrackedContents:
        twin = TrackedContents(0)
        twin.size, twin.written, twin.modified_ms = self.size, self.written, self.modified_ms
        twin.data, twin.durable = bytearray(self.data), bytearray(self.durable)
        twin.has_size = self.has_size
        twin.pending, twin.dropped = list(self.pending), set(self.dropped)
        return twin

    def write(self, position: int, data: bytes) -> None:
        """Change bytes for the process."""
        if data:
            self.data[position : position + len(data)] = data
            self.pending.append((position, data))

    def sync(self) -> None:
        """Make what was written durable."""
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
        """Become what a loss of power leaves."""
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
        """Put one of its states into each unit."""
        unit = chance.choice(_UNITS)
        for number in sorted(self._touched(unit)):
            low, high = number * unit, (number + 1) * unit
            writes = [(position, data) for position, data in self.pending
                      if position < high and position + len(data) > low]
            kept = chance.choice((0, len(writes), chance.randint(0, len(writes))))
            for position, data in writes[:kept]:
                _put(image, position, data, low, high)
            if kept < len(writes) and chance.random() < 0.5:
                position, data = writes[kept]
                begin, end = max(low, position), min(high, position + len(data))
                if not any(image[begin:end]):
                    _put(image, position, data, begin, chance.randint(begin, end))
                    return

    def _touched(self, unit: int) -> set[int]:
        """Numbers of the units that were written to."""
        return {number for position, data in self.pending
                for number in range(position // unit, (position + len(data) - 1) // unit + 1)}


def _put(image: bytearray, position: int, data: bytes, low: int, high: int) -> None:
    """Write what of ``data`` lies from ``low`` to ``high``."""
    begin, end = max(low, position), min(high, position + len(data))
    image[begin:end] = data[begin - position : end - position]
