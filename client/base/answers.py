"""The results that a program gets: where a message was stored, and what a pull returned.

Source: SendResult, PullResult, PullStatus @5.3.3.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from twistmq.client.base.errors import Undecodable
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import ResponseCode

__all__ = ["OFFSET_MAX", "STORED", "PullResult", "PullStatus", "SendResult", "checked_offset"]

#: The greatest offset of the end of a queue, and of a group. The next number is still an int64, so
#: every sum that a client computes fits into the fields of requests and files.
OFFSET_MAX: Final = (1 << 63) - 2

#: The response codes of a broker that has stored a message, in words.
STORED: Final = {
    ResponseCode.SUCCESS: "safe",
    ResponseCode.FLUSH_DISK_TIMEOUT: "its flush was not waited for",
    ResponseCode.SLAVE_NOT_AVAILABLE: "no slave was there",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "the slaves were not waited for",
}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored.

    ``id`` is the unique id that the client gave the message; for a batch, it is the ids of all
    messages, joined by commas. ``offset_id`` is the broker's id. ``queue`` is the ``MessageQueue``,
    and ``offset`` is the logical index of the message in it; for a batch, that of its first
    message. ``code`` is the broker's response code, which ``safe`` and ``status`` explain.
    ``recall_handle`` is what ``Producer.recall`` uses to take a delayed message back.
    ``transaction_id`` is the id by which a broker knows the transaction of a half message; brokers
    fill it in for other messages too. ``region`` is the broker's setting ``regionId``, and
    ``is_traced`` is its wish to get traces of the message; the option ``trace`` of the producer
    decides whether it gets them.
    """

    id: str
    offset_id: str
    queue: MessageQueue
    #: The logical offset in the queue; for a batch, the offset of its first message.
    offset: int
    #: The broker's response code: SUCCESS, or a code for a message that was stored without
    #: waiting for a flush or a slave.
    code: int = ResponseCode.SUCCESS
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str | None = None
    #: Whether the broker asks for traces of the message.
    is_traced: bool = True

    @property
    def safe(self) -> bool:
        """Whether the message is as durable as the broker's configuration promises."""
        return self.code == ResponseCode.SUCCESS

    @property
    def status(self) -> str:
        """The response code in words."""
        return STORED.get(ResponseCode(self.code), str(self.code))


class PullStatus(Enum):
    """How a pull ended.

    - ``FOUND``: the result has messages.
    - ``NO_NEW_MESSAGE``: the queue has no message at this offset yet.
    - ``NO_MATCHED_MESSAGE``: the broker looked at messages, but none matched the expression, or
      their file is being removed. Pull again at ``next_offset``.
    - ``OFFSET_MOVED``: the queue does not have this offset. It continues at ``next_offset``.
    """

    FOUND = "found"
    #: The queue has no message at this offset yet.
    NO_NEW_MESSAGE = "no new message"
    #: The broker looked at messages but none matched the expression, or their file is being
    #: removed.
    NO_MATCHED_MESSAGE = "no matched message"
    #: The queue does not have this offset; ``next_offset`` is where it continues.
    OFFSET_MOVED = "offset moved"


class PullResult(msgspec.Struct, frozen=True, gc=False):
    """The response to a pull.

    ``Client.read`` and the consumers return messages; this is the raw form.

    :param status: how the pull ended.
    :param next_offset: the offset at which the next pull begins.
    :param min_offset: the first offset of the queue.
    :param max_offset: the end of the queue: the offset that its next message gets.
    :param body: the stored records, one after the other.
    :param remark: the broker's own name for the outcome, such as MESSAGE_WAS_REMOVING.
    :param broker_id: the broker id to which the next pull should go; 0 is the master.
    :param offset_delta: for a static topic, the number to add to the offsets in the records.
    """

    status: PullStatus
    #: The offset at which the next pull begins, and the bounds of the queue: logical offsets.
    next_offset: int
    min_offset: int
    max_offset: int
    #: The stored records, one after the other.
    body: bytes
    #: The broker's own name for the outcome, such as MESSAGE_WAS_REMOVING.
    remark: str
    #: The broker id to which the next pull should go; 0 is the master.
    broker_id: int = 0
    #: For a static topic: the number to add to the offsets in the records.
    offset_delta: int = 0


def checked_offset(offset: int, subject: str, lowest: int = 0) -> int:
    """Return an offset that a server reported.

    :param subject: what has the offset, for the error.
    :param lowest: -1 for the beginning of a queue, because Apache's broker reports -1 for a queue
        that it does not have.
    :raises Undecodable: when no queue can have such an offset.
    """
    if not lowest <= offset <= OFFSET_MAX:
        raise Undecodable(f"{subject} is at offset {offset}, which no queue has")
    return offset
