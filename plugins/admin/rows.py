"""Bodies with one row for each queue or entry, written row by row: there may be thousands."""

from __future__ import annotations

from collections.abc import Iterable

from twistmq.broker.wire import json_dialect
from twistmq.broker.wire.bodies import Body, MessageQueue, OffsetWrapper, TopicOffset

__all__ = ["encode_with_rows", "offset_row"]


def offset_row(queue: MessageQueue, offset: TopicOffset | OffsetWrapper) -> bytes:
    """A row of an ``offsetTable``."""
    return json_dialect.encode({queue: offset}, quote_int_keys=False)[1:-1]


def encode_with_rows(body: Body, empty: bytes, rows: Iterable[bytes]) -> bytes:
    """Write a body that has no rows, with rows in it.

    :param empty: the list or map without rows as the body has it: ``b'"offsetTable":{}'``.
    """
    before, found, after = body.encode().partition(empty)
    assert found, before
    return b"".join([before, empty[:-1], b",".join(rows), empty[-1:], after])
