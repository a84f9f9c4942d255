"""Reading commit-log files in pieces, without a broker or beside one.

A piece is a file or a range of one; each is read by itself, so that many are read at once. The
records read from a damaged file do not depend on how files are cut into pieces: a piece has the
records that start in it, and the damage between its last record and the next piece's first.

In the last file, the first place
from which no record follows is where the log ends, whatever stands there: zeros, a record torn by a
crash, or one that is being written. Elsewhere it is damage.

Source: CommitLog.checkMessageAndReturnSize, MappedFileQueue @5.3.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from twistmq.protocol import record
from twistmq.protocol.errors import StoreDamaged
from twistmq.spark_bridge.log_files import LogFile, open_log_file
from twistmq.spark_bridge.record_arrays import record_starts
from twistmq.spark_bridge.record_batches import BatchBuilder

__all__ = ["LogPiece", "PieceReader"]

#: Bytes read at a time: so many that a batch gets its rows, within these bounds.
_CHUNK_SIZE_MIN: Final = 1 << 20
_CHUNK_SIZE_MAX: Final = 16 << 20
#: Rows of a batch: larger ones are slower, for Spark and for the caches.
_BATCH_ROWS: Final = 10_000
#: Bytes read at a time when the next record is looked for.
_SCAN_SIZE: Final = 1 << 20
#: Bytes read of a hole before data: a record's size may begin with zeros.
_HOLE_MARGIN: Final = 8
_BLANK: Final = (record.MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")
_SIGNS: Final = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (
    record.MAGIC_V1, record.MAGIC_V2, record.MAGIC_BLANK))


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A range of a commit-log file; positions are bytes from the file's begin."""

    path: str
    #: The offset of the file's first byte in the log: its name.
    file_start: int
    #: Length the file should have.
    file_size: int
    begin: int
    end: int
    #: Whether the log may end in this file.
    in_last_file: bool
    #: The position after the last byte that is not zero; None: unknown, or it may grow.
    data_end: int | None = None


class PieceReader:
    """Reads one piece.

    :param builder: makes the batches; it must not skip what is damaged.
    :param broker_name: what the column brokerName says.
    :param on_damage: told the file's path, the position of what is damaged in it, and what is
        wrong; what it raises ends the reading, else what is damaged is skipped.
    """

    def __init__(self, piece: LogPiece, builder: BatchBuilder, broker_name: str | None,
                 on_damage: Callable[[str, int, str], None], check_crc: bool = True) -> None:
        self._piece = piece
        self._builder = builder
        self._broker_name = broker_name
        self._on_damage = on_damage
        self._check_crc = check_crc
        self._chunk_size = _CHUNK_SIZE_MIN
        self._file: LogFile

    def batches(self) -> Iterator[Any]:
        """Read the piece's records.

        :raises FileNotFoundError: when the file was removed.
        """
        piece = self._piece
        self._file = open_log_file(piece.path, piece.data_end)
        try:
            position: int | None = piece.begin
            if piece.begin:
                # Where in the file records start is not known: the piece before ends there.
                position = self._next_sure(piece.begin)
            while position is not None and position < piece.end:
                position, batch = self._step(position)
                if batch is not None and batch.num_rows:
                    yield batch
            if position is not None and position < piece.file_size and not self._is_sure(position):
                self._after_damage(position)
        finally:
            self._file.close()

    def _step(self, position: int) -> tuple[int | None, Any]:
        """Read a batch.

        :returns: where to go on, None when nothing follows; the batch, or None.
        """
        chunk = self._read(position, self._chunk_size)
        starts: list[int] = []
        stop = record_starts(chunk, 0, len(chunk), starts)
        count = min(bisect_left(starts, self._piece.end - position), _BATCH_ROWS)
        if count < len(starts):
            stop = starts[count]
            del starts[count:]
        if not starts:
            return self._no_record(position, chunk), None
        if self._piece.in_last_file and not any(chunk[stop : stop + record.BLANK_SIZE_MIN]) \
                and _is_torn(chunk, starts[-1]):
            stop = starts.pop()
            if not starts:
                return None, None
        self._chunk_size = min(max(stop // len(starts) * (_BATCH_ROWS + 1), _CHUNK_SIZE_MIN),
                               _CHUNK_SIZE_MAX)
        try:
            self._builder.add(memoryview(chunk)[:stop], self._broker_name, starts)
            return position + stop, self._builder.batch()
        except StoreDamaged:
            return self._careful_step(position, chunk, stop)

    def _careful_step(self, position: int, chunk: bytes, stop: int) -> tuple[int | None, Any]:
        """Read the piece one record after the other, because a wrong size may hide the next one."""
        starts: list[int] = []
        at = 0
        following: int | None = position + stop
        while at < stop and position + at < self._piece.end:
            size = record.check_record(chunk, at, self._check_crc)
            if size > 0:
                starts.append(at)
                at += size
                following = position + at
                continue
            following = self._after_damage(position + at)
            if following is None or not at < following - position < stop:
                break  # to go on elsewhere, or here with what was written meanwhile
            at = following - position
        self._builder.add(chunk, self._broker_name, starts)
        return following, self._builder.batch()

    def _no_record(self, position: int, chunk: bytes) -> int | None:
        """Go on where no whole record starts: read more of it, or pass what is damaged."""
        piece = self._piece
        head = chunk[:8]
        if head[4:] == _BLANK:
            return None
        if head[4:] in _SIGNS:
            size = record.record_size(head)
            if len(chunk) < size <= piece.file_size - position:
                larger = self._read(position, size)
                if record.check_record(larger, 0, self._check_crc) > 0:
                    # The chunk grows for this once; a batch gives it its usual size again.
                    self._chunk_size = size
                    return position
        return self._after_damage(position)

    def _after_damage(self, position: int) -> int | None:
        """Pass what is damaged.

        :returns: where the next record starts, None when none follows in the file.
        """
        following = self._next_sure(position + 1)
        if following is None and self._piece.in_last_file:
            return None
        whole = self._read(position, record.RECORD_SIZE_MIN)
        if len(whole) == record.RECORD_SIZE_MIN and whole[4:8] in _SIGNS[:2] and (
                record.record_size(whole) >= record.RECORD_SIZE_MIN):
            whole = self._read(position, record.record_size(whole))
            if record.check_record(whole, 0, self._check_crc) > 0:
                return position  # it was being written when it was first read
        self._on_damage(self._piece.path, position, _fault(whole, self._check_crc))
        return following

    def _next_sure(self, position: int) -> int | None:
        """Find the next place where a record or the blank record surely starts."""
        size = self._piece.file_size
        while position + record.BLANK_SIZE_MIN <= size:
            position = self._data_from(position)
            data = self._read(position, _SCAN_SIZE)
            if len(data) < record.BLANK_SIZE_MIN:
                return None
            found = []
            for sign in _SIGNS:
                at = data.find(sign, 4)
                while at >= 0:
                    found.append(position + at - 4)
                    at = data.find(sign, at + 1)
            for place in sorted(found):
                if self._is_sure(place):
                    return place
            position += len(data) - record.BLANK_SIZE_MIN + 1
        return None

    def _data_from(self, position: int) -> int:
        """The first place from here on that may hold data: holes are not read."""
        found = self._file.data_from(position)
        # A hole may begin in the middle of a record's first bytes.
        return self._piece.file_size if found is None else max(position, found - _HOLE_MARGIN)

    def _is_sure(self, position: int) -> bool:
        """Whether a record that says this place, or the file's blank record, starts here."""
        piece = self._piece
        head = self._read(position, record.RECORD_SIZE_MIN)
        if head[4:8] == _BLANK:
            return head[:8] == record.blank_record(piece.file_size - position)
        if len(head) < record.RECORD_SIZE_MIN or head[4:8] not in _SIGNS:
            return False
        at = record.PHYSICAL_OFFSET_POSITION
        if int.from_bytes(head[at : at + 8], "big") != piece.file_start + position:
            return False
        size = record.record_size(head)
        if not record.RECORD_SIZE_MIN <= size <= piece.file_size - position:
            return False
        return record.check_record(self._read(position, size), 0, False) > 0

    def _read(self, position: int, size: int) -> bytes:
        """Read a range of the file; fewer bytes where it ends."""
        return self._file.read(position, min(size, self._piece.file_size - position))


def _is_torn(chunk: bytes, start: int) -> bool:
    """Whether a record's end was never written; its CRC is of its body only."""
    try:
        last = record.decode_record(chunk, start, False)
    except StoreDamaged:
        return False
    return (last.properties or last.topic).endswith("\0")


def _fault(data: bytes, check_crc: bool) -> str:
    """The fault at a place where a record should start."""
    try:
        record.decode_record(data, 0, check_crc)
    except StoreDamaged as error:
        return str(error).removeprefix("record at byte 0: ").removeprefix("no record at byte 0: ")
    return "it is not where it says"
