"""Recently stored half messages: most of them are ended soon, without a read of the commit log."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from twistmq.broker.api import MessageRecord, StoredMessage

__all__ = ["Half", "RecentHalves"]

#: Limit of the size of all kept half messages, in bytes of the log.
SIZE_MAX: Final = 4 * 1024 * 1024


class Half(NamedTuple):
    """A half message."""

    #: The record that was stored or read back, with its place and its half queue.
    message: MessageRecord | StoredMessage
    #: The parsed properties; those that the broker adds to every message may be missing.
    properties: dict[str, str]


class RecentHalves:
    """The latest half messages by commit-log offset; the oldest make room for new ones."""

    def __init__(self, size_max: int = SIZE_MAX) -> None:
        self._size_max = size_max
        self._halves: OrderedDict[int, Half] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._halves)

    def keep(self, record: MessageRecord, properties: dict[str, str]) -> None:
        """Keep a half message that was stored."""
        self._halves[record.physical_offset] = Half(record, properties)
        self._size += record.size
        while self._size > self._size_max:
            self.drop(next(iter(self._halves)))

    def find(self, log_offset: int) -> Half | None:
        """Return the half message at an offset of the commit log, if it is kept."""
        return self._halves.get(log_offset)

    def drop(self, log_offset: int) -> None:
        """Drop the half message at an offset of the commit log, if it is kept."""
        half = self._halves.pop(log_offset, None)
        if half is not None:
            self._size -= half.message.size

    def clear(self) -> None:
        """Drop all half messages, because the log was cut."""
        self._halves.clear()
        self._size = 0
