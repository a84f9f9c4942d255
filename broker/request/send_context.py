"""The argument of the send hooks: the send requests of one read and the records made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from twistmq.broker.remoting.messages import Handled, Request
from twistmq.broker.wire.headers.send import SendMessageRequestHeader
from twistmq.broker.wire.record import MessageRecord

__all__ = ["SendBatch", "SendRequest"]

#: A send; the header V2 is a subclass with other names on the wire.
SendRequest = Request[SendMessageRequestHeader]


@dataclass(slots=True)
class SendBatch:
    """A batch of send requests.

    All lists have one entry a request, in order. A request has one record, or several when it
    carries a batch of messages, or none when it was refused.
    """

    #: Their headers are SendMessageRequestHeader or its V2, which have the same attributes.
    requests: list[Request[SendMessageRequestHeader]]
    #: The records of each request; a batch has several.
    records: list[list[MessageRecord]] = field(default_factory=list)
    #: The answer to each request, filled in once its messages are stored or refused.
    replies: list[Handled] = field(default_factory=list)
