"""The log of a ledger: a commit log whose records have heads, with the entry index beside it.

The log is the only source of truth here as well: the head of each entry proves its index and its
offset, and the entry index only helps to find it. The units of an append are written before its
entries, so a full disk refuses the append while the log is still unchanged. Recovery follows the
heads from its start offset, ends the log at the first head that does not continue the entry before
it, and rewrites each unit that differs.

Source: DLedgerMmapFileStore.recover @dledger-0.3.1.2. Differs from Apache, which keeps entries
whose record was written only in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.entry_heads import (
    ENTRY_FILLER,
    ENTRY_HEAD,
    ENTRY_HEAD_SIZE,
    ENTRY_SIZE_MAX,
    UNIT_SIZE,
    EntryHeads,
    EntryWalk,
    record_follows,
)
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.ledger.entry_index import INDEX_FILE_SIZE, EntryIndex, EntryUnit
from twistmq.broker.store.ledger.state_files import (
    LedgerCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from twistmq.broker.store.segment_files import segment_path
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import BLANK_SIZE_MIN

__all__ = ["EntryLog"]

#: The number of bytes read at a time, and the number of bytes after which progress is logged.
_CHUNK_SIZE: Final = 1 << 20
_PROGRESS_SIZE: Final = 256 << 20


class EntryLog(CommitLog):
    """The entries of one ledger.

    :param folder: the folder of the ledger, which contains the folders ``data`` and ``index``.
    :param file_size: length of each file of the log in bytes.
    :param index_file_size: length of each file of the index in bytes.
    """

    head_size = ENTRY_HEAD_SIZE
    framing: EntryHeads

    def __init__(
        self, io: IStoreIO, folder: str, file_size: int, syncs_soon: bool = False,
        index_file_size: int = INDEX_FILE_SIZE,
    ) -> None:
        super().__init__(io, f"{folder}/data", file_size, syncs_soon)
        self.folder = folder
        self.framing = EntryHeads(0, -1)
        self.index = EntryIndex(io, f"{folder}/index", index_file_size)
        #: The index of the first entry; -1 when the log has no entry.
        self.begin_index = -1
        #: The index of the last entry on which the group certainly agreed; -1 without one.
        self.committed_index = -1
        #: The committed index in the checkpoint file at the start. It is beyond the end of a log
        #: that has lost entries, for example in a loss of power.
        self.noted_index = -1
        #: Why the last write failed; empty when it succeeded.
        self.write_fault = ""
        self._saved = LedgerCheckpoint()
        #: This file exists while the log begins again at the offset that it contains.
        self._begin_path = f"{folder}/beginning"

    @property
    def record_size_max(self) -> int:
        """See CommitLog."""
        return min(self.file_size - BLANK_SIZE_MIN, ENTRY_SIZE_MAX) - ENTRY_HEAD_SIZE

    @property
    def end_index(self) -> int:
        """The index of the last entry; -1 when the log has no entry."""
        return self.framing.next_index - 1 if self.begin_index >= 0 else -1

    def unit_at(self, index: int) -> EntryUnit | None:
        """Return where an entry is; None when the log does not contain it."""
        if not 0 <= self.begin_index <= index <= self.end_index:
            return None
        return self.index.unit(index)

    # --- loading

    def load(self) -> None:
        """See CommitLog."""
        self._finish_beginning()
        super().load()
        self.index.load()
        self._saved = read_checkpoint(self._io, self.folder)
        self.committed_index = self.noted_index = self._saved.committed_index

    def check_heads(self, start: int) -> int:
        """Follow the heads from an offset on and correct the index; see CommitLog.

        :raises StoreError: when the index cannot be written.
        """
        self._find_begin()
        before_start = self._entry_before(start)
        if before_start is None:
            walk = EntryWalk(self.min_offset, -1, -1)
            if not self.index.has_room_for(max(0, self.begin_index)):
                self.index.start_over()
        else:
            walk = EntryWalk(start, before_start.index + 1, before_start.term)
        progress = start + _PROGRESS_SIZE
        while not walk.fault and walk.position < self.max_offset:
            if walk.position >= progress:
                progress += _PROGRESS_SIZE
                self.log.info("the heads of entries are read at {offset} of {end}",
                              offset=walk.position, end=self.max_offset)
            before, first = walk.position, walk.index
            file_end = self.next_file_start(before)
            chunk = self.peek(before, min(_CHUNK_SIZE, file_end - before)) or b""
            walk.pass_entries(chunk, before, file_end, self.max_offset)
            units = walk.take_units()
            if units:
                count = len(units) // UNIT_SIZE
                self.index.write_different(walk.index - count if first < 0 else first, units)
            if walk.position == before:
                break
        if walk.index >= 0:
            self.framing.reset(walk.index, walk.term)
        end = walk.position
        if walk.fault and self.peek(end, 8) not in (None, bytes(8)):
            self.log.warn("the entries end at {offset}: {fault}", offset=end, fault=walk.fault)
        committed = self.unit_at(min(self.committed_index, self.end_index))
        self.confirmed_end = self.min_offset if committed is None else committed.end
        return end

    def _find_begin(self) -> None:
        """Read the index of the first entry from its head."""
        self.begin_index = -1
        self.framing.reset(0, -1)
        head = self._head(self.min_offset) if self.starts else None
        if head is not None:
            self.begin_index = head.index
            self.framing.reset(head.index, head.term)

    def _entry_before(self, start: int) -> EntryUnit | None:
        """Return the entry that ends at the start of the walk.

        :returns: None when the walk must begin at the beginning of the log, because no entry is
            before the start, or because the index may not contain it.
        """
        if self.begin_index < 0 or start <= self.min_offset:
            return None
        head = self._head(start)
        unit = (self._last_unit(start, self.begin_index + start // ENTRY_HEAD_SIZE) if head is None
                else self.index.unit(head.index - 1))
        first = self.index.unit(self.begin_index)
        if unit is not None and self._ends_at(unit, start) and (
                first is not None and first.position == self.min_offset):
            return unit
        self.log.warn("the entry index does not cover the log before {offset}: it is rebuilt",
                      offset=start)
        return None

    def _ends_at(self, unit: EntryUnit, offset: int) -> bool:
        """Return whether an offset is the end of an entry, or the end of its file."""
        return unit.end == offset or self.next_file_start(unit.position) == offset

    def _last_unit(self, end: int, last: int) -> EntryUnit | None:
        """Find the last entry that begins before an offset, by halving.

        :param last: no entry with a higher index is before the offset.
        """
        low, high = self.begin_index, last
        while low < high:
            middle = (low + high + 1) // 2
            unit = self.index.unit(middle)
            if unit is not None and unit.position < end:
                low = middle
            else:
                high = middle - 1
        return self.index.unit(low)

    def end_at(self, offset: int) -> None:
        """See CommitLog."""
        super().end_at(offset)
        self._settle_end()

    # --- writing

    def write(self, writes: Sequence[tuple[int, bytes]]) -> None:
        """Write entries whose heads ``framing`` made, all or nothing; see CommitLog."""
        framing = self.framing
        try:
            self.index.write(framing.begin_index, framing.units)
            super().write(writes)
        except StoreError as error:
            framing.undo()
            self.write_fault = str(error)
            raise
        self.write_fault = ""
        if self.begin_index < 0:
            self.begin_index = framing.begin_index
        framing.keep()

    def drop_first(self) -> Callable[[], None] | None:
        """See CommitLog. The files of the index for the removed entries are removed as well."""
        before = self.begin_index
        close = super().drop_first()
        head = self._head(self.min_offset)
        assert head is not None, self.min_offset
        self.begin_index = head.index
        # The index files of the file that is about to be removed are kept until it is gone.
        remove = self.index.drop_before(before)

        def both() -> None:
            for each in (close, remove):
                if each is not None:
                    each()

        return both

    def begin_again(
        self, offset: int, writes: Sequence[tuple[int, bytes]]
    ) -> Callable[[], None]:
        """Drop all entries, and begin the log again at an offset, where a file starts.

        While both the old files and the new one exist, another file states the offset, so that a
        start after a crash keeps either the old files or the new one.

        :param writes: the first entry, see ``write``.
        :returns: a job that removes the old files, for a thread.
        :raises StoreError, OSError: when the disk fails.
        """
        if offset < self.max_offset:
            super().truncate(offset)
        io = self._io
        io.write_file_atomically(self._begin_path, str(offset).encode())
        self.index.start_over()
        old = [start for start in self.starts if start < offset]
        self.starts = [start for start in self.starts if start >= offset]
        self.max_offset = self.flushed_offset = self._room_end = offset
        self.begin_index = -1
        self.write(writes)
        io.sync_path(segment_path(self.directory, offset))
        io.sync_path(self.directory)
        self.flushed_offset = self.max_offset
        for start in old:
            self._forget_file(start)

        def remove() -> None:
            for start in reversed(old):
                io.remove(segment_path(self.directory, start))
            io.sync_path(self.directory)
            io.remove(self._begin_path)
            io.sync_path(self.folder)

        return remove

    def _finish_beginning(self) -> None:
        """Finish or undo a ``begin_again`` that a crash interrupted, before files are loaded."""
        io = self._io
        if not io.exists(self._begin_path):
            return
        offset = int(io.read_file(self._begin_path))
        begins = segment_path(self.directory, offset)
        names = [name for name in io.list_directory(self.directory) if name.isdecimal()]
        if io.exists(begins):
            file = io.open_file(begins)
            data = file.read_at(0, ENTRY_HEAD_SIZE + 4)
            file.close()
            is_written = len(data) > ENTRY_HEAD_SIZE and record_follows(data, 0, offset)
            dropped = [name for name in names if (int(name) < offset) == is_written]
            self.log.warn("the ledger begins again at {offset}: {done}", offset=offset,
                          done="old files are removed" if is_written else "this is undone")
            for name in reversed(dropped):
                io.remove(f"{self.directory}/{name}")
            io.sync_path(self.directory)
            for name in io.list_directory(self.index.directory):
                io.remove(f"{self.index.directory}/{name}")
        io.remove(self._begin_path)
        io.sync_path(self.folder)

    def truncate(self, offset: int) -> None:
        """See CommitLog."""
        super().truncate(offset)
        self._settle_end()

    def cut_later(self, offset: int) -> Callable[[], None]:
        """End the log at an offset; see ``CommitLog.cut_job``.

        The job cuts the index first. After a crash, recovery writes the units again of
        entries that the log still has.
        """
        log_job = super().cut_job(offset)
        index_job = self._end_job()

        def cut() -> None:
            index_job()
            log_job()

        return cut

    def _settle_end(self) -> None:
        """Find the entry that is the last one now, and clear the units after it.

        :raises OSError: when the disk fails.
        """
        self._end_job()()

    def _end_job(self) -> Callable[[], None]:
        """Find the entry that is the last one now; :returns: a job that clears the units after it.

        :raises StoreError: when the index does not have the entry.
        """
        if self.max_offset <= self.min_offset:
            self.begin_index = -1
            self.framing.reset(0, -1)
            return self.index.start_over_job()
        unit = self._last_unit(self.max_offset, self.framing.next_index - 1)
        if unit is None or not self._ends_at(unit, self.max_offset):
            raise StoreError(f"the entry index has no entry that ends at {self.max_offset}")
        self.framing.reset(unit.index + 1, unit.term)
        self.committed_index = min(self.committed_index, unit.index)
        return self.index.cut_job(unit.index + 1)

    def companion_job(self) -> Callable[[], None]:
        """Return a job that makes the entry index durable; see CommitLog."""
        return self.index.sync_job()

    def state_job(self) -> Callable[[], None] | None:
        """Return a job that writes the checkpoint file of the ledger; see CommitLog."""
        checkpoint = LedgerCheckpoint(self.committed_index, self.end_index)
        if checkpoint == self._saved:
            return None

        def save() -> None:
            write_checkpoint(self._io, self.folder, checkpoint)
            self._saved = checkpoint

        return save

    # --- reading

    def begins_at(self, offset: int) -> bool:
        """Return whether an entry, or the filler of a file, begins here; see CommitLog."""
        head = self.peek(offset, 8)
        if head is not None and head[:4] == ENTRY_FILLER:
            return int.from_bytes(head[4:], "big") == self.next_file_start(offset) - offset
        return self._head(offset) is not None

    def newest_timestamp(self, otherwise_ms: int) -> int:
        """See CommitLog."""
        unit = self.unit_at(self.end_index)
        if unit is None:
            return otherwise_ms
        return max(otherwise_ms, self.store_timestamp(unit.position + ENTRY_HEAD_SIZE))

    def _head(self, offset: int) -> EntryUnit | None:
        """Read the head of the entry that begins at an offset; None when no entry does."""
        data = self.peek(offset, ENTRY_HEAD_SIZE + 4)
        if data is None or not record_follows(data, 0, offset):
            return None
        _, size, index, term, *_ = ENTRY_HEAD.unpack_from(data)
        return EntryUnit(offset, size, index, term)

    def close(self) -> None:
        """Close every file."""
        super().close()
        self.index.close()
