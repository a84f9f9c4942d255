"""Bodies put together of rows, one for each topic, queue or group: there may be thousands."""

from __future__ import annotations

from collections.abc import Iterable

from twistmq.protocol import json_dialect
from twistmq.protocol.bodies.body import Body, MessageQueue

__all__ = ["encode_with_rows", "map_row"]


def map_row(key: MessageQueue | str, value: object) -> bytes:
    """A row of a map."""
    return json_dialect.encode({key: value}, quote_int_keys=False)[1:-1]


def encode_with_rows(body: Body, empty: bytes, rows: Iterable[bytes]) -> bytes:
    """Write a body that has no rows, with rows in it.

    :param empty: the list or map without rows as the body has it: ``b'"offsetTable":{}'``.
    """
    before, found, after = body.encode().partition(empty)
    assert found, before
    return b"".join([before, empty[:-1], b",".join(rows), empty[-1:], after])
