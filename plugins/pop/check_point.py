"""Check points and acknowledgements: the contents of messages in the revive topic.

A check point records which messages of a queue a pop gave out, and until when they are hidden. An
acknowledgement names some of these messages. Both wait as timed messages: a check point until one
second before its messages become visible, an acknowledgement until the messages become visible.
When the revive topic contains both, every acknowledgement that arrived in time is known.

Source: PopCheckPoint, AckMsg, BatchAckMsg, PopMessageProcessor.buildCkMsg, genCkUniqueId,
AckMessageProcessor.appendAck @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from twistmq.broker.api import MessageRecord
from twistmq.broker.api.config import LONG_MAX
from twistmq.broker.api.errors import WireError
from twistmq.broker.api.wire import tags_code, whole_number
from twistmq.plugins.pop.counts import PopCounts, ReviveKind

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, BrokerError

__all__ = ["ACK_TAG", "BATCH_ACK_TAG", "CHECK_POINT_MESSAGES_MAX", "CK_TAG", "Ack", "CheckPoint",
           "PointKey", "ReviveRecord", "ReviveRecords", "decode_ack"]

CK_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
#: A check point enters the revive topic this long before its messages become visible, ms.
#: Source: PopAckConstants.ackTimeInterval.
CK_AHEAD_MS: Final = 1000
#: The maximum number of messages of a check point, whose acknowledgements are the bits of a Java
#: int.
CHECK_POINT_MESSAGES_MAX: Final = 32
_INT_MAX: Final = 2**31 - 1


class PointKey(NamedTuple):
    """The key of a check point."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str


class _PointBody(msgspec.Struct, omit_defaults=True, rename={
        "bits": "bm", "broker_name": "bn", "group": "c", "diffs": "d", "invisible_time": "it",
        "log_end": "le", "count": "n", "pop_time": "pt", "queue_id": "q",
        "revive_time": "reviveTime", "revive_offset": "ro", "put_times": "rp", "start_offset": "so",
        "topic": "t"}):
    """The stored form of a check point, with its fields in the order in which Apache writes them.

    Apache's broker does not write the field "le" and ignores it when reading.
    """

    bits: int
    broker_name: str | None
    group: str | None
    diffs: list[int] | None
    invisible_time: int
    count: int
    pop_time: int
    queue_id: int
    revive_time: int
    revive_offset: int
    log_end: int = -1
    put_times: str | None = None
    start_offset: int = -1
    topic: str | None = None


class CheckPoint:
    """The messages of one queue that one pop gave out.

    :param offsets: the queue offsets of the messages, ascending.
    :param put_times: how often the check point was stored again because a message could not be
        revived.
    :param log_end: the end of the broker's commit log at the time of the pop; -1 if it is unknown,
        as in a check point of Apache's broker. A message at or after this place does not belong to
        the check point, but to a newer topic of the same name that was created after a deletion.
    """

    __slots__ = ("bits", "invisible_time", "key", "log_end", "offsets", "put_times",
                 "revive_offset")

    def __init__(self, key: PointKey, offsets: Sequence[int], invisible_time: int,
                 put_times: int = 0, log_end: int = -1) -> None:
        self.key = key
        self.offsets = offsets
        self.invisible_time = invisible_time
        self.put_times = put_times
        self.log_end = log_end
        #: One bit for each entry of ``offsets``, set when the message is acknowledged.
        self.bits = 0
        #: The offset of this check point in the revive topic, once it was read there.
        self.revive_offset = -1

    @property
    def revive_time(self) -> int:
        """The time at which the messages become visible again, Unix ms."""
        return self.key.pop_time + self.invisible_time

    @property
    def is_done(self) -> bool:
        """Whether all messages are acknowledged."""
        return self.bits == (1 << len(self.offsets)) - 1

    def acknowledge(self, offset: int) -> bool:
        """Note an acknowledgement; :returns: whether it names a message of this check point."""
        try:
            self.bits |= 1 << self.offsets.index(offset)
        except ValueError:
            return False
        return True

    def open_offsets(self) -> list[int]:
        """Return the queue offsets of the messages that are not acknowledged."""
        return [offset for index, offset in enumerate(self.offsets) if not self.bits >> index & 1]

    def acknowledged(self) -> list[int]:
        """Return the queue offsets of the messages that are acknowledged."""
        return [offset for index, offset in enumerate(self.offsets) if self.bits >> index & 1]

    def encode(self) -> bytes:
        """Encode the check point as the body of a message."""
        key = self.key
        start = key.start_offset
        return msgspec.json.encode(_PointBody(
            0, key.broker_name, key.group, [offset - start for offset in self.offsets],
            self.invisible_time, len(self.offsets), key.pop_time, key.queue_id, self.revive_time,
            0, self.log_end, str(self.put_times) if self.put_times else None, start, key.topic))

    @classmethod
    def decode(cls, data: bytes, broker_name: str) -> CheckPoint:
        """Decode a check point.

        :param broker_name: the name of this broker, used if the check point does not name one.
        :raises WireError: when the data is not a check point.
        """
        fields = _json_object(data)
        topic, group = fields.get("t"), fields.get("c")
        numbers: list[Any] = [fields.get(name) for name in ("q", "so", "pt", "it")]
        diffs, count = fields.get("d"), fields.get("n")
        if not isinstance(diffs, list) or not diffs:
            # The format of brokers before version 5.0.
            diffs = list(range(count)) if (
                isinstance(count, int) and 0 <= count <= CHECK_POINT_MESSAGES_MAX) else [None]
        if not isinstance(topic, str) or not isinstance(group, str) or not _are_numbers(
                [*numbers, *diffs]) or len(diffs) > CHECK_POINT_MESSAGES_MAX:
            raise WireError("it is not a check point")
        queue_id, start, pop_time, invisible_time = numbers
        put_times, log_end = fields.get("rp"), fields.get("le", -1)
        point = cls(PointKey(topic, group, queue_id, start, pop_time,
                             fields.get("bn") or broker_name),
                    [start + diff for diff in diffs], invisible_time,
                    whole_number(put_times) or 0 if isinstance(put_times, str) else 0,
                    log_end if _are_numbers([log_end]) else -1)
        bits = fields.get("bm")
        point.bits = bits & _BITS_MASK if isinstance(bits, int) else 0
        return point


_BITS_MASK: Final = 2**CHECK_POINT_MESSAGES_MAX - 1


class _AckBody(msgspec.Struct, rename={
        "offset": "ao", "broker_name": "bn", "group": "c", "pop_time": "pt", "queue_id": "q",
        "start_offset": "so", "topic": "t"}):
    """The stored form of an acknowledgement of one message."""

    offset: int
    broker_name: str
    group: str
    pop_time: int
    queue_id: int
    start_offset: int
    topic: str


class _BatchAckBody(msgspec.Struct, rename={
        "offset": "ao", "offsets": "aol", "broker_name": "bn", "group": "c", "pop_time": "pt",
        "queue_id": "q", "start_offset": "so", "topic": "t"}):
    """The stored form of an acknowledgement of several messages."""

    offset: int
    offsets: Sequence[int]
    broker_name: str
    group: str
    pop_time: int
    queue_id: int
    start_offset: int
    topic: str


class Ack(NamedTuple):
    """A decoded acknowledgement."""

    key: PointKey
    offsets: Sequence[int]


def decode_ack(data: bytes, broker_name: str, batch: bool) -> Ack:
    """Decode an acknowledgement with short or long field names.

    :param broker_name: the name of this broker, used if the acknowledgement does not name one.
    :raises WireError: when the data is not an acknowledgement.
    """
    fields = _json_object(data)

    def get(short: str, long: str) -> Any:
        return fields.get(short, fields.get(long))

    topic, group = get("t", "topic"), get("c", "consumerGroup")
    queue_id, start, pop_time = (
        get("q", "queueId"), get("so", "startOffset"), get("pt", "popTime"))
    offsets = get("aol", "ackOffsetList") if batch else [get("ao", "ackOffset")]
    if not isinstance(topic, str) or not isinstance(group, str) or not isinstance(
            offsets, list) or not _are_numbers([queue_id, start, pop_time, *offsets]):
        raise WireError("it is not an acknowledgement")
    return Ack(PointKey(topic, group, queue_id, start, pop_time,
                        get("bn", "brokerName") or broker_name), offsets)


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from None
    if not isinstance(value, dict):
        raise WireError("it is not an object")
    return value


def _are_numbers(values: Sequence[Any]) -> bool:
    """Whether all values are Java longs: each one is stored again, and some are used as keys."""
    return all(type(value) is int and -LONG_MAX <= value <= LONG_MAX for value in values)


class ReviveRecord(NamedTuple):
    """A record for the revive topic, and the check point or acknowledgement that it contains."""

    record: MessageRecord
    key: PointKey
    kind: ReviveKind

    @property
    def next_offset(self) -> int:
        """The commit-log offset directly after the record, once it is stored."""
        return self.record.next_offset


class ReviveRecords:
    """Creates and stores records of one broker's revive topic.

    :param topic: the revive topic.
    """

    def __init__(self, broker: Broker, topic: str, counts: PopCounts) -> None:
        self._broker = broker
        self._counts = counts
        self.topic = topic
        self._codes = {tag: tags_code(tag) for tag in (CK_TAG, ACK_TAG, BATCH_ACK_TAG)}

    def store(
        self, records: Sequence[ReviveRecord], owners: Sequence[int] | None = None
    ) -> dict[int, BrokerError]:
        """Append records and count them; see ``Kernel.append``."""
        refusals = self._broker.append([each.record for each in records], owners)
        for index, each in enumerate(records):
            self._counts.put(each.key, each.kind, refusals.get(index))
        return refusals

    def check_point(self, point: CheckPoint, revive_queue: int) -> ReviveRecord:
        key = point.key
        unique = (f"{key.topic}@{key.queue_id}@{key.start_offset}@{key.group}@{key.pop_time}@"
                  f"{key.broker_name}@{CK_TAG}")
        record = self._record(CK_TAG, revive_queue, point.encode(), unique,
                              point.revive_time - CK_AHEAD_MS)
        return ReviveRecord(record, key, "CK")

    def ack(
        self, key: PointKey, offsets: Sequence[int], revive_queue: int, revive_time: int
    ) -> ReviveRecord:
        """Create the acknowledgement of one or more messages of a check point.

        :param revive_time: the time at which the check point's messages become visible, Unix ms.
        """
        if len(offsets) == 1:
            tag, offset = ACK_TAG, offsets[0]
            body = msgspec.json.encode(_AckBody(
                offset, key.broker_name, key.group, key.pop_time, key.queue_id, key.start_offset,
                key.topic))
        else:
            tag, offset = BATCH_ACK_TAG, -1
            body = msgspec.json.encode(_BatchAckBody(
                -1, offsets, key.broker_name, key.group, key.pop_time, key.queue_id,
                key.start_offset, key.topic))
        unique = (f"{key.topic}@{key.queue_id}@{offset}@{key.group}@{key.pop_time}@"
                  f"{key.broker_name}@{ACK_TAG}")
        return ReviveRecord(
            self._record(tag, revive_queue, body, unique, revive_time), key, "ACK")

    def _record(
        self, tag: str, revive_queue: int, body: bytes, unique: str, deliver_ms: int
    ) -> MessageRecord:
        host = self._broker.store_host
        return MessageRecord(
            self.topic, revive_queue, body,
            f"TAGS\x01{tag}\x02UNIQ_KEY\x01{unique}\x02TIMER_DELIVER_MS\x01{deliver_ms}\x02",
            self._broker.now_ms(), host, host, [unique], self._codes[tag])
