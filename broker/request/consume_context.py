"""The argument of the consume hooks: a request for messages of a queue, and its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twistmq.broker.remoting.messages import Channel

__all__ = ["ConsumeContext"]


@dataclass(slots=True)
class ConsumeContext:
    """One consumer's request for messages.

    The figures are 0 and there are no messages before the messages are read.
    """

    #: The consumer group.
    group: str
    #: The topic of the messages.
    topic: str
    #: The queue, from 0 on.
    queue_id: int
    #: First queue offset asked for.
    offset: int
    #: The consumer's connection.
    channel: Channel
    #: Messages that are sent.
    message_count: int = 0
    #: Their size as stored.
    size_bytes: int = 0
    #: The records sent, an inner batch being one.
    messages: Sequence[bytes] = ()
