"""Pulls: the request for messages of a queue, its response, and the messages in the response.

Source: PullAPIWrapper, MQClientAPIImpl.processPullResponse, PullSysFlag, MessageDecoder @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from twistmq.client.base.answers import OFFSET_MAX
from twistmq.client.base.errors import Undecodable, refusal
from twistmq.client.base.messages import PullResult, PullStatus, ReceivedMessage
from twistmq.client.base.received_message import DamagedMessage
from twistmq.protocol.big_endian import int32_at, int64_at
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import MessageIllegal, StoreDamaged
from twistmq.protocol.flags import (
    MASTER_ID,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
)
from twistmq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from twistmq.protocol.plain_record import plain_record, queue_offset_of
from twistmq.protocol.properties import INNER_BASE, RETRY_TOPIC
from twistmq.protocol.record import (
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_POSITION,
    QUEUE_ID_POSITION,
    RECORD_SIZE_MIN,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    StoredMessage,
    decode_record,
    records_of,
)

__all__ = ["PULL_BYTES", "damaged_message", "messages_of", "pull_header", "pull_result", "unwrap"]

T = TypeVar("T")

#: The number of bytes that a pull requests; brokers before 5.0 always return up to 256 KiB.
PULL_BYTES: Final = 256 << 10

_STATUS: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_MOVED,
}
_INNER: Final = SYS_INNER_BATCH | SYS_NEED_UNWRAP
_RETRY_TOPIC: Final = RETRY_TOPIC.encode()


def pull_header(
    queue: MessageQueue, offset: int, group: str, *, max_count: int = 32,
    expression: str | None = "*", expression_type: str = "TAG", hold_ms: int = 0,
    sub_version: int = 0, max_bytes: int = PULL_BYTES,
) -> PullMessageRequestHeader:
    """Return the header of a pull that commits nothing, since another commit might overtake it.

    :param queue: the queue, with the topic's name at brokers.
    :param group: the group's name at brokers.
    :param expression: the filter expression; with None, the one in the group's heartbeat applies.
    :param hold_ms: how long the broker may wait for a message.
    """
    flags = ((PULL_SUBSCRIPTION if expression is not None else 0)
             | (PULL_SUSPEND if hold_ms else 0))
    return PullMessageRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
        max_msg_nums=max_count, sys_flag=flags, commit_offset=0,
        suspend_timeout_millis=hold_ms, sub_version=sub_version, subscription=expression,
        expression_type=expression_type, max_msg_bytes=max_bytes)


def pull_result(reply: RemotingCommand, address: str) -> PullResult:
    """Read the response to a pull.

    :raises RequestRefused: with the broker's code and remark.
    :raises HeaderError: when the header does not belong to a response.
    :raises Undecodable: when no queue can have one of its offsets.
    """
    status = _STATUS.get(reply.code)
    if status is None:
        raise refusal(reply.code, reply.remark, address)
    answer = reply.header(PullMessageResponseHeader)
    if not 0 <= answer.next_begin_offset <= OFFSET_MAX:
        raise Undecodable(f"{address} answered a pull: the next one begins at offset "
                          f"{answer.next_begin_offset}")
    if not -1 <= answer.min_offset <= OFFSET_MAX or not -1 <= answer.max_offset <= OFFSET_MAX:
        raise Undecodable(f"{address} answered a pull: the queue has the offsets from "
                          f"{answer.min_offset} to {answer.max_offset}")
    broker_id = answer.suggest_which_broker_id
    return PullResult(status, answer.next_begin_offset, answer.min_offset, answer.max_offset,
                      reply.body, reply.remark or "", broker_id or MASTER_ID,
                      answer.offset_delta or 0)


def unwrap(
    body: bytes, queue: MessageQueue, damaged: list[DamagedMessage[T]]
) -> list[StoredMessage]:
    """Return the intact records of a response, with inner batches split into their messages.

    :param queue: the queue of the response, for the damaged messages.
    :param damaged: the list to which the damaged messages are added.
    """
    try:
        records = records_of(body)
        if not any(record.sys_flag & _INNER == _INNER for record in records):
            return records
        return [each for record in records for each in _each(record)]
    except (StoreDamaged, Undecodable):
        # Few responses have such a record: they are read once more, one record at a time.
        return _whole_ones(body, queue, damaged)


def _whole_ones(
    body: bytes, queue: MessageQueue, damaged: list[DamagedMessage[T]]
) -> list[StoredMessage]:
    records: list[StoredMessage] = []
    position = 0
    while position < len(body):
        try:
            record = decode_record(body, position)
            records += _each(record)
            position += record.size
        except (StoreDamaged, Undecodable) as error:
            one: DamagedMessage[T] = damaged_message(
                body, position, queue, 0, OFFSET_MAX, 0, error)
            damaged.append(one)
            position += len(one.raw)
    return records


def _each(record: StoredMessage) -> list[StoredMessage]:
    """Return a record, or the messages of an inner batch."""
    return _inner(record) if record.sys_flag & _INNER == _INNER else [record]


def _inner(record: StoredMessage) -> list[StoredMessage]:
    """Return the messages of an inner batch; :raises Undecodable: when it cannot be read.

    Source: MessageDecoder.decodeMessage @5.3.3.
    """
    # Imported here, because few topics have such batches.
    from twistmq.client.base.codecs import decompress
    from twistmq.protocol.batch import decode_batch

    try:
        base = int(record.properties_map().get(INNER_BASE, record.queue_offset))
        parts = decode_batch(decompress(record.body, record.sys_flag))
    except (MessageIllegal, ValueError) as error:
        raise Undecodable(f"it is not a batch: {error}") from None
    if not 0 <= base <= OFFSET_MAX - len(parts):
        raise Undecodable(f"it is not a batch: its first offset is {str(base)[:40]}")
    flags = record.sys_flag & ~(_INNER | SYS_COMPRESSED | SYS_COMPRESSION_MASK)
    messages = []
    for index, (flag, body, properties) in enumerate(parts):
        messages.append(StoredMessage(
            record.size, record.magic, record.body_crc, record.queue_id, flag, base + index,
            record.physical_offset, flags, record.born_timestamp,
            record.born_host, record.store_timestamp, record.store_host, record.reconsume_times,
            record.prepared_transaction_offset, body, record.topic, properties))
    return messages


def messages_of(
    result: PullResult, queue: MessageQueue, tags: frozenset[str] = frozenset(),
    decode: Callable[[ReceivedMessage[T]], T] | None = None,
    damaged: list[DamagedMessage[T]] | None = None, begin: int = 0,
) -> list[ReceivedMessage[T]]:
    """Return the intact messages of a response that match a subscription.

    :param queue: the queue of the messages, with the topic's name in the namespace.
    :param decode: returns the value of a message.
    :param damaged: the list to which the damaged messages are added.
    :param begin: the offset that the pull requested.
    :raises Undecodable: when a message is damaged and ``damaged`` is None.
    """
    messages: list[ReceivedMessage[T]] = []
    data, delta, topic = result.body, result.offset_delta, queue.topic
    position, total = 0, len(data)
    while position < total:
        try:
            body_end, end = plain_record(data, position)
            if not end:
                record = decode_record(data, position)
                messages += [_message(each, queue, _valid_offset(each.queue_offset + delta), decode)
                             for each in _each(record)]
                position += record.size
                continue
            offset = _valid_offset(queue_offset_of(data, position) + delta)
            if data.find(_RETRY_TOPIC, body_end, end) >= 0:
                messages.append(_message(data[position:end], queue, offset, decode))
            else:
                messages.append(ReceivedMessage(data[position:end], queue, offset, topic, decode))
            position = end
        except (StoreDamaged, Undecodable) as error:
            min_offset = begin
            if messages:
                min_offset = messages[-1].offset + 1
            if damaged:
                min_offset = max(min_offset, damaged[-1].offset + 1)
            one: DamagedMessage[T] = damaged_message(
                data, position, queue, min_offset, result.next_offset, delta, error)
            if damaged is None:
                raise Undecodable(f"{one!r} is damaged: {one.damage}") from None
            position += len(one.raw)
            # The tag is reliable if the lengths are: brokers compare only hashes of tags.
            if not tags or not one.record.properties or one.tags in tags:
                damaged.append(one)
    return [message for message in messages if message.tags in tags] if tags else messages


def _valid_offset(offset: int) -> int:
    """Return the offset of a message; :raises Undecodable: when no queue can have a message there.

    A group commits the next offset, so a queue must be able to end there.
    """
    if not 0 <= offset < OFFSET_MAX:
        raise Undecodable(f"its offset is {offset}, which no queue has")
    return offset


def damaged_message(
    data: bytes, position: int, queue: MessageQueue, min_offset: int, end: int, delta: int,
    error: Exception,
) -> DamagedMessage[T]:
    """Return the damaged message at a position.

    :param min_offset: the lowest offset that it can have; ``end`` is one more than the highest.
    :param delta: the number to add to the offsets in records.
    :param error: describes the damage.
    """
    following = _following(data, position)
    raw = data[position:following or len(data)]
    offset = min(min_offset, OFFSET_MAX - 1)
    log_offset = -1
    if len(raw) >= RECORD_SIZE_MIN:
        stated_offset = queue_offset_of(raw) + delta
        if min_offset <= stated_offset < end:
            offset = stated_offset
        log_offset = int64_at(raw, PHYSICAL_OFFSET_POSITION)
        if queue.queue_id < 0:
            # The message was popped from any queue of the topic.
            queue = MessageQueue(queue.topic, queue.broker_name,
                                 int32_at(raw, QUEUE_ID_POSITION))
    try:
        record = decode_record(raw, 0, False)
    except StoreDamaged:
        record = StoredMessage(
            len(raw), 0, 0, queue.queue_id, 0, offset - delta, log_offset, 0, 0, bytes(8), 0,
            bytes(8), 0, 0, b"", queue.topic, "")
    reason = str(error).removeprefix(f"record at byte {position}: ")
    reason = reason.removeprefix(f"no record at byte {position}: ")
    return DamagedMessage(raw, record, queue, offset, queue.topic, reason, following == 0)


def _following(data: bytes, position: int) -> int:
    """Return where the next record begins, by the size of the record at ``position``.

    :returns: 0 when the size is wrong: neither a record nor the end of the response is there.
    """
    total = len(data)
    if total - position < RECORD_SIZE_MIN:
        return 0
    size = int32_at(data, position)
    end = position + size
    if size < RECORD_SIZE_MIN or end > total:
        return 0
    if end == total or (total - end >= RECORD_SIZE_MIN
                        and int32_at(data, end + MAGIC_POSITION) in (MAGIC_V1, MAGIC_V2)):
        return end
    return 0


def _message(
    record: StoredMessage | bytes, queue: MessageQueue, offset: int,
    decode: Callable[[ReceivedMessage[T]], T] | None,
) -> ReceivedMessage[T]:
    """Return a message that may be a retry, with the topic to which it was first sent."""
    message = ReceivedMessage(record, queue, offset, queue.topic, decode)
    message.topic = message.properties.get(RETRY_TOPIC) or queue.topic
    return message
