"""Flow control that lets so many requests wait, whatever they are."""

from __future__ import annotations

from collections.abc import Sequence

from zope.interface import implementer

from twistmq.broker.api import IFlowControl, ResponseCode
from twistmq.broker.api.errors import HeaderError
from twistmq.broker.api.requests import WaitingRequests
from twistmq.broker.api.wire import Frame, decode_command, encode_reply

Sorted = tuple[Sequence[Frame], Sequence[bytes]]


@implementer(IFlowControl)
class Patience:
    """Refuses requests when ``maximum`` wait; never for how long they did."""

    rejects = False

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum

    def begin_round(self, waiting: WaitingRequests) -> None:
        """It looks when requests come."""

    def arrived(self, frames: Sequence[Frame], own_count: int, waiting: WaitingRequests) -> Sorted:
        room = max(self._maximum - waiting.request_count, 0)
        return frames[:room], [_refusal(frame) for frame in frames[room:]]

    def due(self, frames: Sequence[Frame], waited_ms: int, waiting: WaitingRequests) -> Sorted:
        return frames, ()

    def reject(self, frames: Sequence[Frame]) -> Sorted:
        return frames, ()


def _refusal(frame: Frame) -> bytes:
    try:
        opaque = decode_command(frame).opaque
    except HeaderError:
        opaque = 0
    return encode_reply(ResponseCode.SYSTEM_BUSY, opaque, None, b"", "too many wait")
