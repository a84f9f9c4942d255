"""The offsets of a static topic's messages.

The queues of a static topic can move between brokers. A broker stores its part of such a queue with
its own offsets, and its response to a pull contains their distance from the offsets of the whole
queue. The bridge writes the offsets of the whole queue into the records, so that no other code has
to distinguish the two.

Source: PullAPIWrapper.processPullResult @5.3.3.
"""

from __future__ import annotations

import struct

import msgspec

from twistmq.client.base.errors import Undecodable
from twistmq.client.base.messages import PullResult
from twistmq.integrations.tables.record_arrays import record_starts
from twistmq.protocol.record import QUEUE_OFFSET_POSITION

__all__ = ["with_logical_offsets"]

_OFFSET = struct.Struct(">q")


def with_logical_offsets(result: PullResult) -> PullResult:
    """Return a response whose intact records have the offsets of the whole queue.

    :raises Undecodable: when a queue cannot have such an offset.
    """
    delta = result.offset_delta
    if not delta:
        return result
    body = bytearray(result.body)
    starts: list[int] = []
    record_starts(body, 0, len(body), starts)
    for start in starts:
        position = start + QUEUE_OFFSET_POSITION
        [offset] = _OFFSET.unpack_from(body, position)
        try:
            _OFFSET.pack_into(body, position, offset + delta)
        except struct.error:
            raise Undecodable(f"the response to a pull moves offset {offset} by {delta}") from None
    return msgspec.structs.replace(result, body=bytes(body), offset_delta=0)
