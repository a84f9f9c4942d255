"""Bodies with a row for each queue, entry or group, written row by row: there may be thousands."""

from __future__ import annotations

from twistmq.broker.api.bodies import encode_with_rows, map_row

__all__ = ["encode_with_rows", "map_row"]
