"""Reads commit-log files in pieces, without a broker or beside a running one.

A commit-log file is 1 GiB by default, so one task for each file would leave most cores idle. A file
is therefore split into pieces that tasks read independently. The difficulty is that a piece begins
at an arbitrary byte: a task must find the first record after it without the records before it, and
bytes inside a body may look like a record. Each record stores its own offset in the log, so a place
counts as the start of a record only if that offset, the magic number and the sizes are right. A
piece consists of the records that start in it, and of the damage between its last record and the
first record of the next piece. The rows of a damaged file are therefore the same however the file
is split.

In the last file, the log ends at the first place from which no record follows. That place may hold
zeros, a record that a crash has torn, or a record that is being written. In any other file, such a
place is damage.

Source: CommitLog.checkMessageAndReturnSize, MappedFileQueue @5.3.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from twistmq.integrations.tables.log_files import LogFile, open_log_file
from twistmq.integrations.tables.record_arrays import record_starts
from twistmq.integrations.tables.record_batches import BatchBuilder
from twistmq.protocol import record
from twistmq.protocol.errors import StoreDamaged

__all__ = ["LogPiece", "PieceReader"]

#: The limits of the number of bytes in one read, which is chosen to give a batch enough rows.
_CHUNK_SIZE_MIN: Final = 1 << 20
_CHUNK_SIZE_MAX: Final = 16 << 20
#: The rows of a batch. Larger batches are slower, both in Spark and in the CPU caches.
_BATCH_ROWS: Final = 10_000
#: The number of bytes in one read during the search for the next record.
_SCAN_SIZE: Final = 1 << 20
#: The bytes that are read before the end of a hole, because a record may begin with zero bytes.
_HOLE_MARGIN: Final = 8
_BLANK: Final = (record.MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")
_SIGNS: Final = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (
    record.MAGIC_V1, record.MAGIC_V2, record.MAGIC_BLANK))


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A range of a commit-log file; positions are bytes from the start of the file."""

    path: str
    #: The offset of the first byte of the file in the log, which is also its name.
    file_start: int
    #: The length that the file should have.
    file_size: int
    begin: int
    end: int
    #: Whether the log may end in this file.
    in_last_file: bool
    #: The position after the last byte that is not zero; None if it is unknown or may grow.
    data_end: int | None = None


class PieceReader:
    """Reads one piece.

    :param builder: the builder of the batches, which must not skip damaged records.
    :param broker_name: the value of the column brokerName.
    :param on_damage: a function that is called with the path of the file, the position of the
        damage and a description of it. If it raises an error, the read ends; otherwise the reader
        skips the damage.
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
                # The start of the first record in this piece is unknown. The previous piece ends
                # at that record.
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

        :returns: the position at which to continue, or None at the end; and the batch, or None.
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
        """Read the piece record by record, because a wrong size may hide the next record."""
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
                break  # to continue elsewhere, or here with data that was written during the read
            at = following - position
        self._builder.add(chunk, self._broker_name, starts)
        return following, self._builder.batch()

    def _no_record(self, position: int, chunk: bytes) -> int | None:
        """Continue at a place without a whole record: read more bytes, or skip the damage."""
        piece = self._piece
        head = chunk[:8]
        if head[4:] == _BLANK:
            return None
        if head[4:] in _SIGNS:
            size = record.record_size(head)
            if len(chunk) < size <= piece.file_size - position:
                larger = self._read(position, size)
                if record.check_record(larger, 0, self._check_crc) > 0:
                    # The next chunk has the size of this record; a batch restores the usual size.
                    self._chunk_size = size
                    return position
        return self._after_damage(position)

    def _after_damage(self, position: int) -> int | None:
        """Skip the damage at a position.

        :returns: the start of the next record, or None when no record follows in the file.
        """
        following = self._next_sure(position + 1)
        if following is None and self._piece.in_last_file:
            return None
        whole = self._read(position, record.RECORD_SIZE_MIN)
        if len(whole) == record.RECORD_SIZE_MIN and whole[4:8] in _SIGNS[:2] and (
                record.record_size(whole) >= record.RECORD_SIZE_MIN):
            whole = self._read(position, record.record_size(whole))
            if record.check_record(whole, 0, self._check_crc) > 0:
                return position  # the record was being written when it was first read
        self._on_damage(self._piece.path, position, _fault(whole, self._check_crc))
        return following

    def _next_sure(self, position: int) -> int | None:
        """Find the next place where a record or the blank record starts for certain."""
        size = self._piece.file_size
        while position + record.BLANK_SIZE_MIN <= size:
            position = self._data_from(position)
            data = self._read(position, _SCAN_SIZE)
            if len(data) < record.BLANK_SIZE_MIN:
                return None
            candidates = []
            for sign in _SIGNS:
                at = data.find(sign, 4)
                while at >= 0:
                    candidates.append(position + at - 4)
                    at = data.find(sign, at + 1)
            for candidate in sorted(candidates):
                if self._is_sure(candidate):
                    return candidate
            position += len(data) - record.BLANK_SIZE_MIN + 1
        return None

    def _data_from(self, position: int) -> int:
        """Find the first position from here on that may have data, so that holes are not read."""
        begin = self._file.data_from(position)
        # A hole may begin in the middle of the first bytes of a record.
        return self._piece.file_size if begin is None else max(position, begin - _HOLE_MARGIN)

    def _is_sure(self, position: int) -> bool:
        """Whether a record with this offset, or the blank record of the file, starts here."""
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
        """Read a range of the file; returns fewer bytes at its end."""
        return self._file.read(position, min(size, self._piece.file_size - position))


def _is_torn(chunk: bytes, start: int) -> bool:
    """Whether the end of a record was never written; the CRC covers only the body."""
    try:
        last = record.decode_record(chunk, start, False)
    except StoreDamaged:
        return False
    return (last.properties or last.topic).endswith("\0")


def _fault(data: bytes, check_crc: bool) -> str:
    """Describe the fault at a place where a record should start."""
    try:
        record.decode_record(data, 0, check_crc)
    except StoreDamaged as error:
        return str(error).removeprefix("record at byte 0: ").removeprefix("no record at byte 0: ")
    return "the offset of the record does not match its position"
