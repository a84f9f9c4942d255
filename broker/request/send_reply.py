"""The reply to a stored message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, overload

from twistmq.broker.codes import ResponseCode
from twistmq.broker.remoting.messages import Handled, Reply, Request, UnmadeReplies
from twistmq.broker.request.send_record import StoredReplyMaker
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.headers.send import SendMessageResponseHeader
from twistmq.broker.wire.message_id import offset_message_id
from twistmq.broker.wire.record import MessageRecord

__all__ = ["StoredReplies", "StoredReply"]

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


class StoredReplies(UnmadeReplies):
    """Say where messages are, each the only one of its request.

    :param records: the messages, stored.
    :param queue_ids: of the queues they were sent to.
    :param store_host: as of ``StoredReply``.
    """

    def __init__(
        self, records: Sequence[MessageRecord], queue_ids: Sequence[int], store_host: bytes,
        maker: StoredReplyMaker,
    ) -> None:
        self._records = records
        self._queue_ids = queue_ids
        self._store_host = store_host
        self._maker = maker

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Handled: ...

    @overload
    def __getitem__(self, index: slice) -> list[Handled]: ...

    def __getitem__(self, index: int | slice) -> Handled | list[Handled]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        return StoredReply(
            self._records[index], self._queue_ids[index], self._store_host, self._maker)

    def frames(self, requests: Sequence[Request[Any]]) -> list[bytes]:
        return self._maker.frames(requests, self._records, self._queue_ids, self._store_host)
