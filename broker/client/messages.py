"""The data of clients: messages on their way out, and the answers to sends and pulls.

Source: Message, SendResult, PullResult @5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from twistmq.broker.codes import ResponseCode
from twistmq.broker.wire.bodies import MessageQueue

__all__ = ["OutgoingMessage", "PullResult", "PullStatus", "SendResult"]


@dataclass(slots=True)
class OutgoingMessage:
    """A message to send."""

    topic: str
    body: bytes
    #: System properties (TAGS, KEYS, DELAY, ...) among them.
    properties: dict[str, str] = field(default_factory=dict)
    #: The application's, int32.
    flag: int = 0
    #: Bits of the record's system flag: whether the body is compressed, and how.
    sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class SendResult:
    """The place where a message was stored; for a batch, that of its first message."""

    #: SUCCESS, or a code that says that it is stored and a flush or a slave was not waited for.
    code: int
    queue: MessageQueue
    queue_offset: int
    #: The offset message id; of a batch, all of them joined by commas.
    message_id: str

    @property
    def is_safe(self) -> bool:
        """Whether it is as durable as the broker is set up to make it."""
        return self.code == ResponseCode.SUCCESS


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = "found"
    #: Nothing there yet.
    NO_NEW_MESSAGE = "no new message"
    #: Messages were looked at and none fits the expression, or their file is being removed.
    NO_MATCHED_MESSAGE = "no matched message"
    #: The queue has no such offset; ``next_offset`` is where it could go on.
    OFFSET_MOVED = "offset moved"


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to a pull."""

    status: PullStatus
    #: Where to go on, and the queue's bounds: logical offsets.
    next_offset: int
    min_offset: int
    max_offset: int
    #: Stored records, one after the other.
    body: bytes
    #: The broker's own word for what it found, such as MESSAGE_WAS_REMOVING.
    remark: str
