"""Reading a commit log from one end to the other, past any damage.

Recovery stops at the first record that is not whole. This walk reports such a record and continues
at the next one. It recognizes the next record by its magic number and by its physical offset, which
must be the offset where it was found.

Source: CommitLog.checkMessageAndReturnSize @5.3.3, for what makes a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from twistmq.broker.store.consume_queue import OFFSET_MAX
from twistmq.broker.store.entry_heads import ENTRY_FILLER, entry_filler
from twistmq.broker.store.inspect.layout import MAGICS, StoreFiles, report_missing
from twistmq.broker.store.inspect.ledger_check import HeadFault, LedgerCheck, head_fault
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.properties import pair_count
from twistmq.protocol.record import (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    PHYSICAL_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    StoredMessage,
    blank_record,
    decode_record,
    record_size,
)
from twistmq.protocol.topic_names import can_be_directory

__all__ = ["LogWalk"]

_CHUNK_SIZE: Final = 1 << 20
_BLANK: Final = (MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")


class LogWalk:
    """One pass through the log.

    :param advance: called with the number of bytes of the log that were processed.
    :param entries: checks that the heads of a ledger continue each other; None checks each head
        alone.
    """

    def __init__(
        self, store: StoreFiles, report: Report, advance: Callable[[int], object] = int,
        entries: LedgerCheck | None = None,
    ) -> None:
        self._store = store
        self._head_size = store.head_size
        self._entries = entries
        self._log = store.log
        self._report = report
        self._advance = advance
        self._path = Path()
        self._start = 0
        self._chunk = b""
        self._chunk_start = 0

    def records(
        self, begin: int = 0, is_selected: Callable[[int], bool] | None = None
    ) -> Iterator[tuple[int, StoredMessage]]:
        """Read every record that can be decoded.

        :param begin: the start of a record; a lower offset stands for the first byte of the log.
        :param is_selected: returns whether the file with this start offset is read.
        :returns: (commit-log offset, record); the record itself may contain another offset.
        """
        log, end = self._log, self._store.log_end
        missing = list(log.missing())
        for start in log.starts:
            while missing and missing[0][0] < start:
                report_missing(self._report, log, missing.pop(0))
            if start >= end or start + log.file_size <= begin:
                continue
            if is_selected is not None and not is_selected(start):
                self._advance(log.file_size)
                continue
            self._report.counts["commit-log files"] += 1
            yield from self._file(start, max(begin, start), min(start + log.file_size, end))

    def _file(self, start: int, at: int, end: int) -> Iterator[tuple[int, StoredMessage]]:
        """Read the records of one file.

        :param end: the end of the written data, or of the file.
        """
        log = self._log
        self._path, self._start = log.path(start), start
        self._chunk, self._chunk_start = b"", at
        is_last = end == self._store.log_end
        size = log.sizes[start]
        if size != log.file_size:
            self._report.problem(self._path, None, f"{log.file_size} bytes as the others have",
                                 f"{size} bytes")
        end = min(end, start + size)
        while at < end:
            head = self._read(at, 8)
            if self._path in self._store.reader.gone:
                return
            if self._is_file_end(head):
                self._check_blank(at, head)
                self._advance(end - at)
                return
            fault = self._head_fault(at)
            if fault is not None and is_last and self._is_rest(at):
                self._report.note(f"the log ends at {at}: the {end - at} bytes after it are left "
                                  "over from entries that were cut")
                return
            message = self._entry(at, fault)
            if isinstance(message, str):
                following = self._next_sign(at + 1, end)
                if following is None and is_last and self._store.running:
                    self._report.note(f"the log ends at {at}: the {end - at} bytes after it "
                                      "are not a whole record (yet)")
                    return
                self._report.problem(
                    self._path, at - start, "a record", message if following is None else
                    f"{message}; the next one starts at byte {following - start}")
                if following is None:
                    return
                self._advance(following - at)
                if self._entries is not None:
                    self._entries.note_skipped()
                at = following
                continue
            record = at + self._head_size
            if self._is_torn(message, record, end, is_last):
                return
            if self._entries is not None:
                self._entries.passed(at, self._head_size + message.size)
            yield record, message
            self._advance(self._head_size + message.size)
            at = record + message.size
        if not is_last and size == log.file_size:
            self._report.problem(self._path, at - start, "a blank record", "the end of the file")

    def _is_file_end(self, head: bytes) -> bool:
        """Return whether these are the first bytes of the filler that ends a file."""
        return head[:4] == ENTRY_FILLER if self._head_size else head[4:] == _BLANK

    def _head_fault(self, at: int) -> HeadFault | None:
        """Return the fault of the head at an offset, if there must be one."""
        if not self._head_size:
            return None
        return head_fault(self._log, at) if self._entries is None else self._entries.fault_of(at)

    def _is_rest(self, at: int) -> bool:
        """Return whether an entry that continues nothing is left over from a cut."""
        return self._entries is not None and self._entries.is_rest(at)

    def _entry(self, at: int, fault: HeadFault | None) -> StoredMessage | str:
        """Decode the record of an entry; the fault of its head is reported if the record shows that
        an entry is here."""
        if fault is None:
            return self._record(at + self._head_size)
        field, expected, actual = fault
        message = self._store.look(at + self._head_size)
        if isinstance(message, str) or message.physical_offset != at + self._head_size:
            return f"{actual} instead of {expected}"
        self._report.problem(self._path, at + field - self._start, expected, actual)
        return self._record(at + self._head_size)

    def _record(self, at: int) -> StoredMessage | str:
        """Decode the record at an offset and report its faults; else return why it is not one."""
        head = self._read(at, RECORD_SIZE_MIN)
        if len(head) < RECORD_SIZE_MIN:
            return f"{len(head)} bytes"
        if head[4:8] not in MAGICS:
            return f"magic {head[4:8].hex()}"
        size = record_size(head)
        if not RECORD_SIZE_MIN <= size <= self._log.file_size:
            return f"size {size}"
        data = self._read(at, size)
        try:
            message = decode_record(data, 0, True)
        except StoreDamaged as error:
            try:
                message = decode_record(data, 0, False)
            except StoreDamaged:
                return str(error).removeprefix("record at byte 0: ")
            if self._next_sign(at + 1, min(at + size + 8, self._store.log_end)) is None \
                    and self._is_end(at + size) and self._store.running:
                return "a body whose CRC does not match"
            self._problem(at, 8, f"the CRC {message.body_crc:#010x} of the body", "another body")
        self._check_fields(at, message)
        return message

    def _check_fields(self, at: int, message: StoredMessage) -> None:
        """Report fields with invalid values."""
        if message.physical_offset != at:
            self._problem(at, PHYSICAL_OFFSET_POSITION, f"its own place {at}",
                          str(message.physical_offset))
        text = message.properties
        if text.count("\x01") < pair_count(text):
            self._problem(at, message.size - len(text.encode()), "properties name\\1value\\2",
                          repr(text[:80]))
        if not message.topic:
            self._problem(at, 0, "a topic", "a record without one")
        elif not can_be_directory(message.topic):
            self._problem(at, 0, "a topic that can name a folder", ascii(message.topic[:80]))
        if message.queue_id < 0 or not 0 <= message.queue_offset <= OFFSET_MAX:
            self._problem(at, 12, "a queue and an offset in it",
                          f"{message.queue_id} and {message.queue_offset}")

    def _is_torn(self, message: StoredMessage, at: int, end: int, is_last: bool) -> bool:
        """Return whether the end of a record was never written; the CRC covers only its body."""
        if not (message.properties or message.topic).endswith("\0"):
            return False
        if is_last and at + message.size >= end and self._store.running:
            self._report.note(f"the log ends at {at}: the record there is torn (or not written "
                              "to its end yet)")
            return True
        self._problem(at, message.size - 1, "the end of properties", "zeros")
        return False

    def _check_blank(self, at: int, head: bytes) -> None:
        """Report a blank record that does not fill its file."""
        remaining = self._start + self._log.file_size - at
        size = record_size(head, 4 if self._head_size else 0)
        if size != remaining:
            self._problem(at, 0, f"a blank record of {remaining} bytes", f"one of {size}")

    def _problem(self, at: int, field: int, expected: str, actual: str) -> None:
        self._report.problem(self._path, at + field - self._start, expected,
                             f"{actual} (record at byte {at - self._start})")

    def _is_end(self, log_offset: int) -> bool:
        """Return whether nothing is written from an offset of this file on."""
        return log_offset >= self._store.log_end

    def _next_sign(self, begin: int, end: int) -> int | None:
        """Find the next offset at which a record or a blank record certainly starts."""
        while begin < end:
            data = self._read(begin, min(_CHUNK_SIZE // 2, self._start + self._log.file_size
                                         - begin))
            for candidate in self._signs(data, begin):
                if begin <= candidate < end and self._is_sure(candidate):
                    return candidate
            if len(data) < _CHUNK_SIZE // 2:
                return None
            begin += len(data) - 8 - self._head_size
        return None

    def _signs(self, data: bytes, begin: int) -> Iterator[int]:
        """Yield the offsets at which an entry or a filler may begin, in ascending order.

        The fifth to eighth byte of a record is a magic number, and so are the first four bytes of
        the filler of a ledger.
        """
        offsets = []
        filler = (ENTRY_FILLER, 0) if self._head_size else (_BLANK, 4)
        for sign, before in (*((magic, self._head_size + 4) for magic in MAGICS), filler):
            at = data.find(sign)
            while at >= 0:
                offsets.append(begin + at - before)
                at = data.find(sign, at + 1)
        yield from sorted(offsets)

    def _is_sure(self, log_offset: int) -> bool:
        """Return whether a record with this physical offset, or the blank record of the file,
        starts here."""
        head = self._read(log_offset, 8)
        if self._is_file_end(head):
            room = self._start + self._log.file_size - log_offset
            return room >= BLANK_SIZE_MIN and head == (
                entry_filler(room) if self._head_size else blank_record(room))
        log_offset += self._head_size
        head = self._read(log_offset, RECORD_SIZE_MIN)
        if len(head) < RECORD_SIZE_MIN:
            return False
        at = PHYSICAL_OFFSET_POSITION
        if int.from_bytes(head[at : at + 8], "big") != log_offset:
            return False
        return isinstance(self._store.look(log_offset), StoredMessage)

    def _read(self, at: int, size: int) -> bytes:
        """Read some bytes of this file through the chunk; returns fewer where the file ends."""
        begin = at - self._chunk_start
        if begin < 0 or begin + size > len(self._chunk):
            position = at - self._start
            remaining = self._log.file_size - position
            self._chunk = self._store.reader.read(
                self._path, position, max(size, min(remaining, _CHUNK_SIZE)))
            self._chunk_start, begin = at, 0
        return self._chunk[begin : begin + size]
