"""The argument of the consume hooks: a request for messages from a queue, and its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twistmq.broker.remoting.messages import Channel

__all__ = ["ConsumeContext"]


@dataclass(slots=True)
class ConsumeContext:
    """A request of a consumer for messages.

    Before the messages are read, the numbers are 0 and ``messages`` is empty.
    """

    #: The consumer group.
    group: str
    #: The topic of the messages.
    topic: str
    #: The queue id; ids count from 0.
    queue_id: int
    #: The first queue offset that the request asks for.
    offset: int
    #: The consumer's connection.
    channel: Channel
    #: The number of messages in the reply.
    message_count: int = 0
    #: The size of the messages as stored.
    size_bytes: int = 0
    #: The records in the reply. An inner batch is one record.
    messages: Sequence[bytes] = ()
