"""Commands that find messages by id, key or offset, with their consumption, and push them.

Source: the classes of tools/command/message, MQAdminImpl.queryMessage, DefaultMQAdminExtImpl
(messageTrackDetail, consumed, consumeMessageDirectly) @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.consumer.pull_request import unwrap
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies import ConsumerConnection, ConsumeType, MessageModel, MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, MessageIllegal
from twistmq.protocol.headers.client import ConsumeMessageDirectlyResultRequestHeader
from twistmq.protocol.headers.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.properties import KEYS, TAGS, UNIQ_KEY
from twistmq.protocol.record import StoredMessage, host_text
from twistmq.tools.admin.clients import consumer_connection
from twistmq.tools.admin.groups import consume_stats, running_info
from twistmq.tools.admin.message_listing import pull
from twistmq.tools.admin.records import body_text, message_id_of, offset_id
from twistmq.tools.admin.rows import Cell, Millis, Result, Row, Table
from twistmq.tools.admin.session import AdminError, Session
from twistmq.tools.admin.topics import groups_of

__all__ = ["DETAIL", "DIRECT", "by_either_id", "by_id", "by_key", "by_offset",
           "by_unique_key", "find_messages"]

#: The columns for the details of a message, and for the result of a pushed message.
DETAIL: Final = ("message", "name", "value")
DIRECT: Final = ("message", "client", "result", "remark", "ms")

#: Java's largest long, which means no end.
_NO_END: Final = 2**63 - 1


class _UniqueKeyQuery(QueryMessageRequestHeader):
    """A query whose key is the message id that a client assigned."""

    unique_key_query: str = msgspec.field(default="true", name="_UNIQUE_KEY_QUERY")


def find_messages(
    session: Session, topic: str, key: str, *, begin_ms: int | None = None,
    end_ms: int | None = None, max_count: int = 64, unique: bool = False,
    route_topic: str | None = None,
) -> list[StoredMessage]:
    """Return the messages with a key from all brokers of a topic, in the order of storing.

    :param unique: whether the key is an id that a client assigned.
    """
    kind = _UniqueKeyQuery if unique else QueryMessageRequestHeader
    header = kind(topic=topic, key=key, max_num=max_count, begin_timestamp=begin_ms or 0,
                  end_timestamp=_NO_END if end_ms is None else end_ms)

    def has_key(message: StoredMessage) -> bool:
        # The index contains hashes, so a message may be found by the key of another one.
        properties = message.properties_map()
        return key in (
            [properties.get(UNIQ_KEY)] if unique else properties.get(KEYS, "").split(" "))

    messages: dict[str, StoredMessage] = {}
    for _, reply in session.for_each(
            session.brokers_of(topic, route_topic), lambda each: _whole(
                session, topic, each.name, session.ask(
                    each.address, RequestCode.QUERY_MESSAGE, header,
                    accepted_codes=(ResponseCode.SUCCESS,
                                    ResponseCode.QUERY_NOT_FOUND)).body, has_key)):
        assert isinstance(reply, list)
        for message in reply:
            if has_key(message):
                messages[offset_id(message)] = message
    return sorted(messages.values(), key=lambda message: (message.store_timestamp,
                                                          message.queue_offset))


def _whole(
    session: Session, topic: str, broker: str, body: bytes,
    is_requested: Callable[[StoredMessage], bool] = lambda _: True,
) -> list[StoredMessage]:
    """Return the readable messages of an answer; the other messages are reported as failures.

    :param is_requested: returns whether a message was requested; a damaged message without readable
        properties may be one.
    """
    damaged: list[DamagedMessage[bytes]] = []
    messages = unwrap(body, MessageQueue(topic, broker, -1), damaged)
    session.failures += [f"{each!r} is damaged: {each.damage}" for each in damaged
                         if not each.record.properties or is_requested(each.record)]
    return messages


def by_either_id(
    session: Session, topic: str, text: str, route_topic: str | None
) -> list[StoredMessage]:
    """Return the message with an id of either kind; the newer one if there are two.

    :returns: an empty list if the message is damaged, which is reported as a failure of the
        session.
    :raises AdminError: when no message has the id.
    """
    try:
        ip, port, offset = parse_offset_message_id(text)
        brackets = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        # Both kinds of ids look the same: if its address does not belong to a broker, a client
        # assigned the id.
        broker_names = {each.address: each.name for each in session.all_brokers()}
        if brackets in broker_names:
            return _whole(session, topic, broker_names[brackets], session.ask(
                brackets, RequestCode.VIEW_MESSAGE_BY_ID,
                ViewMessageRequestHeader(offset=offset, topic=topic)).body)
    except MessageIllegal:
        pass
    messages = find_messages(session, topic, text, unique=True, max_count=32,
                             route_topic=route_topic)
    if not messages and not session.failures:
        raise AdminError(f"topic {topic} has no message {text}")
    return messages


def by_key(
    session: Session, *, topic: str, key: str, begin_ms: int | None, end_ms: int | None,
    max_count: int, route_topic: str | None,
) -> Iterator[Row]:
    """Show the messages with a key."""
    for message in find_messages(session, topic, key, begin_ms=begin_ms, end_ms=end_ms,
                                 max_count=max_count, route_topic=route_topic):
        yield (message_id_of(message), message.queue_id, message.queue_offset,
               Millis(message.store_timestamp))


def by_id(
    session: Session, *, topic: str, message_id: str, group: str | None, client: str | None,
    resend: bool, unit: str | None, charset: str, route_topic: str | None,
) -> Result:
    """Show messages by id of either kind, push them to a client, or send them again.

    :param unit: accepted as by mqadmin, but only meaningful for clients.
    """
    ids = [text.strip() for text in message_id.split(",") if text.strip()]
    if not ids:
        raise AdminError("-i must name a message")
    messages = [message for each in ids
                for message in by_either_id(session, topic, each, route_topic)[-1:]]
    if client is not None:
        if group is None:
            raise AdminError("-g and -d go together: a client of a group")
        return Table(DIRECT, _push(session, messages, group, client))
    if resend:
        from twistmq.tools.admin.send_commands import SENT, send_again

        return Table(SENT, send_again(session, messages))
    return _detail(session, messages, charset)


def by_unique_key(
    session: Session, *, topic: str, message_id: str, group: str | None, client: str | None,
    show_all: bool, route_topic: str | None,
) -> Result:
    """Show the newest message, or all messages, with an id that a client assigned."""
    matching = find_messages(session, topic, message_id, unique=True, max_count=32,
                             route_topic=route_topic)
    if not matching and not session.failures:
        raise AdminError(f"topic {topic} has no message {message_id}")
    messages = matching if show_all else matching[-1:]
    if group is not None and client is not None:
        return Table(DIRECT, _push(session, messages, group, client))
    return _detail(session, messages, "UTF-8")


def by_offset(
    session: Session, *, topic: str, broker: str, queue: int, offset: int, charset: str
) -> Iterator[Row]:
    """Show the message at an offset of a queue."""
    messages = pull(session, session.named(broker).address, MessageQueue(topic, broker, queue),
                    offset, 1)[0]
    if not messages or messages[0].queue_offset != offset:
        raise AdminError(f"queue {queue} of {topic} has no message {offset}")
    return _detail(session, messages, charset)


def _detail(session: Session, messages: list[StoredMessage], charset: str) -> Iterator[Row]:
    """Show all details of messages, and their state in each group."""
    for message in messages:
        properties = message.properties_map()
        cells: dict[str, Cell] = {
            "offset_id": offset_id(message), "topic": message.topic,
            "tags": properties.get(TAGS), "keys": properties.get(KEYS),
            "queue": message.queue_id, "queue_offset": message.queue_offset,
            "commit_log_offset": message.physical_offset,
            "reconsume_times": message.reconsume_times,
            "born": Millis(message.born_timestamp), "stored": Millis(message.store_timestamp),
            "born_host": host_text(message.born_host), "store_host": host_text(message.store_host),
            "system_flag": message.sys_flag,
            **{f"property {name}": text for name, text in sorted(properties.items())},
            "body": body_text(message, charset),
        }
        for name, cell in cells.items():
            yield message_id_of(message), name, cell
        for group, state in _tracks(session, message):
            yield message_id_of(message), f"group {group}", state


def _tracks(session: Session, message: StoredMessage) -> Iterator[tuple[str, str]]:
    """Return the state of a message in each group of its topic."""
    try:
        groups = groups_of(session, message.topic)
    except BrokerError as error:
        session.failures.append(str(error))
        return
    for group in groups:
        try:
            yield group, _track(session, message, group)
        except AdminError:
            yield group, "NOT_ONLINE"
        except BrokerError as error:
            yield group, f"UNKNOWN ({error})"


def _track(session: Session, message: StoredMessage, group: str) -> str:
    clients: ConsumerConnection = consumer_connection(session, group)
    if clients.consume_type == ConsumeType.CONSUME_ACTIVELY:
        return "PULL"
    if clients.message_model == MessageModel.BROADCASTING:
        return "CONSUME_BROADCASTING"
    broker = {each.address: each.name for each in session.all_brokers()}.get(
        host_text(message.store_host))
    for queue, offsets in consume_stats(session, group).offset_table.items():
        if (queue.topic, queue.broker_name, queue.queue_id) == (
                message.topic, broker, message.queue_id):
            if offsets.consumer_offset <= message.queue_offset:
                return "NOT_CONSUME_YET"
            subscription = clients.subscription_table.get(message.topic)
            tags = subscription.tags_set if subscription is not None else set()
            passes = not tags or "*" in tags or message.properties_map().get(TAGS) in tags
            return "CONSUMED" if passes else "CONSUMED_BUT_FILTERED"
    return "NOT_CONSUME_YET"


def _push(
    session: Session, messages: list[StoredMessage], group: str, client: str
) -> Iterator[Row]:
    """Let a client consume messages now."""
    properties = running_info(session, group, client).properties
    if properties.get("PROP_CONSUME_TYPE") != ConsumeType.CONSUME_PASSIVELY:
        raise AdminError(f"{client} is not a push consumer: no message can be pushed to it")
    for message in messages:
        address = host_text(message.store_host)
        names = [each.name for each in session.all_brokers() if each.address == address]
        reply = session.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY,
                            ConsumeMessageDirectlyResultRequestHeader(
                                consumer_group=group, client_id=client, msg_id=offset_id(message),
                                topic=message.topic, broker_name=names[0] if names else None),
                            timeout_s=max(session.timeout_s, 12.0))
        result = json_dialect.decode(reply.body)
        yield (message_id_of(message), client, result.get("consumeResult"), result.get("remark"),
               result.get("spentTimeMills"))
