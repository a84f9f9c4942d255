"""Checks the heads of a ledger, its index, and its two small files.

The walk over the log passes each entry to ``LedgerCheck``. A head that does not continue the entry
before it is damage if the next entry continues the known ones. Otherwise it is a remainder of
truncated entries: Apache's members leave them in the file after the end of the log, and the next
start ends the log before them.

Source: DLedgerMmapFileStore.recover @dledger-0.3.1.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twistmq.broker.store.entry_heads import (
    ENTRY_FILLER,
    ENTRY_HEAD,
    ENTRY_HEAD_SIZE,
    ENTRY_MAGIC,
    UNIT,
    UNIT_SIZE,
    record_follows,
)
from twistmq.broker.store.inspect.files import Reader, Segments, common_size
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.decimal_text import whole_number

__all__ = ["HeadFault", "LedgerCheck", "LedgerFiles", "head_fault"]

#: The position of a wrong field in the head of an entry, the expected value, and the actual one.
HeadFault = tuple[int, str, str]

_NONE: Final = -1


def head_fault(log: Segments, position: int) -> HeadFault | None:
    """Return the fault of the head at a position of the log, without regard to the entries before
    it; None for a whole head that a record follows."""
    head = log.cached(position, ENTRY_HEAD_SIZE + 4)
    if len(head) < ENTRY_HEAD_SIZE + 4:
        return 0, "an entry", "the end of the file"
    magic, size, _, _, own_position, _, _, _, record_size = ENTRY_HEAD.unpack_from(head)
    if magic != ENTRY_MAGIC:
        return 0, f"magic {ENTRY_MAGIC}", str(magic)
    if own_position != position:
        return 24, f"its own position {position}", str(own_position)
    if not record_follows(head, 0, position):
        field = 4 if record_size == int.from_bytes(head[-4:], "big") else 44
        return field, (f"the size of the record, {int.from_bytes(head[-4:], 'big')}, and "
                   f"{ENTRY_HEAD_SIZE} more"), f"{record_size} and {size}"
    return None


class LedgerFiles:
    """The files of a ledger beside its log.

    :param folder: the folder of the ledger.
    """

    def __init__(self, reader: Reader, folder: Path) -> None:
        sizes = reader.sizes(folder / "index")
        self.folder = folder
        self.reader = reader
        self.index = Segments(reader, folder / "index", sizes, common_size(sizes.values()))
        #: The contents of the two small files when the check began.
        self.values = {name: self._read(name) for name in ("currterm", "checkpoint")}

    def _read(self, name: str) -> dict[str, str] | None:
        """Read the lines of a file; None when it does not exist."""
        path = self.folder / name
        if not path.exists():
            return None
        text = self.reader.read(path, 0, 4096).decode("utf-8", "replace")
        lines = (line.split("=", 1) for line in text.splitlines() if "=" in line)
        return {key.strip(): value.strip() for key, value in lines}

    def number(self, name: str, key: str) -> int | None:
        """Return a number of a file; None when the file does not have it."""
        text = (self.values[name] or {}).get(key, "")
        return _NONE if text == "-1" else whole_number(text)


class LedgerCheck:
    """Checks the entries of a ledger in their order.

    :param log: the files of the log.
    :param is_running: whether a broker may not have written the newest data yet.
    """

    def __init__(
        self, files: LedgerFiles, log: Segments, report: Report, is_running: bool
    ) -> None:
        self._files = files
        self._log = log
        self._report = report
        self._is_running = is_running
        self._begin_index = self._end_index = _NONE
        #: The term of the last entry.
        self._term = _NONE
        self._has_skipped = False

    def fault_of(self, position: int) -> HeadFault | None:
        """Compare the head at a position of the log with the entries before it."""
        fault = head_fault(self._log, position)
        if fault is not None:
            return fault
        _, _, index, term, *_ = ENTRY_HEAD.unpack(self._log.cached(position, ENTRY_HEAD_SIZE))
        if self._end_index >= 0 and not self._has_skipped and index != self._end_index + 1:
            return 8, f"index {self._end_index + 1}", str(index)
        if term < self._term:
            return 16, f"a term of at least {self._term}", str(term)
        return None

    def is_rest(self, position: int) -> bool:
        """Return whether a whole head that continues no entry is a remainder of truncated entries.

        It is one when the entry after it does not continue the known ones either.
        """
        head = self._log.cached(position, ENTRY_HEAD_SIZE + 4)
        if len(head) < ENTRY_HEAD_SIZE + 4 or not record_follows(head, 0, position):
            return False
        following = position + ENTRY_HEAD.unpack_from(head)[1]
        after = self._log.cached(following, ENTRY_HEAD_SIZE + 4)
        if after[:4] == ENTRY_FILLER:
            return False
        if len(after) < ENTRY_HEAD_SIZE + 4 or not record_follows(after, 0, following):
            return True
        _, _, index, term, *_ = ENTRY_HEAD.unpack_from(after)
        return bool(index != self._end_index + 2 or term < self._term)

    def note_skipped(self) -> None:
        """Note that the walk has skipped bytes, so the next entry may have a higher index."""
        self._has_skipped = True

    def passed(self, position: int, size: int) -> None:
        """Note an entry, whose head may be damaged, and check its unit.

        :param size: the size of the head and its record.
        """
        head = self._log.cached(position, ENTRY_HEAD_SIZE)
        _, _, index, term, *_ = ENTRY_HEAD.unpack(head)
        if self._end_index < 0:
            self._begin_index = self._end_index = index
        elif self._has_skipped:
            self._end_index = max(self._end_index + 1, index)
        else:
            self._end_index += 1
        self._has_skipped = False
        if self._end_index == index and term >= self._term:
            self._term = term
        self._report.counts["entries"] += 1
        self._check_unit(position, size, term)

    def _check_unit(self, position: int, size: int, term: int) -> None:
        """Report the unit of an entry if its contents do not describe the entry."""
        index = self._end_index
        unit = self._files.index.cached(index * UNIT_SIZE, UNIT_SIZE)
        if self._files.index.is_gone(index * UNIT_SIZE):
            return
        if unit == UNIT.pack(ENTRY_MAGIC, position, size, index, term):
            self._report.counts["index units"] += 1
            return
        if not any(unit) and self._is_running:
            self._report.counts["entries whose index unit is not on disk yet"] += 1
            return
        path, at = self._files.index.locate(index * UNIT_SIZE)
        self._report.problem(
            path, at, f"the unit of entry {index}: {size} bytes at {position}, term {term}",
            _unit_text(unit), run=("unit", path))

    def finish(self) -> None:
        """Check the files that are not the log, and add a line about the ledger to the summary."""
        report, files = self._report, self._files
        for start in files.index.starts:
            report.counts["entry-index files"] += 1
            if files.index.sizes[start] != files.index.file_size:
                report.problem(files.index.path(start), None,
                               f"{files.index.file_size} bytes as the others have",
                               f"{files.index.sizes[start]} bytes")
        term = self._check_term()
        committed = self._check_checkpoint()
        vote = (files.values["currterm"] or {}).get("voteLeader", "")
        report.note(
            f"the ledger has entries from {self._begin_index} to {self._end_index}, the last one "
            f"of term {self._term}; committed: {committed}; term {term}, vote: {vote or 'none'}")

    def _check_term(self) -> str:
        """Report a term that is lower than the last entry's term; :returns: the term as text."""
        path = self._files.folder / "currterm"
        term = self._files.number("currterm", "currTerm")
        if self._files.values["currterm"] is None:
            if self._end_index >= 0:
                self._report.problem(path, None, "a term and a vote", "no file")
            return "unknown"
        if term is None:
            self._report.problem(path, None, "a line currTerm=NUMBER", "none")
            return "unknown"
        if term < self._term:
            self._report.problem(path, None, f"a term of at least {self._term}, that of the last "
                                 "entry", str(term))
        return str(term)

    def _check_checkpoint(self) -> str:
        """Report a checkpoint beyond the log; :returns: the committed index as text."""
        path = self._files.folder / "checkpoint"
        if self._files.values["checkpoint"] is None:
            return "unknown"
        for name in ("committedIndex", "endIndex"):
            number = self._files.number("checkpoint", name)
            if number is None:
                self._report.problem(path, None, f"a line {name}=NUMBER", "none")
            elif number > self._end_index and not self._is_running:
                self._report.problem(path, None, f"{name} of at most {self._end_index}, the last "
                                     "entry", str(number))
        committed = self._files.number("checkpoint", "committedIndex")
        return "unknown" if committed is None else str(committed)


def _unit_text(unit: bytes) -> str:
    """Describe a unit of the index."""
    if not any(unit):
        return "no unit"
    magic, position, size, index, term = UNIT.unpack(unit.ljust(UNIT_SIZE, b"\0"))
    return f"magic {magic}, entry {index}: {size} bytes at {position}, term {term}"
