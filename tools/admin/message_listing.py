"""Commands that list messages and entries of consume queues.

Source: PrintMessageSubCommand, PrintMessageByQueueCommand, ConsumeMessageCommand,
QueryConsumeQueueCommand @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from twistmq.client.base.messages import PullStatus, ReceivedMessage
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.consumer.damaged_messages import sort_out
from twistmq.client.core.consumer.pull_request import messages_of, pull_header, pull_result
from twistmq.client.core.consumer.subscriptions import subscription
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.offset import (
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
)
from twistmq.protocol.headers.query import QueryConsumeQueueRequestHeader
from twistmq.protocol.properties import KEYS, TAGS
from twistmq.protocol.record import StoredMessage
from twistmq.tools.admin.offsets import offset_at
from twistmq.tools.admin.records import body_text, message_id_of
from twistmq.tools.admin.rows import Millis, Result, Row, Table
from twistmq.tools.admin.session import AdminError, Broker, Session

__all__ = ["consume_messages", "print_messages", "print_queue", "pull", "query_queue"]

#: The number of messages that a pull requests.
_PULL_COUNT = 32
_GROUP: Final = "TOOLS_CONSUMER"
_PULL_ENDS: Final = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND,
                     ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


def pull(
    session: Session, address: str, queue: MessageQueue, offset: int, count: int,
    expression: str = "*",
) -> tuple[list[StoredMessage], int, bool]:
    """Return messages of a queue, the next offset to pull, and whether the end was reached.

    A damaged message is left out and reported on standard error.
    """
    header = pull_header(queue, offset, _GROUP, max_count=count, expression=expression)
    reply = session.ask(address, RequestCode.PULL_MESSAGE, header, accepted_codes=_PULL_ENDS)
    result = pull_result(reply, address)
    to = result.next_offset
    messages: list[ReceivedMessage[bytes]] = []
    if result.status is PullStatus.FOUND:
        damaged: list[DamagedMessage[bytes]] = []
        messages = messages_of(result, queue, subscription(queue.topic, expression).tags, None,
                               damaged, offset)
        if damaged:
            outcome = sort_out("skip", result, messages, damaged, f"topic {queue.topic}",
                               was_alone=count == 1)
            to = outcome.next_offset
            if outcome.is_alone and to == offset:
                return pull(session, address, queue, offset, 1, expression)
    records = [each.record for each in messages]
    is_end = result.status is PullStatus.NO_NEW_MESSAGE or (
        result.status is PullStatus.OFFSET_MOVED and to <= offset)
    return records, to, is_end


def _walk(
    session: Session, address: str, queue: MessageQueue, begin: int | None, begin_ms: int | None,
    end_ms: int | None, expression: str,
) -> Iterator[StoredMessage]:
    """Yield the messages of a queue within a span of time."""
    if begin is not None:
        offset = begin
    elif begin_ms is not None:
        offset = offset_at(session, address, queue, begin_ms)
    else:
        offset = session.ask(address, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id)).header(GetMinOffsetResponseHeader).offset
    # Messages stored after this point are not shown, so that the walk ends.
    end = offset_at(session, address, queue, -1)
    while offset < end:
        messages, offset, is_end = pull(session, address, queue, offset, _PULL_COUNT, expression)
        for message in messages:
            if message.queue_offset >= end or (
                    end_ms is not None and message.store_timestamp > end_ms):
                return
            yield message
        if is_end:
            return


def _shown(queue: MessageQueue, message: StoredMessage, charset: str, body: bool) -> Row:
    properties = message.properties_map()
    return (queue.broker_name, queue.queue_id, message.queue_offset, message_id_of(message),
            properties.get(TAGS), properties.get(KEYS), Millis(message.store_timestamp),
            body_text(message, charset) if body else None)


def print_messages(
    session: Session, *, topic: str, charset: str, expression: str, begin_ms: int | None,
    end_ms: int | None, body: bool, route_topic: str | None,
) -> Iterator[Row]:
    """Show the messages of a topic, queue by queue."""
    queues = session.read_queues(route_topic or topic)
    for each in queues if route_topic is None else [
            MessageQueue(topic, each.broker_name, 0) for each in queues if each.queue_id == 0]:
        address = session.named(each.broker_name).address
        for message in _walk(session, address, each, None, begin_ms, end_ms, expression):
            yield _shown(each, message, charset, body)


def print_queue(
    session: Session, *, topic: str, broker: str, queue: int, charset: str, expression: str,
    begin_ms: int | None, end_ms: int | None, show: bool, body: bool, by_tag: bool,
) -> Result:
    """Show the messages of a queue, or their number for each tag."""
    message_queue = MessageQueue(topic, broker, queue)
    messages = _walk(session, session.named(broker).address, message_queue, None, begin_ms, end_ms,
                     expression)
    if by_tag:
        counts: dict[str, int] = {}
        for message in messages:
            tag = message.properties_map().get(TAGS, "")
            counts[tag] = counts.get(tag, 0) + 1
        most_first = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return Table(("tag", "messages"), [(tag, count) for tag, count in most_first])
    return (_shown(message_queue, message, charset, body or show) for message in messages)


def consume_messages(
    session: Session, *, topic: str, broker: str | None, queue: int | None, offset: int | None,
    group: str | None, begin_ms: int | None, end_ms: int | None, count: int,
) -> Iterator[Row]:
    """Show ``count`` messages of a topic or a queue, without changing a consumer offset.

    :param group: as in mqadmin: the group with which messages are pulled; no offset is committed.
    """
    if queue is not None and broker is None:
        raise AdminError("-i needs -b: a broker's queue")
    if offset is not None and queue is None:
        raise AdminError("-o needs -b and -i: an offset in one queue")
    remaining = count
    for each in session.read_queues(topic):
        if (broker is None or each.broker_name == broker) and queue in (None, each.queue_id):
            address = session.named(each.broker_name).address
            for message in _walk(session, address, each, offset, begin_ms, end_ms, "*"):
                if remaining == 0:
                    return
                remaining -= 1
                yield _shown(each, message, "UTF-8", body=True)


def query_queue(
    session: Session, *, topic: str, queue: int, begin: int, count: int, broker: str | None,
    group: str | None,
) -> Iterator[Row]:
    """Show the entries of a consume queue unchanged."""
    targets = [Broker("", "", 0, broker)] if broker else session.brokers_of(topic)
    header = QueryConsumeQueueRequestHeader(topic=topic, queue_id=queue, index=begin, count=count,
                                            consumer_group=group)
    for target in targets[:1]:
        answer: dict[str, Any] = json_dialect.decode(
            session.ask(target.address, RequestCode.QUERY_CONSUME_QUEUE, header).body)
        for at, entry in enumerate(answer.get("queueData") or [], begin):
            yield (at, entry.get("physicOffset"), entry.get("physicSize"), entry.get("tagsCode"),
                   entry.get("extendDataJson"), entry.get("bitMap"), entry.get("eval"),
                   entry.get("msg"))
