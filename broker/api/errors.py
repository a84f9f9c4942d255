"""Errors of the store, the wire and other servers.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.errors import StoreCut, StoreFull
from twistmq.protocol.errors import (
    HeaderError,
    MessageIllegal,
    RemotingError,
    RemotingTimeout,
    StoreDamaged,
    WireError,
)

__all__ = [
    "HeaderError",
    "MessageIllegal",
    "RemotingError",
    "RemotingTimeout",
    "StoreCut",
    "StoreDamaged",
    "StoreFull",
    "WireError",
]
