"""The argument of the send hooks: send requests that are handled together, and their records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from twistmq.broker.remoting.messages import (
    DeferredReply,
    Handled,
    Reply,
    Request,
    UnmadeReplies,
)
from twistmq.broker.remoting.request_runs import send_outlines
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.headers.send import SendMessageRequestHeader
from twistmq.protocol.record import MessageRecord

__all__ = ["LazyBatch", "SendBatch", "SendRequest", "is_stored"]

#: A send request; the header V2 is a subclass with other names on the wire.
SendRequest = Request[SendMessageRequestHeader]


@dataclass(slots=True)
class SendBatch:
    """A batch of send requests.

    All lists have one entry for each request, in order. A request has one record, several records
    if it carries a batch of messages, or none if it was refused.
    """

    #: Their headers are SendMessageRequestHeader or its V2, which has the same attributes.
    requests: list[Request[SendMessageRequestHeader]]
    #: The records of each request; a batch has several.
    records: list[list[MessageRecord]] = field(default_factory=list)
    #: The answer to each request, filled in when its messages are stored or refused.
    replies: list[Handled] = field(default_factory=list)

    @property
    def outlines(self) -> Sequence[tuple[str, str, bytes]]:
        """Topic, producer group and properties (in UTF-8) of each request, as received.

        Reading them costs less than the header of each request, which contains them too.
        """
        return send_outlines(self.requests)

    @property
    def topics(self) -> Collection[str]:
        """The topics of the records."""
        return {record.topic for records in self.records for record in records}

    @property
    def all_stored(self) -> bool:
        """Whether each message is in the log, flushed or not; for ``after_send``."""
        return all(map(is_stored, self.replies))


def is_stored(reply: Handled) -> bool:
    """Whether the messages of a send with this answer are in the log, flushed or not."""
    if isinstance(reply, DeferredReply):
        return True
    return isinstance(reply, Reply) and reply.code == ResponseCode.SUCCESS


class LazyBatch(SendBatch):
    """A batch whose lists are made when a plugin asks for them.

    Before the messages are stored, ``replies`` has an empty entry for each request, which a refusal
    can fill.

    :param records: the records of each request, if ``single`` is not given.
    :param single: the one record of each request.
    :param replies: replies that exist already.
    """

    __slots__ = ("_answers", "_made_replies", "_records", "_single")

    def __init__(
        self, requests: list[Request[SendMessageRequestHeader]],
        records: list[list[MessageRecord]] | None = None, replies: list[Handled] | None = None,
        single: Sequence[MessageRecord] = (),
    ) -> None:
        self.requests = requests
        self._records = records
        self._single = single
        self._answers: Sequence[Handled] = [None] * len(requests)
        self._made_replies = replies

    @property
    def topics(self) -> Collection[str]:
        return super().topics if self._records is not None else {
            record.topic for record in self._single}

    @property
    def records(self) -> list[list[MessageRecord]]:  # type: ignore[override]
        if self._records is None:
            self._records = [[record] for record in self._single]
        return self._records

    @property
    def all_stored(self) -> bool:
        if self._made_replies is None and isinstance(self._answers, UnmadeReplies):
            return True
        return super().all_stored

    @property
    def single(self) -> Sequence[MessageRecord]:
        """The one record of each request, if each has exactly one."""
        return self._single

    @property
    def is_untouched(self) -> bool:
        """Whether no plugin has asked for a list that it could change."""
        return self._records is None and self._made_replies is None

    @property
    def replies(self) -> list[Handled]:  # type: ignore[override]
        if self._made_replies is None:
            self._made_replies = list(self._answers)
        return self._made_replies

    @property
    def made_replies(self) -> list[Handled] | None:
        """The replies, if they were made; a plugin may have changed one."""
        return self._made_replies

    def answered(self, answers: Sequence[Handled]) -> None:
        """Set the answers. Those that are not objects yet are made when they are needed."""
        self._answers = answers
        self._made_replies = answers if isinstance(answers, list) else None
