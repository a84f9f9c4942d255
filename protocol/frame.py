"""Remoting frames: splits a byte stream into (serialise type, header, body), and the reverse.

    bytes  field
    4      int32 total: bytes that follow, = 4 + header length + body length
    4      int32 mark: serialise type << 24 | header length (24 bits)
    h      header, JSON or ROCKETMQ binary
    b      body

All integers are big-endian. A frame is at most 16 MiB, as in Apache's decoder. A stream that breaks
these rules cannot be resynchronised: the decoder remembers the reason and accepts no further bytes.
The only exception is a frame that is too long but otherwise correct. A caller that does not need
such a frame can skip it.

Source: NettyDecoder, RemotingCommand @5.3.3; protocol notes 4.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

__all__ = ["FRAME_SIZE_MAX", "JSON", "LONG_FRAME_HEADER_SIZE_MAX", "LONG_FRAME_SIZE_MAX",
           "ROCKETMQ", "Frame", "FrameDecoder", "encode_frame", "frame_start"]

#: The largest ``total`` that a peer may announce, bytes (com.rocketmq.remoting.frameMaxLength).
FRAME_SIZE_MAX: Final = 16_777_216
#: The serialise types: the header is a JSON object, or has Apache's binary form.
JSON: Final = 0
ROCKETMQ: Final = 1

#: The maximum length of a frame that can be skipped, and of its header, bytes. A longer frame is
#: taken for another protocol.
LONG_FRAME_SIZE_MAX: Final = 16 * FRAME_SIZE_MAX
LONG_FRAME_HEADER_SIZE_MAX: Final = 65_536

_PREFIX: Final = struct.Struct(">iI")
_PREFIX_SIZE: Final = 8

#: (serialise type, header bytes, body bytes)
Frame = tuple[int, bytes, bytes]


def encode_frame(serialize_type: int, header: bytes, body: bytes) -> bytes:
    """Join a header and a body into one frame.

    :param serialize_type: ``JSON`` or ``ROCKETMQ``.
    """
    return frame_start(serialize_type, header, len(body)) + body


def frame_start(serialize_type: int, header: bytes, body_size: int) -> bytes:
    """The bytes of a frame before its body.

    :param serialize_type: ``JSON`` or ``ROCKETMQ``.
    """
    size = len(header)
    return _PREFIX.pack(4 + size + body_size, serialize_type << 24 | size) + header


def _fault(total: int, mark: int) -> str:
    """Describe the fault in a frame's first eight bytes; empty for a valid frame."""
    if total < 4:
        return f"frame length {total} is less than 4"
    if total > FRAME_SIZE_MAX:
        return f"frame length {total} is over the limit of {FRAME_SIZE_MAX}"
    if (mark & 0xFFFFFF) > total - 4:
        return f"header length {mark & 0xFFFFFF} is more than the frame's {total - 4} bytes"
    if (mark >> 24) > ROCKETMQ:
        return f"serialise type {mark >> 24} is not known"
    return ""


class FrameDecoder:
    """Turns the bytes that a connection receives into whole frames.

    ``failure`` is empty until the stream breaks the rules, and then holds the reason. Frames that
    were complete before that point are still returned.

    :param pass_over: takes the serialise type and the header of a frame that is too long, and
        returns whether to skip its body. Without this function such a frame breaks the rules.
    """

    def __init__(self, pass_over: Callable[[int, bytes], bool] | None = None) -> None:
        self.failure: str = ""
        self._pass_over = pass_over
        #: The number of bytes still to come of a frame that is being skipped.
        self._skipped_size: int = 0
        self._pending: bytearray = bytearray()
        #: The number of bytes that the buffer needs before its first frame is worth another look.
        self._needed_size: int = _PREFIX_SIZE

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of a frame that is not complete yet."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes of the stream.

        :returns: the frames that are now complete, in order; empty after a failure.
        """
        frames: list[Frame] = []
        if self.failure:
            return frames
        if self._skipped_size:
            passed = min(self._skipped_size, len(data))
            self._skipped_size -= passed
            data = data[passed:]
        if self._pending:
            # A large frame is examined only when it is complete. Until then it grows in one buffer,
            # because a list of its pieces would take forty more bytes for each piece.
            self._pending += data
            if len(self._pending) < self._needed_size:
                return frames
            data = bytes(self._pending)
            self._pending = bytearray()
        position = self._cut(data, frames)
        if position < len(data) and not self.failure:
            self._pending += data[position:]
        return frames

    def _cut(self, data: bytes, frames: list[Frame]) -> int:
        """Append the complete frames of ``data`` to ``frames``; :returns: the end of the last."""
        position = 0
        size = len(data)
        unpack_from = _PREFIX.unpack_from
        while size - position >= _PREFIX_SIZE:
            prefix = unpack_from(data, position)
            total: int = prefix[0]
            mark: int = prefix[1]
            header_size = mark & 0xFFFFFF
            if (
                total < 4
                or total > FRAME_SIZE_MAX
                or header_size > total - 4
                or mark >> 24 > ROCKETMQ
            ):
                if total <= FRAME_SIZE_MAX or self._pass_over is None:
                    self.failure = _fault(total, mark)
                    return position
                begin = position
                position = self._long_frame(data, begin, total, mark)
                if position == begin:
                    return position
                continue
            end = position + 4 + total
            if end > size:
                self._needed_size = 4 + total
                return position
            body_start = position + _PREFIX_SIZE + header_size
            frames.append((mark >> 24, data[position + _PREFIX_SIZE : body_start],
                           data[body_start:end]))
            position = end
        self._needed_size = _PREFIX_SIZE
        return position

    def _long_frame(self, data: bytes, position: int, total: int, mark: int) -> int:
        """Skip a frame that is too long, if its header allows it.

        :returns: where the next frame begins; ``position`` after a failure, or when the header is
            not complete yet.
        """
        header_start = position + _PREFIX_SIZE
        header_end = header_start + (mark & 0xFFFFFF)
        is_frame = (mark >> 24 <= ROCKETMQ and total <= LONG_FRAME_SIZE_MAX
                    and mark & 0xFFFFFF <= LONG_FRAME_HEADER_SIZE_MAX)
        if is_frame and header_end > len(data):
            self._needed_size = header_end - position
            return position
        assert self._pass_over is not None
        if not is_frame or not self._pass_over(mark >> 24, data[header_start:header_end]):
            self.failure = _fault(total, mark)
            return position
        end = position + 4 + total
        self._skipped_size = max(end - len(data), 0)
        return min(end, len(data))
