"""The replies to stored messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, overload

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.broker.remoting.messages import (
    DeferredReply,
    Handled,
    Reply,
    Request,
    UnmadeReplies,
)
from twistmq.broker.request.send_record import StoredReplyMaker
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import ONEWAY_FLAG
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.record import MessageRecord

__all__ = ["StoredReplies", "StoredReply", "settle"]

#: Looking up a member of an enumeration takes ten times as long.
_SUCCESS: Final = ResponseCode.SUCCESS


class StoredReply(Reply):
    """Reports the position of a message. A header object is made only if a plugin looks at it.

    :param record: the message, stored.
    :param queue_id: the queue to which it was sent, even if a plugin stored it elsewhere.
    :param store_host: the broker's address in the format of records.
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
        """Write the success frame while the disk works; it is sent if nothing changes by then."""
        self._ahead = self.frame(opaque)

    def frame(self, opaque: int) -> bytes:
        if self._header is None and self.remark is None and not self.body:
            if self._ahead is not None and self.code == _SUCCESS:
                return self._ahead
            return self._maker.frame(
                self.code, opaque, self._record, self._queue_id, self._store_host)
        return super().frame(opaque)


def settle(
    replies: Sequence[Reply], safe: Deferred[ResponseCode], refused: Callable[[BrokerError], Reply]
) -> Deferred[None]:
    """Set the outcome of an acknowledgement in success replies once it is known.

    :param replies: more replies may be added until then.
    :param safe: fires with the code, or fails with a refusal.
    :param refused: makes the reply of a refusal.
    :returns: ``safe``, which no longer fails.
    """

    def set_code(code: ResponseCode) -> None:
        for reply in replies:
            reply.code = code

    def refuse(failure: Failure) -> None:
        # One Deferred holds replies of several writes, none of which may see it fail.
        assert isinstance(failure.value, RequestRefused)
        by = refused(failure.value)
        for reply in replies:
            _take_outcome(reply, by)

    return safe.addCallbacks(set_code, refuse)


def _take_outcome(reply: Reply, outcome: Reply) -> None:
    """Give a success reply the outcome of its acknowledgement, a code or a refusal."""
    reply.code = outcome.code
    if outcome.header is not None or outcome.remark is not None:
        reply.remark, reply.header = outcome.remark, outcome.header


class StoredReplies(UnmadeReplies):
    """Report the positions of messages, one for each request, at once or when they are safe.

    :param records: the messages, stored.
    :param queue_ids: the queues to which they were sent.
    :param store_host: see ``StoredReply``.
    """

    #: The success frames, written while the disk works.
    _ahead: list[bytes] | None = None
    #: Holds the common outcome, a code or a refusal; None if the replies did not wait.
    _outcome: Reply | None = None
    #: The outcome, and the replies that were requested before the messages were safe.
    _waiting: list[Reply]

    def __init__(
        self, records: Sequence[MessageRecord], queue_ids: Sequence[int], store_host: bytes,
        maker: StoredReplyMaker,
    ) -> None:
        self._records = records
        self._queue_ids = queue_ids
        self._store_host = store_host
        self._maker = maker

    def wait(
        self, safe: Deferred[ResponseCode], refused: Callable[[BrokerError], Reply],
        requests: Sequence[Request[Any]],
    ) -> None:
        """Let the replies wait until the messages are safe.

        :param safe: see ``settle``.
        :param refused: see ``settle``.
        """
        self._ahead = self._maker.frames(
            requests, self._records, self._queue_ids, self._store_host)
        self._outcome = Reply()
        self._waiting = [self._outcome]
        self.until = settle(self._waiting, safe, refused)

    def part(self, begin: int, end: int) -> StoredReplies:
        if begin == 0 and end == len(self._records):
            return self
        part = StoredReplies(
            self._records[begin:end], self._queue_ids[begin:end], self._store_host, self._maker)
        if self._outcome is not None:
            # If no request is one-way, each has its frame.
            if self._ahead is not None and len(self._ahead) == len(self._records):
                part._ahead = self._ahead[begin:end]
            part._outcome, part._waiting = self._outcome, self._waiting
            part.until = self.until
        return part

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Handled: ...

    @overload
    def __getitem__(self, index: slice) -> list[Handled]: ...

    def __getitem__(self, index: int | slice) -> Handled | list[Handled]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        reply = StoredReply(
            self._records[index], self._queue_ids[index], self._store_host, self._maker)
        if self.until is None:
            return reply
        assert self._outcome is not None
        # The outcome may be known already: a broker may cease to be the master in the turn in which
        # it has appended the message.
        _take_outcome(reply, self._outcome)
        self._waiting.append(reply)
        return DeferredReply(reply, self.until)

    def frames(self, requests: Sequence[Request[Any]]) -> list[bytes]:
        outcome = self._outcome
        if outcome is None or outcome.code == _SUCCESS:
            return self._ahead if self._ahead is not None else self._maker.frames(
                requests, self._records, self._queue_ids, self._store_host)
        frames = []
        for request, record, queue_id in zip(
                requests, self._records, self._queue_ids, strict=True):
            opaque = request.command.opaque
            if not request.command.flag & ONEWAY_FLAG:
                frames.append(self._maker.frame(
                    outcome.code, opaque, record, queue_id, self._store_host)
                    if outcome.header is None else outcome.frame(opaque))
        return frames
