"""Refusals as frames, assembled from parts that are encoded only once.

A broker that receives eight times its capacity refuses seven requests for each one that it serves.
The cost of a refusal therefore decides whether the broker keeps up.
"""

from __future__ import annotations

from typing import Final

from twistmq.broker.api import ResponseCode
from twistmq.broker.api.wire import JSON, encode_frame, encode_reply

__all__ = ["Refusal"]

#: Placeholders for the opaque and the number when a template frame is split; nothing else in the
#: frame has this many digits.
_OPAQUE: Final = 1_987_654_321
_NUMBER: Final = 1_123_456_789
#: The bytes of a frame before its header: two length fields.
_PREFIX_SIZE: Final = 8


class Refusal:
    """SYSTEM_BUSY with one remark, for any request.

    :param remark: the text; it may contain one ``{}`` for a number.
    """

    __slots__ = ("_head", "_middle", "_size", "_starts", "_tail")

    def __init__(self, remark: str) -> None:
        frame = encode_reply(
            ResponseCode.SYSTEM_BUSY, _OPAQUE, None, b"", remark.format(_NUMBER))
        self._head, _, tail = frame[_PREFIX_SIZE:].partition(b"%d" % _OPAQUE)
        self._middle, number, self._tail = tail.partition(b"%d" % _NUMBER)
        if not number:
            self._middle, self._tail = b"", tail
        self._size = len(self._head) + len(self._middle) + len(self._tail)
        #: The text before the opaque, by the total number of digits of opaque and number.
        self._starts: dict[int, bytes] = {}

    def frame(self, opaque: int) -> bytes:
        """Return the frame that refuses one request; for a remark without a number."""
        text = b"%d" % opaque
        return (self._starts.get(len(text)) or self._start(len(text))) + text + self._tail

    def frame_with(self, opaque: int, number: int) -> bytes:
        """Return the frame that refuses one request, with a number in the remark."""
        text, more = b"%d" % opaque, b"%d" % number
        digits = len(text) + len(more)
        start = self._starts.get(digits) or self._start(digits)
        return b"".join((start, text, self._middle, more, self._tail))

    def _start(self, digits: int) -> bytes:
        prefix = encode_frame(JSON, bytes(self._size + digits), b"")[:_PREFIX_SIZE]
        start = self._starts[digits] = prefix + self._head
        return start
