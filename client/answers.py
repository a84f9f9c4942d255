"""Answers of brokers, as a program sees them: where a message was stored, and what a pull found.

Source: SendResult, PullResult, PullStatus @5.3.3.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from twistmq.broker.codes import ResponseCode
from twistmq.broker.wire.bodies import MessageQueue
from twistmq.client.errors import Undecodable

__all__ = ["OFFSET_MAX", "STORED", "PullResult", "PullStatus", "SendResult", "checked_offset"]

#: The largest offset that a queue or a group can have. The next offset is an int64 too, so that
#: requests and files can contain every sum that the client computes.
OFFSET_MAX: Final = (1 << 63) - 2

#: Answers of a broker that has stored a message, in words.
STORED: Final = {
    ResponseCode.SUCCESS: "safe",
    ResponseCode.FLUSH_DISK_TIMEOUT: "its flush was not waited for",
    ResponseCode.SLAVE_NOT_AVAILABLE: "no slave was there",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "the slaves were not waited for",
}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored.

    ``id`` is the unique id that the client gave it; of a batch, all of them joined by commas.
    ``offset_id`` is the broker's. ``recall_handle`` takes a timed message back.
    """

    id: str
    offset_id: str
    queue: MessageQueue
    #: Logical index in the queue; of a batch, its first.
    offset: int
    #: The broker's response code: SUCCESS, or stored without a flush or a slave.
    code: int = ResponseCode.SUCCESS
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str | None = None
    #: Whether the broker wants traces of it.
    is_traced: bool = True

    @property
    def safe(self) -> bool:
        """Whether it is as durable as the broker is set up to make it."""
        return self.code == ResponseCode.SUCCESS

    @property
    def status(self) -> str:
        """The response code in words."""
        return STORED.get(ResponseCode(self.code), str(self.code))


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = "found"
    #: Nothing is there yet.
    NO_NEW_MESSAGE = "no new message"
    #: Messages were looked at and none fits the expression, or their file is being removed.
    NO_MATCHED_MESSAGE = "no matched message"
    #: The queue has no such offset; ``next_offset`` is where it continues.
    OFFSET_MOVED = "offset moved"


class PullResult(msgspec.Struct, frozen=True, gc=False):
    """The answer to a pull."""

    status: PullStatus
    #: Where the next pull begins, and the queue's bounds: logical offsets.
    next_offset: int
    min_offset: int
    max_offset: int
    #: Stored records, one after the other.
    body: bytes
    #: The broker's own word for what it found, such as MESSAGE_WAS_REMOVING.
    remark: str
    #: Where the next pull should go: 0 is the master.
    broker_id: int = 0
    #: Of a static topic: what is to be added to the offsets in the records.
    offset_delta: int = 0


def checked_offset(offset: int, what: str, least: int = 0) -> int:
    """Return an offset of a server's response if a queue can have it.

    :param what: the subject of the error's sentence.
    :param least: -1 where Apache's broker returns this number for a queue that it does not have.
    :raises Undecodable: when no queue can have such an offset.
    """
    if not least <= offset <= OFFSET_MAX:
        raise Undecodable(f"{what} is at offset {offset}, which no queue has")
    return offset
