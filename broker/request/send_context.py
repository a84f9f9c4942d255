"""What the send hooks see: the send requests of one read and the records made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twistmq.broker.remoting.messages import Handled, Request
from twistmq.broker.wire.record import MessageRecord

__all__ = ["SendBatch"]


@dataclass(slots=True)
class SendBatch:
    """A batch of send requests.

    All lists have one entry a request, in order. A request has one record, or several when it
    carries a batch of messages, or none when it was refused.
    """

    #: Their headers are SendMessageRequestHeader or its V2, which have the same attributes.
    requests: list[Request[Any]]
    #: What is to be stored of each; a batch of a client has several.
    records: list[list[MessageRecord]] = field(default_factory=list)
    #: What each request is answered; filled in once the messages are stored or refused.
    replies: list[Handled] = field(default_factory=list)
