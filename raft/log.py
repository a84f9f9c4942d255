"""The interface of a log. A log belongs to one member, and only the core changes it.

The methods act at once, as a write to a page cache does. A change survives a loss of power only
after the event ``Flushed``.
"""

from collections.abc import Sequence
from typing import Protocol

from twistmq.raft.messages import Entry

__all__ = ["Log", "LogError", "LogRejected"]


class LogError(Exception):
    """The log can no longer be read or written: the disk is full, or it has failed."""


class LogRejected(Exception):
    """The log has refused entries with a wrong position or an invalid body. It is unchanged."""


class Log(Protocol):
    """A sequence of entries with the indexes ``begin_index`` to ``end_index``.

    Every method may raise LogError. The core does not call a method with an index outside of the
    log, and does not truncate committed entries.
    """

    @property
    def begin_index(self) -> int:
        """The index of the first entry that is still present; -1 if the log is empty."""

    @property
    def end_index(self) -> int:
        """The index of the last entry; -1 if the log is empty."""

    def term_at(self, index: int) -> int:
        """Return the term of the entry at an index."""

    def read(self, first: int, bytes_max: int) -> tuple[Entry, ...]:
        """Return the entries from ``first`` on: at least one, then as many as fit the limit."""

    def has_entry(self, entry: Entry) -> bool:
        """Return whether the log has exactly this entry: index, term, position and body."""

    def extend(self, term: int, bodies: Sequence[bytes]) -> None:
        """Append new entries of this member, which leads ``term``.

        :raises LogRejected: when a body does not suit this log; nothing is appended.
        """

    def append_barrier(self, term: int) -> None:
        """Append the entry without content that a new leader writes first."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries of a leader; the first index is ``end_index + 1``.

        :raises LogRejected: when an entry does not fit; nothing is appended.
        """

    def truncate(self, end_index: int) -> None:
        """Drop all entries after ``end_index``. With -1 (or ``begin_index - 1``) none remains."""

    def restart(self, entry: Entry) -> None:
        """Drop all entries and begin again with this one, at its index and position.

        :raises LogRejected: when the entry does not fit; the log is unchanged.
        """
