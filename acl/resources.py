"""Which topics and groups a request needs, by its code.

    10, 310, 320                   the topic: PUB; a retry topic: SUB on its group and the sender's
    36                             the group: SUB
    11, 361, 200050 to 200055      topic and group: SUB; the group's topic of retries counts as its
                                   topic
    200151                         topic and group of each acknowledgement: SUB
    12                             the topic: SUB
    15, 222, 309                   group and topic: SUB
    314                            the group that is moved, and the topic: SUB
    34                             each consumer group and each topic it subscribes to: SUB
    35, 38                         the consumer group: SUB

Any other request needs no more than an account. Groups stand under their retry topics' names.

Differs from Apache: 361 and POP's codes read messages, or keep them from others, as 11 does, 222
and 314 move a group as 15 does, 309 has it consume, but no broker of Apache's looks at these; and a
send to a retry topic needs the group whose topic it is, where Apache's broker believes the sender's
word which group that is.

Source: PlainAccessValidator.parse @4.9.4, PlainAccessResource.parse @5.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from twistmq.acl.errors import AclError
from twistmq.acl.permissions import Permission
from twistmq.broker.codes import RequestCode
from twistmq.broker.errors import WireError
from twistmq.broker.topic_names import RETRY_GROUP_TOPIC_PREFIX, retry_topic
from twistmq.broker.wire.bodies import HeartbeatData

__all__ = ["DecidingValues", "deciding_values", "needed_resources"]

Fields = Mapping[str, str]
Needed = dict[str, Permission]
#: A request's code, and the topic and the group that it names.
DecidingValues = tuple[int, str | None, str | None]


class _Row(NamedTuple):
    """How a code's requests say what they need.

    :param names: the fields of topic and group when they alone say so; None: others do as well, or
        the body.
    """

    needed: Callable[[Fields, bytes], Needed]
    names: tuple[str, str] | None


def _send(topic_field: str, *group_fields: str) -> _Row:
    def needed(fields: Fields, body: bytes) -> Needed:
        topic = fields.get(topic_field)
        if topic is None:
            return {}
        if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return {topic: Permission.PUB}
        groups = (fields[name] for name in group_fields if name in fields)
        return {topic: Permission.SUB, **{retry_topic(group): Permission.SUB for group in groups}}

    return _Row(needed, (topic_field, *group_fields) if len(group_fields) == 1 else None)


def _read(topic_field: str = "", group_field: str = "") -> _Row:
    def needed(fields: Fields, body: bytes) -> Needed:
        resources: Needed = {}
        if topic_field in fields:
            resources[fields[topic_field]] = Permission.SUB
        if group_field in fields:
            resources[retry_topic(fields[group_field])] = Permission.SUB
        return resources

    return _Row(needed, (topic_field, group_field))


def _heartbeat(fields: Fields, body: bytes) -> Needed:
    try:
        heartbeat = HeartbeatData.decode(body)
    except WireError as error:
        raise AclError(str(error)) from None
    resources: Needed = {}
    for consumer in heartbeat.consumer_data_set:
        resources[retry_topic(consumer.group_name)] = Permission.SUB
        for subscription in consumer.subscription_data_set:
            resources[subscription.topic] = Permission.SUB
    return resources


_pull: Final = _read("topic", "consumerGroup")


def _popped(topic: str, group: str) -> Needed:
    """What who pops a topic needs.

    :param topic: it, or the group's topic of its retries: %RETRY%GROUP_TOPIC, %RETRY%GROUP+TOPIC.
    """
    beginning = retry_topic(group)
    if topic.startswith((f"{beginning}_", f"{beginning}+")):
        topic = topic[len(beginning) + 1:]
    return {topic: Permission.SUB, beginning: Permission.SUB}


def _pop(fields: Fields, body: bytes) -> Needed:
    topic, group = fields.get("topic"), fields.get("consumerGroup")
    return _pull.needed(fields, body) if topic is None or group is None else _popped(topic, group)


def _batch_ack(fields: Fields, body: bytes) -> Needed:
    try:
        acks = msgspec.json.decode(body, type=_BatchAcks).acks
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AclError(f"a batch of acknowledgements: {error}") from None
    resources: Needed = {}
    for ack in acks:
        resources |= _popped(ack.t or ack.topic, ack.c or ack.consumer_group)
    return resources


class _BatchAck(msgspec.Struct):
    """Whose acknowledgement it is, by short names or by long ones."""

    t: str = ""
    c: str = ""
    topic: str = ""
    consumer_group: str = msgspec.field(name="consumerGroup", default="")


class _BatchAcks(msgspec.Struct):
    acks: list[_BatchAck] = msgspec.field(default_factory=list)


_popped_row: Final = _Row(_pop, _pull.names)

_NEEDED: Final[dict[int, _Row]] = {
    RequestCode.SEND_MESSAGE: _send("topic", "group", "producerGroup"),
    RequestCode.SEND_MESSAGE_V2: _send("b", "a"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b", "a"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _read(group_field="group"),
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.POP_MESSAGE: _popped_row,
    RequestCode.PEEK_MESSAGE: _popped_row,
    RequestCode.ACK_MESSAGE: _popped_row,
    RequestCode.BATCH_ACK_MESSAGE: _Row(_batch_ack, None),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _popped_row,
    RequestCode.NOTIFICATION: _popped_row,
    RequestCode.POLLING_INFO: _popped_row,
    RequestCode.QUERY_MESSAGE: _read("topic"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _pull,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _read("topic", "group"),
    RequestCode.CLONE_GROUP_OFFSET: _read("topic", "destGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _pull,
    RequestCode.HEART_BEAT: _Row(_heartbeat, None),
    RequestCode.UNREGISTER_CLIENT: _read(group_field="consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _read(group_field="consumerGroup"),
}


def needed_resources(code: int, fields: Fields, body: bytes) -> Needed:
    """The permission each resource of a request needs.

    :param fields: the request's extFields.
    :raises AclError: when the body that would say so cannot be read.
    """
    row = _NEEDED.get(code)
    return {} if row is None else row.needed(fields, body)


def deciding_values(code: int, fields: Fields) -> DecidingValues | None:
    """What alone decides which resources a request needs.

    :returns: None when that is more than a topic and a group.
    """
    row = _NEEDED.get(code)
    if row is None or row.names is None:
        return None
    topic, group = row.names
    return code, fields.get(topic), fields.get(group)
