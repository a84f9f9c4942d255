"""Bodies that are assembled from rows, one per topic, queue or group, of which there are many."""

from __future__ import annotations

from collections.abc import Iterable

from twistmq.protocol import json_dialect
from twistmq.protocol.bodies.body import Body, MessageQueue

__all__ = ["encode_with_rows", "map_row"]


def map_row(key: MessageQueue | str, value: object) -> bytes:
    """One row of a map."""
    return json_dialect.encode({key: value}, quote_int_keys=False)[1:-1]


def encode_with_rows(body: Body, empty: bytes, rows: Iterable[bytes]) -> bytes:
    """Write a body without rows, and insert rows into it.

    :param empty: the empty list or map as it appears in the body: ``b'"offsetTable":{}'``.
    """
    before, separator, after = body.encode().partition(empty)
    assert separator, before
    return b"".join([before, empty[:-1], b",".join(rows), empty[-1:], after])
