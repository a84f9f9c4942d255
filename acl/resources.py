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

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from twistmq.acl.errors import AclError
from twistmq.acl.permissions import Permission
from twistmq.broker.codes import RequestCode
from twistmq.broker.errors import WireError
from twistmq.broker.topic_names import RETRY_GROUP_TOPIC_PREFIX, retry_topic
from twistmq.broker.wire.bodies import HeartbeatData

__all__ = ["DecidingValues", "Fields", "deciding_values", "needed_resources"]


class Fields(Protocol):
    """The extFields of a request by name."""

    def get(self, name: str, /) -> str | None:
        """A field's text; None when it was not sent."""


Needed = dict[str, Permission]
#: A request's code, and the topic and the group that it names.
DecidingValues = tuple[int, str | None, str | None]


class _Row(NamedTuple):
    """How a code's requests say what they need: by a topic and a group, and nothing else."""

    topic_field: str
    group_field: str
    needed: Callable[[str | None, str | None], Needed]


def _sends(topic: str | None, *groups: str | None) -> Needed:
    if topic is None:
        return {}
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return {topic: Permission.PUB}
    return {topic: Permission.SUB,
            **{retry_topic(group): Permission.SUB for group in groups if group is not None}}


def _reads(topic: str | None, group: str | None) -> Needed:
    resources: Needed = {}
    if topic is not None:
        resources[topic] = Permission.SUB
    if group is not None:
        resources[retry_topic(group)] = Permission.SUB
    return resources


def _pops(topic: str | None, group: str | None) -> Needed:
    return _reads(topic, group) if topic is None or group is None else _popped(topic, group)


def _old_send(fields: Fields, body: bytes) -> Needed:
    return _sends(fields.get("topic"), fields.get("group"), fields.get("producerGroup"))


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


def _popped(topic: str, group: str) -> Needed:
    """What who pops a topic needs.

    :param topic: it, or the group's topic of its retries: %RETRY%GROUP_TOPIC, %RETRY%GROUP+TOPIC.
    """
    beginning = retry_topic(group)
    if topic.startswith((f"{beginning}_", f"{beginning}+")):
        topic = topic[len(beginning) + 1:]
    return {topic: Permission.SUB, beginning: Permission.SUB}


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


_PULL: Final = _Row("topic", "consumerGroup", _reads)
_POP: Final = _Row("topic", "consumerGroup", _pops)
#: No field of that name: the row has no topic, or no group.
_NONE: Final = ""

_ROWS: Final[dict[int, _Row]] = {
    RequestCode.SEND_MESSAGE_V2: _Row("b", "a", _sends),
    RequestCode.SEND_BATCH_MESSAGE: _Row("b", "a", _sends),
    RequestCode.CONSUMER_SEND_MSG_BACK: _Row(_NONE, "group", _reads),
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.POP_MESSAGE: _POP,
    RequestCode.PEEK_MESSAGE: _POP,
    RequestCode.ACK_MESSAGE: _POP,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    RequestCode.NOTIFICATION: _POP,
    RequestCode.POLLING_INFO: _POP,
    RequestCode.QUERY_MESSAGE: _Row("topic", _NONE, _reads),
    RequestCode.UPDATE_CONSUMER_OFFSET: _PULL,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _Row("topic", "group", _reads),
    RequestCode.CLONE_GROUP_OFFSET: _Row("topic", "destGroup", _reads),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _PULL,
    RequestCode.UNREGISTER_CLIENT: _Row(_NONE, "consumerGroup", _reads),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _Row(_NONE, "consumerGroup", _reads),
}
#: Of the codes whose requests say it by more fields, or in their body.
_OTHERS: Final[dict[int, Callable[[Fields, bytes], Needed]]] = {
    RequestCode.SEND_MESSAGE: _old_send,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.HEART_BEAT: _heartbeat,
}


def deciding_values(code: int, fields: Fields) -> DecidingValues | None:
    """What alone decides which resources a request needs.

    :returns: None when that is more than a topic and a group.
    """
    row = _ROWS.get(code)
    if row is None:
        return None
    return code, fields.get(row.topic_field), fields.get(row.group_field)


def needed_resources(code: int, fields: Fields, body: bytes) -> Needed:
    """The permission each resource of a request needs.

    :param fields: the request's extFields.
    :raises AclError: when the body that would say so cannot be read.
    """
    values = deciding_values(code, fields)
    if values is not None:
        return _ROWS[code].needed(values[1], values[2])
    other = _OTHERS.get(code)
    return {} if other is None else other(fields, body)
