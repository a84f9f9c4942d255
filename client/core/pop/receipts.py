"""Popped messages and their receipts.

A pop hides messages from other members for a time. An acknowledgement of a message and a change of
this time need the message's receipt, which Apache calls extra info or check point. It is in the
message's property POP_CK, or it is composed from the header of the response:

    startOffsetInfo    "MARK QUEUE START;..."              where the check point of a queue begins
    msgOffsetInfo      "MARK QUEUE OFFSET,OFFSET;..."      its messages
    orderCountInfo     "MARK QUEUE COUNT;MARK qoQUEUE%OFFSET COUNT;..."   earlier deliveries

MARK is 0 for the topic itself, and 1 or 2 for the group's retry topic with the older or the newer
form of its name. A message of a retry topic is returned with the name of the popped topic.

Source: ExtraInfoUtil, KeyBuilder, MQClientAPIImpl.processPopResponse, BatchAck @5.3.3.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from twistmq.client.base.answers import OFFSET_MAX
from twistmq.client.base.errors import Undecodable
from twistmq.client.base.received_message import DamagedMessage, ReceivedMessage
from twistmq.client.core.consumer.pull_request import unwrap
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.headers.pop import (
    ChangeInvisibleTimeResponseHeader,
    PopMessageResponseHeader,
)
from twistmq.protocol.properties import POP_CK
from twistmq.protocol.record import StoredMessage
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["ORDER_REVIVE_QUEUE", "PoppedMessage", "Receipt", "batch_of", "popped_messages",
           "with_receipts"]

T = TypeVar("T")

#: The revive queue in receipts of an ordered group.
ORDER_REVIVE_QUEUE: Final = 999
#: The maximum number of bits of a check point in a request. A broker looks at about 16,000 messages
#: for one pop.
BITS_MAX: Final = 1 << 16
_NORMAL, _RETRY_V1, _RETRY_V2 = "0", "1", "2"
_SEPARATORS: Final = {_RETRY_V1: "_", _RETRY_V2: "+"}
_PARTS: Final = 8
#: The largest int32 and int64.
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1


class Receipt(NamedTuple):
    """The data that a broker needs about a popped message."""

    #: The logical offset at which its check point begins.
    start_offset: int
    #: The time of the pop in Unix ms, by the broker's clock.
    pop_ms: int
    #: The time for which the message is hidden, in ms.
    invisible_ms: int
    revive_queue: int
    #: The kind of its topic.
    mark: str
    broker_name: str
    queue_id: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the property of a message.

        :raises Undecodable: when it is not a receipt.
        """
        parts = text.split(" ")
        try:
            start, popped, invisible, revive, mark, name, queue_id, offset = parts[:_PARTS]
            receipt = cls(int(start), int(popped), int(invisible), int(revive), mark, name,
                          int(queue_id), int(offset))
        except ValueError:
            raise Undecodable(f"{text[:80]!r} is not the receipt of a popped message") from None
        # Greater numbers could not be sent back.
        if not (max(map(abs, (receipt.start_offset, receipt.pop_ms, receipt.invisible_ms,
                              receipt.offset))) <= _INT64_MAX
                and max(abs(receipt.revive_queue), abs(receipt.queue_id)) <= _INT32_MAX):
            raise Undecodable(f"{text[:80]!r} has a number that no receipt has")
        return receipt

    @property
    def may_be_batched(self) -> bool:
        """Whether a batch request can hold it, as a bit that counts from the check point."""
        return (self.revive_queue != ORDER_REVIVE_QUEUE
                and 0 <= self.offset - self.start_offset < BITS_MAX)

    @property
    def text(self) -> str:
        """The receipt in the format of brokers."""
        return " ".join(map(str, self))

    def topic(self, topic: str, group: str) -> str:
        """Return the topic that has the message.

        :param topic: the popped topic, with its name at brokers, like ``group``.
        """
        separator = _SEPARATORS.get(self.mark)
        if separator is None:
            return topic
        return f"{RETRY_GROUP_TOPIC_PREFIX}{group}{separator}{topic}"

    def changed(self, answer: ChangeInvisibleTimeResponseHeader) -> Receipt:
        """Return the receipt after a change of the invisible time; it has its own check point."""
        return self._replace(
            start_offset=self.offset, pop_ms=answer.pop_time, invisible_ms=answer.invisible_time,
            revive_queue=answer.revive_qid)


def popped_messages(
    answer: PopMessageResponseHeader, body: bytes, source: MessageQueue, group: str, name: str,
    decode: Callable[[ReceivedMessage[T]], T] | None, expires_ms: float,
    damaged: list[DamagedMessage[T]],
) -> list[PoppedMessage[T]]:
    """Return the intact messages of a response.

    :param source: the queue that was popped, with its name at brokers.
    :param group: the group's name at brokers.
    :param name: the topic's name in the namespace.
    :param damaged: the list to which damaged messages and messages without a receipt are added: one
        such record, with a damaged queue id, must not hold up all other messages.
    """
    starts = _numbers(answer.start_offset_info)
    counts = _numbers(answer.order_count_info)
    messages: list[PoppedMessage[T]] = []
    for record in unwrap(body, MessageQueue(name, source.broker_name, source.queue_id), damaged):
        try:
            receipt = _receipt(record, answer, starts, source.broker_name)
        except Undecodable as error:
            # Its bytes are not needed: a pop never delivers a damaged message to a program.
            damaged.append(DamagedMessage(
                b"", record, MessageQueue(name, source.broker_name, record.queue_id),
                record.queue_offset, name, str(error), False))
            continue
        topic = receipt.topic(source.topic, group)
        message: PoppedMessage[T] = PoppedMessage(
            record, MessageQueue(name, source.broker_name, receipt.queue_id), receipt.offset, name,
            decode, receipt, MessageQueue(topic, source.broker_name, receipt.queue_id), expires_ms)
        message.earlier_attempts = _earlier(receipt, counts)
        messages.append(message)
    return messages


def with_receipts(
    damaged: Iterable[DamagedMessage[T]], messages: Iterable[PoppedMessage[T]],
    answer: PopMessageResponseHeader, source: MessageQueue, group: str, expires_ms: float,
) -> list[PoppedMessage[T]]:
    """Return the damaged messages of a response in a form that can be acknowledged.

    The header of the response lists the offsets of its messages, so a damaged one is known by the
    offsets of the intact ones even if its own offset is damaged. A message that cannot be matched
    is left out.

    :param damaged: the damaged messages of the response, and ``messages`` the intact ones.
    :param source: the queue that was popped, with its name at brokers.
    :param group: the group's name at brokers.
    """
    intact = {(each.receipt.mark, each.receipt.queue_id, each.receipt.offset) for each in messages}
    missing = [position for position in _offsets(answer.msg_offset_info) if position not in intact]
    starts = _numbers(answer.start_offset_info)
    known: list[PoppedMessage[T]] = []
    for each in damaged:
        if not missing:
            break
        stated = each.queue.queue_id, each.offset
        position = next((position for position in missing if position[1:] == stated), missing[0])
        missing.remove(position)
        mark, queue_id, offset = position
        receipt = Receipt(
            starts.get((mark, str(queue_id)), offset), answer.pop_time, answer.invisible_time,
            answer.revive_qid, mark, source.broker_name, queue_id, offset)
        queue = MessageQueue(each.topic, source.broker_name, queue_id)
        line = MessageQueue(receipt.topic(source.topic, group), source.broker_name, queue_id)
        known.append(PoppedMessage(
            each.record, queue, offset, each.topic, None, receipt, line, expires_ms))
    return known


def _offsets(text: str | None) -> list[tuple[str, int, int]]:
    """Parse a field of "MARK QUEUE OFFSET,OFFSET;..."; malformed parts are left out."""
    positions: list[tuple[str, int, int]] = []
    for part in (text or "").split(";"):
        words = part.split(" ")
        queue_id = whole_number(words[1], _INT32_MAX) if len(words) == 3 else None
        if queue_id is None:
            continue
        for number in words[2].split(","):
            offset = whole_number(number, OFFSET_MAX)
            if offset is not None:
                positions.append((words[0], queue_id, offset))
    return positions


def _receipt(
    record: StoredMessage, answer: PopMessageResponseHeader, starts: dict[tuple[str, str], int],
    broker_name: str,
) -> Receipt:
    """Return the receipt of a message.

    :raises Undecodable: when the response has none, or when no queue can have the message's offset.
    """
    if not 0 <= record.queue_offset < OFFSET_MAX:
        raise Undecodable(f"its offset is {record.queue_offset}, which no queue has")
    text = record.properties_map().get(POP_CK)
    if text is not None:
        # A producer may have forged the property, to acknowledge messages of other members.
        with suppress(Undecodable):
            receipt = Receipt.parse(text)
            if (receipt.queue_id, receipt.offset, receipt.pop_ms) == (
                    record.queue_id, record.queue_offset, answer.pop_time):
                return receipt
    mark = _mark(record.topic)
    if answer.start_offset_info is None:
        # For brokers without these fields, a check point begins with a queue's first message.
        starts.setdefault((mark, str(record.queue_id)), record.queue_offset)
    start = starts.get((mark, str(record.queue_id)))
    if start is None:
        raise Undecodable(f"the answer has no receipt for offset {record.queue_offset} of queue "
                          f"{record.queue_id} of {record.topic}")
    return Receipt(start, answer.pop_time, answer.invisible_time, answer.revive_qid, mark,
                   broker_name, record.queue_id, record.queue_offset)


def _mark(topic: str) -> str:
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return _NORMAL
    return _RETRY_V2 if _SEPARATORS[_RETRY_V2] in topic else _RETRY_V1


def _numbers(text: str | None) -> dict[tuple[str, str], int]:
    """Parse a field of "MARK KEY NUMBER;..."; malformed parts are left out."""
    numbers: dict[tuple[str, str], int] = {}
    for part in (text or "").split(";"):
        words = part.split(" ")
        number = whole_number(words[2], OFFSET_MAX) if len(words) == 3 else None
        if number is not None:
            numbers[words[0], words[1]] = number
    return numbers


def _earlier(receipt: Receipt, counts: dict[tuple[str, str], int]) -> int:
    """Return how often an ordered message was delivered before, which its record does not state."""
    queue_id, offset = receipt.queue_id, receipt.offset
    one = counts.get((receipt.mark, f"qo{queue_id}%{offset}"))
    count = counts.get((receipt.mark, str(queue_id)), 0) if one is None else one
    return min(count, _INT32_MAX)


def batch_of(
    messages: Iterable[PoppedMessage[Any]], group: str, topics: Callable[[str], str]
) -> bytes:
    """Return the body that acknowledges messages of one broker, with a check point bit for each.

    :param messages: messages whose receipts may be batched.
    :param topics: returns the name at brokers for a topic of the namespace.
    """
    points: dict[Receipt, tuple[str, int]] = {}
    broker_name = ""
    for message in messages:
        receipt = message.receipt
        broker_name = receipt.broker_name
        point = receipt._replace(offset=0)
        topic, bits = points.get(point, (topics(message.queue.topic), 0))
        points[point] = topic, bits | 1 << receipt.offset - receipt.start_offset
    return msgspec.json.encode({"brokerName": broker_name, "acks": [{
        "c": group, "t": topic, "r": point.mark, "so": point.start_offset, "q": point.queue_id,
        "rq": point.revive_queue, "pt": point.pop_ms, "it": point.invisible_ms,
        "b": base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode(),
    } for point, (topic, bits) in points.items()]})
