"""Read-only access to the extensions of a store's queues: single units, and the whole files.

Source: ConsumeQueueExt @5.3.3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twistmq.broker.store.consume_queue import ENTRY, ENTRY_SIZE
from twistmq.broker.store.extension_unit import (
    UNIT_SIZE_MAX,
    UNIT_SIZE_MIN,
    ExtensionUnit,
    is_address,
    place_of,
)
from twistmq.broker.store.inspect.files import Segments
from twistmq.broker.store.inspect.layout import StoreFiles, report_missing
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.record import StoredMessage

__all__ = ["ExtensionView", "UnitFinder"]

Key = tuple[str, int]
#: The number of bytes read at a time when units are counted.
_CHUNK_SIZE: Final = 1 << 16


class ExtensionView:
    """All extensions, with the files that existed when this object was created."""

    def __init__(self, store: StoreFiles) -> None:
        self._segments = store.queue_segments("consumequeue_ext")

    def __bool__(self) -> bool:
        return bool(self._segments)

    def unit(self, key: Key, address: int) -> ExtensionUnit | None:
        """Read the unit at an address of a queue; None when it is missing or incomplete."""
        files = self._segments.get(key)
        if files is None:
            return None
        position = place_of(address)
        data = files.cached(position, UNIT_SIZE_MIN)
        size = int.from_bytes(data[:2], "big", signed=True)
        return ExtensionUnit.decode(files.cached(position, size) if size > 0 else data)

    def locate(self, key: Key, address: int) -> tuple[Path, int] | None:
        """Return the file of an address and the position in it; None for a queue without files."""
        files = self._segments.get(key)
        return None if files is None else files.locate(place_of(address))

    def check(self, report: Report, running: bool) -> None:
        """Report faults that prevent reading the files from beginning to end.

        :param running: the newest unit may be incomplete.
        """
        for files in self._segments.values():
            for starts in files.missing():
                report_missing(report, files, starts)
            for start in files.starts:
                report.counts["extension files"] += 1
                is_last = start == files.starts[-1]
                if files.sizes[start] != files.file_size:
                    if files.sizes[start] or not is_last:
                        report.problem(
                            files.path(start), None, f"{files.file_size} bytes as the others "
                            "have", f"{files.sizes[start]} bytes")
                    continue
                self._check_file(files, start, report, running and is_last)

    def _check_file(self, files: Segments, start: int, report: Report, unsure: bool) -> None:
        """Follow the sizes of units, as Apache's broker does at its start."""
        at, data, data_at = 0, b"", 0
        while at + 2 <= files.file_size:
            if at + UNIT_SIZE_MAX > data_at + len(data) and data_at + len(data) < files.file_size:
                data = files.reader.read(files.path(start), at, _CHUNK_SIZE + UNIT_SIZE_MAX)
                data_at = at
            size = int.from_bytes(data[at - data_at : at - data_at + 2], "big", signed=True)
            if size <= 0:
                return
            if ExtensionUnit.decode(data, at - data_at) is None:
                if not unsure:
                    report.problem(files.path(start), at, "a unit or zeros", f"a size of {size}")
                return
            report.counts["extension units"] += 1
            at += size


class UnitFinder:
    """Finds the units of single records through their queue entries."""

    def __init__(self, store: StoreFiles) -> None:
        self._view = ExtensionView(store)
        self._queues = store.queue_segments() if self._view else {}

    def find(self, log_offset: int, message: StoredMessage) -> ExtensionUnit | None:
        """Return the unit of a record at a commit-log offset; or None."""
        key = message.topic, message.queue_id
        files = self._queues.get(key)
        if files is None:
            return None
        data = files.cached(message.queue_offset * ENTRY_SIZE, ENTRY_SIZE)
        if len(data) < ENTRY_SIZE:
            return None
        entry = ENTRY.unpack(data)
        if entry[0] != log_offset or not is_address(entry[2]):
            return None
        return self._view.unit(key, entry[2])
