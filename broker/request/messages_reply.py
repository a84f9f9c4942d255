"""A reply with messages, whose records are joined once, after its header."""

from __future__ import annotations

from collections.abc import Sequence

from twistmq.broker.remoting.messages import Reply, reply_too_long
from twistmq.protocol.command import encode_reply_start
from twistmq.protocol.frame import FRAME_SIZE_MAX
from twistmq.protocol.header import CommandHeader

__all__ = ["MessagesReply"]


class MessagesReply(Reply):
    """A reply that joins its records before the frame is made only if a plugin reads the body.

    :param records: complete records as in the commit log, in order.
    :param size: the size of all records in bytes.
    """

    __slots__ = ("_records", "_size")

    def __init__(
        self, code: int, header: CommandHeader | None, records: Sequence[bytes], size: int,
        remark: str | None = None,
    ) -> None:
        self.code = code
        self.header = header
        self.remark = remark
        self._records = records
        self._size = size

    @property
    def body(self) -> bytes:
        if len(self._records) != 1:
            self._records = (b"".join(self._records),)
        return self._records[0]

    @body.setter
    def body(self, body: bytes) -> None:
        self._records = (body,)
        self._size = len(body)

    def frame(self, opaque: int) -> bytes:
        start = encode_reply_start(self.code, opaque, self.header, self._size, self.remark)
        if len(start) + self._size > FRAME_SIZE_MAX:
            raise reply_too_long(len(start) + self._size)
        return b"".join((start, *self._records))
