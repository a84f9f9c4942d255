"""A disk that forgets what was not synced, and the log of a member on it.

The log keeps the order of its writes: after a loss of power it is in one of the states that it had
since the last sync. Of several hard states under way any one is on the disk after a crash.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from twistmq.raft.hard_state import HardState
from twistmq.raft.log import LogError, LogRejected
from twistmq.raft.messages import Entry

__all__ = ["ENTRY_BYTES", "Disk", "DiskLog"]

#: The bytes of an entry without its body.
ENTRY_BYTES = 48


class Disk:
    """What a machine keeps over the lives of its process."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.hard_state: HardState | None = None
        self.committed_index = -1
        #: Whether writes and syncs fail at present.
        self.is_failing = False
        #: Each sync and each hard state takes up to so many milliseconds.
        self.latency_ms_max = 2
        #: The states of the log since the last sync, the synced one first, by number.
        self._states: list[tuple[int, list[Entry]]] = [(0, [])]
        self._number = 0
        #: Hard states that are being written.
        self._writing: dict[int, HardState] = {}

    def change(self) -> None:
        """Note that the log has another state now."""
        self._number += 1
        self._states.append((self._number, self.entries[:]))

    def begin_sync(self) -> int:
        """The number of the state that a sync makes durable."""
        return self._number

    def end_sync(self, number: int) -> None:
        """The state with that number is durable, and no earlier one comes back."""
        self._states = [state for state in self._states if state[0] >= number]

    @property
    def synced(self) -> list[Entry]:
        """The entries of the last durable state."""
        return self._states[0][1]

    def begin_save(self, number: int, state: HardState) -> None:
        """A hard state is being written."""
        self._writing[number] = state

    def end_save(self, number: int) -> None:
        """A hard state is durable, and so are those before it."""
        if number in self._writing:
            self.hard_state = self._writing[number]
            for older in [each for each in self._writing if each <= number]:
                del self._writing[older]

    def kill(self, draw: random.Random) -> None:
        """The process ends: what it wrote stays, and a hard state under way may be there."""
        if self._writing and draw.random() < 0.5:
            self.hard_state = draw.choice(list(self._writing.values()))
        self._writing.clear()
        self.sync_all()

    def lose_power(self, draw: random.Random) -> None:
        """The machine loses its power: writes since the last sync may be lost."""
        if self._writing and draw.random() < 0.5:
            self.hard_state = draw.choice(list(self._writing.values()))
        self._writing.clear()
        self.entries = draw.choice(self._states)[1][:]
        self.sync_all()

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.entries = []
        self.hard_state = None
        self.committed_index = -1
        self._writing.clear()
        self.sync_all()

    def sync_all(self) -> None:
        """All is durable, as a driver makes it at its start."""
        self._number += 1
        self._states = [(self._number, self.entries[:])]


class DiskLog:
    """A ``Log`` on a disk, which tells each entry that it gets and each index it is cut at.

    Entries have positions, as those of DLedger's log files do.
    """

    def __init__(self, disk: Disk, on_entry: Callable[[Entry, int | None], None],
                 on_cut: Callable[[int], None]) -> None:
        """
        :param on_entry: is told a new entry, and the term of the one before; None: not known.
        :param on_cut: is told the last index that remains.
        """
        self.disk = disk
        self._on_entry = on_entry
        self._on_cut = on_cut

    @property
    def begin_index(self) -> int:
        """The index of the first entry; -1 if the log is empty."""
        entries = self.disk.entries
        return entries[0].index if entries else -1

    @property
    def end_index(self) -> int:
        """The index of the last entry; -1 if the log is empty."""
        entries = self.disk.entries
        return entries[-1].index if entries else -1

    def entry_at(self, index: int) -> Entry:
        """The entry at an index, which is in the log."""
        entries = self.disk.entries
        offset = index - entries[0].index
        assert offset >= 0, f"{index} is before the log"
        return entries[offset]

    def term_at(self, index: int) -> int:
        """The term of the entry at an index."""
        return self.entry_at(index).term

    def read(self, first: int, bytes_max: int) -> tuple[Entry, ...]:
        """The entries from ``first`` on: at least one, then as many as fit the limit."""
        entries = self.disk.entries
        begin = end = first - entries[0].index
        assert 0 <= begin < len(entries), f"{first} is not in the log"
        size = len(entries[end].body)
        end += 1
        while end < len(entries) and size + len(entries[end].body) <= bytes_max:
            size += len(entries[end].body)
            end += 1
        return tuple(entries[begin:end])

    def has_entry(self, entry: Entry) -> bool:
        """Whether the log has exactly this entry."""
        entries = self.disk.entries
        offset = entry.index - entries[0].index if entries else -1
        return 0 <= offset < len(entries) and entries[offset] == entry

    def extend(self, term: int, bodies: Sequence[bytes]) -> None:
        """Append a leader's own entries."""
        self._check_disk()
        for body in bodies:
            self._add(Entry(self.end_index + 1, term, body, self._end_position()))
        self.disk.change()

    def append_barrier(self, term: int) -> None:
        """Append the entry without content."""
        self.extend(term, [b""])

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries of a leader."""
        self._check_disk()
        assert entries[0].index == self.end_index + 1, "a gap in the log"
        if self.disk.entries and entries[0].position != self._end_position():
            raise LogRejected(f"its position is {entries[0].position}")
        for entry in entries:
            self._add(entry)
        self.disk.change()

    def truncate(self, end_index: int) -> None:
        """Drop all entries after an index."""
        self._check_disk()
        if self.disk.entries:
            self._on_cut(end_index)
            del self.disk.entries[max(end_index + 1 - self.begin_index, 0):]
            self.disk.change()

    def restart(self, entry: Entry) -> None:
        """Begin again with an entry."""
        self._check_disk()
        self._on_cut(entry.index - 1)
        self.disk.entries.clear()
        self._on_entry(entry, None)
        self.disk.entries.append(entry)
        self.disk.change()

    def drop_before(self, index: int) -> None:
        """Drop the entries before an index that is in the log, as retention does."""
        del self.disk.entries[:index - self.begin_index]
        self.disk.change()

    def _add(self, entry: Entry) -> None:
        entries = self.disk.entries
        self._on_entry(entry, entries[-1].term if entries else -1 if entry.index == 0 else None)
        entries.append(entry)

    def _end_position(self) -> int:
        entries = self.disk.entries
        return entries[-1].position + ENTRY_BYTES + len(entries[-1].body) if entries else 0

    def _check_disk(self) -> None:
        if self.disk.is_failing:
            raise LogError("the disk fails")
