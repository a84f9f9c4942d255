"""Trace messages under construction: the records of one client are combined into one message.

As in the trace messages of a client, KEYS contains the message ids and keys of the records, and the
born host is the client's address; `mqadmin queryMsgTraceById` reads it there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from twistmq.protocol.trace_records import TraceRecord, encode_records, record_keys

__all__ = ["Page", "Pages"]

#: The number of records, bytes of bodies or bytes of keys at which a page is full.
#: Source: AsyncTraceDispatcher takes 20 contexts and 128,000 bytes; properties hold 32,767 bytes.
RECORDS_MAX: Final = 100
BODY_BYTES_MAX: Final = 100_000
KEYS_BYTES_MAX: Final = 12_000


@dataclass(slots=True)
class Page:
    """The contents of one trace message."""

    #: The client's address and port.
    host: bytes
    parts: list[bytes] = field(default_factory=list)
    #: In order, without duplicates.
    keys: dict[str, None] = field(default_factory=dict)
    body_bytes: int = 0
    keys_bytes: int = 0

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def is_full(self) -> bool:
        return (len(self.parts) >= RECORDS_MAX or self.body_bytes >= BODY_BYTES_MAX
                or self.keys_bytes >= KEYS_BYTES_MAX)

    def add(self, record: TraceRecord) -> None:
        """Add a record; keys that do not fit are left out, but the first message id always fits."""
        data = encode_records((record,))
        self.parts.append(data)
        self.body_bytes += len(data)
        for key in record_keys(record):
            size = (len(key) if key.isascii() else len(key.encode("utf-8", "replace"))) + 1
            if key not in self.keys and self.keys_bytes + size <= 2 * KEYS_BYTES_MAX:
                self.keys[key] = None
                self.keys_bytes += size


class Pages:
    """The pages of all clients."""

    def __init__(self) -> None:
        self._open: dict[bytes, Page] = {}
        self._full: list[Page] = []

    def add(self, host: bytes, record: TraceRecord) -> None:
        page = self._open.get(host)
        if page is None:
            page = self._open[host] = Page(host)
        page.add(record)
        if page.is_full:
            self._full.append(self._open.pop(host))

    def close(self) -> list[Page]:
        """Return all pages, full or not."""
        return [*self._full, *self._open.values()]
