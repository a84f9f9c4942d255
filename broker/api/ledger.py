"""The ledger of a store, for a plugin by which brokers agree on their logs.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.store.ledger.entry_log import EntryLog
from twistmq.broker.store.ledger.ledger import EntryRefused, Ledger, StoredEntry
from twistmq.broker.store.ledger.state_files import HardState, read_hard_state, write_hard_state

__all__ = [
    "EntryLog",
    "EntryRefused",
    "HardState",
    "Ledger",
    "StoredEntry",
    "read_hard_state",
    "write_hard_state",
]
