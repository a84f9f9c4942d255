"""Bodies with one row for each queue, written row by row: a topic may have thousands.

Source: TopicStatsTable, ConsumeStats @5.3.3.
"""

from __future__ import annotations

from twistmq.broker.wire import json_dialect
from twistmq.broker.wire.bodies import (
    ConsumeStats,
    MessageQueue,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
)

__all__ = ["OffsetRows"]

_EMPTY = b'"offsetTable":{}'


class OffsetRows:
    """The rows of an ``offsetTable``."""

    def __init__(self) -> None:
        self._rows: list[bytes] = []

    def add(self, queue: MessageQueue, offset: TopicOffset | OffsetWrapper) -> None:
        self._rows.append(json_dialect.encode({queue: offset}, quote_int_keys=False)[1:-1])

    def encode_in(self, body: TopicStatsTable | ConsumeStats) -> bytes:
        """Write a body whose own table is empty, with these rows in it."""
        before, empty, after = body.encode().partition(_EMPTY)
        assert empty, before
        return b"".join([before, _EMPTY[:-1], b",".join(self._rows), b"}", after])
