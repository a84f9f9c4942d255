"""A log in memory: for tests and simulations, and for groups whose state is small."""

from collections.abc import Sequence

from twistmq.raft.messages import Entry

__all__ = ["MemoryLog"]


class MemoryLog:
    """A ``Log`` whose entries are a list. ``drop_before`` raises ``begin_index``."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        """Begin with the entries, whose indexes are consecutive."""
        self.entries = list(entries)

    @property
    def begin_index(self) -> int:
        """The index of the first entry; -1 if the log is empty."""
        return self.entries[0].index if self.entries else -1

    @property
    def end_index(self) -> int:
        """The index of the last entry; -1 if the log is empty."""
        return self.entries[-1].index if self.entries else -1

    def term_at(self, index: int) -> int:
        """Return the term of the entry at an index."""
        return self._entry_at(index).term

    def read(self, first: int, bytes_max: int) -> tuple[Entry, ...]:
        """Return the entries from ``first`` on: at least one, then as many as fit the limit."""
        entries = [self._entry_at(first)]
        size = len(entries[0].body)
        for entry in self.entries[first + 1 - self.begin_index:]:
            size += len(entry.body)
            if size > bytes_max:
                break
            entries.append(entry)
        return tuple(entries)

    def has_entry(self, entry: Entry) -> bool:
        """Return whether the log has exactly this entry."""
        return (bool(self.entries) and self.begin_index <= entry.index <= self.end_index
                and self._entry_at(entry.index) == entry)

    def extend(self, term: int, bodies: Sequence[bytes]) -> None:
        """Append new entries of this member, which leads ``term``."""
        for body in bodies:
            self.entries.append(Entry(self.end_index + 1, term, body))

    def append_barrier(self, term: int) -> None:
        """Append the entry without content that a new leader writes first."""
        self.extend(term, [b""])

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries of a leader; the first index is ``end_index + 1``."""
        assert not self.entries or entries[0].index == self.end_index + 1, "a gap in the log"
        self.entries.extend(entries)

    def truncate(self, end_index: int) -> None:
        """Drop all entries after ``end_index``."""
        if self.entries:
            del self.entries[max(end_index + 1 - self.begin_index, 0):]

    def restart(self, entry: Entry) -> None:
        """Drop all entries and begin again with this one."""
        self.entries[:] = [entry]

    def drop_before(self, index: int) -> None:
        """Drop the entries before an index, as retention does. The last entry always remains."""
        del self.entries[:max(min(index, self.end_index) - self.begin_index, 0)]

    def _entry_at(self, index: int) -> Entry:
        assert self.begin_index <= index <= self.end_index, f"no entry has the index {index}"
        return self.entries[index - self.begin_index]
