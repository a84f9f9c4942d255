"""The reply with messages, whose records are joined once, behind its header."""

from __future__ import annotations

from collections.abc import Sequence

from twistmq.broker.remoting.messages import Reply, reply_too_long
from twistmq.broker.wire.command import encode_reply_start
from twistmq.broker.wire.frame import FRAME_SIZE_MAX
from twistmq.broker.wire.header import CommandHeader

__all__ = ["MessagesReply"]


class MessagesReply(Reply):
    """Has a body of its own only if a plugin looks at it.

    :param records: whole, as in the commit log, in order.
    :param size: bytes of all of them.
    """

    __slots__ = ("_body", "_records", "_size")

    def __init__(
        self, code: int, header: CommandHeader | None, records: Sequence[bytes], size: int,
        remark: str | None = None,
    ) -> None:
        self.code = code
        self.header = header
        self.remark = remark
        self._records = records
        self._size = size
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        if self._body is None:
            self._body = b"".join(self._records)
        return self._body

    @body.setter
    def body(self, body: bytes) -> None:
        self._body = body

    def frame(self, opaque: int) -> bytes:
        if self._body is not None:
            return super().frame(opaque)
        start = encode_reply_start(self.code, opaque, self.header, self._size, self.remark)
        if len(start) + self._size > FRAME_SIZE_MAX:
            raise reply_too_long(len(start) + self._size)
        return b"".join((start, *self._records))
