"""The log of a member as the agreement sees it: the ledger in the store of the broker.

Only the types differ. An entry of the ledger becomes an entry of the agreement, and an error of the
store becomes the error that the agreement expects: a refused entry leaves the log unchanged, and
any other failure means that the disk cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from twistmq.broker.api import StoreError
from twistmq.broker.api.ledger import EntryRefused, Ledger, StoredEntry
from twistmq.raft.log import LogError, LogRejected
from twistmq.raft.messages import Entry

__all__ = ["LedgerLog"]


class LedgerLog:
    """A ``Log`` whose entries are in a ledger.

    :param now_ms: the wall clock, Unix ms, for the store time of barriers.
    """

    def __init__(self, ledger: Ledger, now_ms: Callable[[], int]) -> None:
        self._ledger = ledger
        self._now_ms = now_ms

    @property
    def begin_index(self) -> int:
        """See Log."""
        return self._ledger.begin_index

    @property
    def end_index(self) -> int:
        """See Log."""
        return self._ledger.end_index

    def term_at(self, index: int) -> int:
        """See Log."""
        with _translated():
            return self._ledger.term_at(index)

    def read(self, first: int, bytes_max: int) -> tuple[Entry, ...]:
        """See Log."""
        with _translated():
            return tuple(Entry(entry.index, entry.term, entry.body, entry.position)
                         for entry in self._ledger.read(first, bytes_max))

    def has_entry(self, entry: Entry) -> bool:
        """See Log."""
        with _translated():
            return self._ledger.has_entry(_stored(entry))

    def extend(self, term: int, bodies: Sequence[bytes]) -> None:
        """See Log."""
        with _translated():
            self._ledger.extend(term, bodies)

    def append_barrier(self, term: int) -> None:
        """See Log."""
        with _translated():
            self._ledger.append_barrier(term, self._now_ms())

    def append(self, entries: Sequence[Entry]) -> None:
        """See Log."""
        with _translated():
            self._ledger.append([_stored(entry) for entry in entries])

    def truncate(self, end_index: int) -> None:
        """See Log."""
        with _translated():
            self._ledger.truncate(end_index)

    def restart(self, entry: Entry) -> None:
        """See Log."""
        with _translated():
            self._ledger.restart(_stored(entry))


def _stored(entry: Entry) -> StoredEntry:
    return StoredEntry(entry.index, entry.term, entry.body, entry.position)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the errors of a store into the errors of a log."""
    try:
        yield
    except EntryRefused as error:
        raise LogRejected(str(error)) from error
    except (StoreError, OSError) as error:
        raise LogError(str(error)) from error
