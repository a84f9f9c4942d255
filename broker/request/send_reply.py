"""The reply to a stored message."""

from __future__ import annotations

from typing import Final

from twistmq.broker.codes import ResponseCode
from twistmq.broker.remoting.messages import Reply
from twistmq.broker.request.send_record import StoredReplyMaker
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.headers.send import SendMessageResponseHeader
from twistmq.broker.wire.message_id import offset_message_id
from twistmq.broker.wire.record import MessageRecord

__all__ = ["StoredReply"]

#: A member of an enumeration takes ten times as long to look up.
_SUCCESS: Final = ResponseCode.SUCCESS


class StoredReply(Reply):
    """Says where a message is. It has a header object only if a plugin looks at it.

    :param record: the message, stored.
    :param queue_id: of the queue it was sent to, wherever a plugin let it be stored.
    :param store_host: the broker's address as records hold it.
    """

    __slots__ = ("_ahead", "_header", "_maker", "_queue_id", "_record", "_store_host")

    def __init__(
        self, record: MessageRecord, queue_id: int, store_host: bytes, maker: StoredReplyMaker
    ) -> None:
        self.code = _SUCCESS
        self.body = b""
        self.remark = None
        self._ahead: bytes | None = None
        self._header: CommandHeader | None = None
        self._maker = maker
        self._record = record
        self._queue_id = queue_id
        self._store_host = store_host

    @property
    def header(self) -> CommandHeader | None:
        if self._header is None:
            record, maker = self._record, self._maker
            self._header = SendMessageResponseHeader(
                msg_id=offset_message_id(self._store_host, record.physical_offset),
                queue_id=self._queue_id, queue_offset=record.queue_offset,
                transaction_id=record.keys[0] if record.keys else None,
                msg_region=maker.region, trace_on=maker.trace_on)
        return self._header

    @header.setter
    def header(self, header: CommandHeader | None) -> None:
        self._header = header

    def write_ahead(self, opaque: int) -> None:
        """Write the frame of success while the disk works; it goes if nothing changes till then."""
        self._ahead = self.frame(opaque)

    def frame(self, opaque: int) -> bytes:
        if self._header is None and self.remark is None and not self.body:
            if self._ahead is not None and self.code == _SUCCESS:
                return self._ahead
            return self._maker.frame(
                self.code, opaque, self._record, self._queue_id, self._store_host)
        return super().frame(opaque)
