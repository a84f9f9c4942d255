"""A message store for tests whose log is a ledger, see ``StoreBox``.

    box = LedgerBox().open()
    box.lead_term(1)
    box.append(message("T", b"body"))
    box.commit()
"""

from __future__ import annotations

from typing import Final, Self

from twistmq.broker.store.ledger.ledger import Ledger, make_ledger_store
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.testing.store import StoreBox
from twistmq.protocol.record import host_bytes

__all__ = ["LEDGER_FOLDER", "LedgerBox"]

LEDGER_FOLDER: Final = "/store/dledger-n0"
_HOST: Final = host_bytes("127.0.0.1", 10911)


class LedgerBox(StoreBox):
    """A running store with a ledger, its disk and its clock."""

    #: The folder of the ledger, and the length of each file of its index in bytes.
    folder = LEDGER_FOLDER
    index_file_size = 32 * 64

    ledger: Ledger

    def _make(self) -> MessageStore:
        store, log = make_ledger_store(
            self.settings, self.folder, self.disk, lambda: self.now_ms,
            lambda job: self.in_thread(job), index_file_size=self.index_file_size)
        self.entry_log = log
        self.ledger = Ledger(store, log, _HOST)
        return store

    def open(self) -> Self:
        """Load and start the store."""
        super().open()
        return self

    def lead_term(self, term: int) -> None:
        """Begin to lead a term: everything in the log counts as agreed."""
        self.ledger.leading_term = term
        self.ledger.append_barrier(term, self.now_ms)
        self.commit()

    def commit(self) -> None:
        """Agree on all entries, and make them readable."""
        self.ledger.commit(self.ledger.end_index)
        while self.store.dispatch.behind_bytes:
            self.store.dispatch.step()
