"""The argument of the send hooks: the send requests of one read and the records made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twistmq.broker.remoting.messages import Handled, Request
from twistmq.broker.wire.headers.send import SendMessageRequestHeader
from twistmq.broker.wire.record import MessageRecord

__all__ = ["SendBatch", "SendRequest"]

#: A send; the header V2 is a subclass with other names on the wire.
SendRequest = Request[SendMessageRequestHeader]


class SendBatch:
    """A batch of send requests.

    All lists have one entry a request, in order. A request has one record, or several when it
    carries a batch of messages, or none when it was refused.

    :param make_replies: makes the answers when they are asked for first.
    """

    __slots__ = ("_replies", "make_replies", "records", "requests")

    def __init__(
        self, requests: list[Request[SendMessageRequestHeader]],
        records: list[list[MessageRecord]] | None = None, replies: list[Handled] | None = None,
        make_replies: Callable[[], list[Handled]] = list,
    ) -> None:
        #: Their headers are SendMessageRequestHeader or its V2, which have the same attributes.
        self.requests = requests
        #: The records of each request; a batch has several.
        self.records = [] if records is None else records
        self._replies = replies
        self.make_replies = make_replies

    @property
    def replies(self) -> list[Handled]:
        """The answer to each request, filled in once its messages are stored or refused."""
        if self._replies is None:
            self._replies = self.make_replies()
        return self._replies

    @property
    def has_replies(self) -> bool:
        """Whether the answers were made: one may have changed since."""
        return self._replies is not None

    def answered(self, answers: Sequence[Handled]) -> None:
        """Take the answers, of which objects are made when they are asked for."""
        if isinstance(answers, list):
            self._replies = answers
        else:
            self.make_replies = partial(list, answers)
