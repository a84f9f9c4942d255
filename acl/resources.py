"""Which topics and groups a request needs, by its code.

    10, 310, 320                   the topic: PUB; a retry topic: SUB on its group and the sender's
    10, 310, 320, 324, 325         a message that takes back a timed one: the topic of that, as well
    370                            the topic: PUB
    36                             the group: SUB
    11, 361, 200050 to 200055      topic and group: SUB; the group's topic of retries counts as its
                                   topic
    200151                         topic and group of each acknowledgement: SUB
    12                             the topic: SUB
    15, 222, 309                   group and topic: SUB
    314                            the group that is moved, and the topic: SUB
    34                             each consumer group and each topic it subscribes to: SUB
    35, 38                         the consumer group: SUB
    41, 42                         the group, and the topic of each queue: SUB
    321, 400, 401                  group and topic: SUB

Any other request needs no more than an account, but handlers ask for more when they see what a
request touches: see ``IResourceValidator``. Groups stand under their retry topics' names.

Differs from Apache: 361 and POP's codes read messages, or keep them from others, as 11 does, 222
and 314 move a group as 15 does, 309 has it consume, 41, 42, 400, 401 say who reads what, 321 shows
it, 370 and TIMER_DEL_UNIQKEY delete, but no broker of Apache's asks; and a send to a retry topic
needs the group whose topic it is, where Apache's broker believes the sender's word which group that
is.

Source: PlainAccessValidator.parse @4.9.4, PlainAccessResource.parse @5.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

import msgspec

from twistmq.acl.errors import AclError
from twistmq.acl.permissions import Permission
from twistmq.broker.api import BrokerError, RequestCode, parse_properties
from twistmq.broker.api.bodies import Body, HeartbeatData, UnlockBatchRequestBody
from twistmq.broker.api.errors import WireError
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX, retry_topic
from twistmq.broker.api.wire import TIMER_DEL_UNIQKEY, decode_batch

__all__ = ["DecidingValues", "Fields", "deciding_values", "needed_resources", "touched_resources"]


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
    #: The field of a message's properties; of those that take back another needs more.
    properties_field: str = ""
    #: The field that says whether the body is a batch.
    batch_field: str = ""


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
    needed = {**_sends(fields.get("topic"), fields.get("group"), fields.get("producerGroup")),
              **_taken_back(fields.get("properties"))}
    if _MARK in body and _is_batch(fields, "batch"):
        needed |= _batch_taken_back(body)
    return needed


def _is_batch(fields: Fields, name: str) -> bool:
    """Whether a send says that its body is a batch of messages, whatever its code is."""
    return (fields.get(name) or "false").lower() != "false"


def _is_said_later(topic: str | None, group: str | None) -> Needed:
    """Nothing: what the request touches the handler finds out."""
    return {}


def _taken_back(properties: str | None) -> Needed:
    """The permission for a message that recalls a timed one.

    :raises AclError: when it could be one of too many topics.
    """
    text = parse_properties(properties or "").get(TIMER_DEL_UNIQKEY)
    if text is None:
        return {}
    # A plus may be part of the topic's name and of the message's key: each could be meant.
    parts = text.split("+")
    if len(parts) > _PLUS_MAX:
        raise AclError(f"{TIMER_DEL_UNIQKEY} has more than {_PLUS_MAX - 1} plus signs")
    resources: Needed = {}
    for count in range(1, len(parts)):
        resources |= _sends("+".join(parts[:count]))
    return resources


def _batch_taken_back(body: bytes) -> Needed:
    """The resources of the recalls in a batch of messages."""
    try:
        messages = decode_batch(body)
    except BrokerError as error:
        raise AclError(str(error)) from None
    resources: Needed = {}
    for _, _, properties in messages:
        resources |= _taken_back(properties)
    return resources


def _locks(fields: Fields, body: bytes) -> Needed:
    try:
        wanted = UnlockBatchRequestBody.decode(body)
    except WireError as error:
        raise AclError(str(error)) from None
    resources = _reads(None, wanted.consumer_group)
    for queue in wanted.mq_set:
        resources |= _popped(queue.topic or "", wanted.consumer_group or "")
    return resources


def _assigns(fields: Fields, body: bytes) -> Needed:
    """The permission to ask for queues or to set how they are shared."""
    try:
        asked = _Assignment.decode(body)
    except WireError as error:
        raise AclError(str(error)) from None
    return _pops(asked.topic, asked.consumer_group)


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
    """The permission to pop a topic.

    :param topic: it, or the group's topic of its retries: %RETRY%GROUP_TOPIC, %RETRY%GROUP+TOPIC.
    """
    return {_popped_topic(topic, group): Permission.SUB, retry_topic(group): Permission.SUB}


def _popped_topic(topic: str, group: str) -> str:
    beginning = retry_topic(group)
    if topic.startswith((f"{beginning}_", f"{beginning}+")):
        return topic[len(beginning) + 1:]
    return topic


def _batch_ack(fields: Fields, body: bytes) -> Needed:
    try:
        acks = msgspec.json.decode(body, type=_BatchAcks).acks
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AclError(f"a batch of acknowledgements: {error}") from None
    resources: Needed = {}
    for ack in acks:
        # The handler takes the later one of two names: each could be meant.
        for topic in {ack.t, ack.topic} - {""} or {""}:
            for group in {ack.c, ack.consumer_group} - {""} or {""}:
                resources |= _popped(topic, group)
    return resources


class _BatchAck(msgspec.Struct):
    """The topic and group of an acknowledgement, by short names or by long ones."""

    t: str = ""
    c: str = ""
    topic: str = ""
    consumer_group: str = msgspec.field(name="consumerGroup", default="")


class _Assignment(Body):
    """The part of 400 and 401 that says of what they are."""

    topic: str | None = None
    consumer_group: str | None = None


class _BatchAcks(msgspec.Struct):
    acks: list[_BatchAck] = msgspec.field(default_factory=list)


_PULL: Final = _Row("topic", "consumerGroup", _reads)
_POP: Final = _Row("topic", "consumerGroup", _pops)
#: No field of that name: the row has no topic, or no group.
_NONE: Final = ""
_MARK: Final = TIMER_DEL_UNIQKEY.encode("ascii")
#: Parts of a text TIMER_DEL_UNIQKEY: one with more is no message's.
_PLUS_MAX: Final = 8

_ROWS: Final[dict[int, _Row]] = {
    RequestCode.SEND_MESSAGE_V2: _Row("b", "a", _sends, "i", "m"),
    RequestCode.SEND_BATCH_MESSAGE: _Row("b", "a", _sends, "i", "m"),
    RequestCode.SEND_REPLY_MESSAGE: _Row(_NONE, _NONE, _is_said_later, "properties"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _Row(_NONE, _NONE, _is_said_later, "i"),
    RequestCode.RECALL_MESSAGE: _Row("topic", _NONE, _sends),
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
    RequestCode.QUERY_CONSUME_QUEUE: _PULL,
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
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.QUERY_ASSIGNMENT: _assigns,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _assigns,
}


def touched_resources(
    publishes: Collection[str], consumes: Collection[str], groups: Collection[str]
) -> Needed:
    """The permissions that touching topics and groups needs.

    :param publishes: topics that are written to, or where a message is ended or deleted.
    :param consumes: topics that are read, or topics of retries of one of ``groups``.
    """
    resources: Needed = {}
    for topic in publishes:
        resources |= _sends(topic)
    for group in groups:
        resources |= _reads(None, group)
        consumes = [_popped_topic(topic, group) for topic in consumes]
    for topic in consumes:
        resources |= _reads(topic, None)
    return resources


def deciding_values(code: int, fields: Fields, body: bytes) -> DecidingValues | None:
    """The only fields that decide which resources a request needs.

    :returns: None when that is more than a topic and a group.
    """
    row = _ROWS.get(code)
    if row is None or (row.properties_field and _takes_back(row, fields, body)):
        return None
    return code, fields.get(row.topic_field), fields.get(row.group_field)


def _takes_back(row: _Row, fields: Fields, body: bytes) -> bool:
    """Whether a send may take back a timed message."""
    return (TIMER_DEL_UNIQKEY in (fields.get(row.properties_field) or "")
            or _batch_takes_back(row, fields, body))


def _batch_takes_back(row: _Row, fields: Fields, body: bytes) -> bool:
    """Whether one of a batch may."""
    return bool(row.batch_field) and _is_batch(fields, row.batch_field) and _MARK in body


def needed_resources(code: int, fields: Fields, body: bytes) -> Needed:
    """The permission each resource of a request needs.

    :param fields: the request's extFields.
    :raises AclError: when the body that would say so cannot be read.
    """
    row = _ROWS.get(code)
    if row is not None:
        needed = row.needed(fields.get(row.topic_field), fields.get(row.group_field))
        if row.properties_field and _takes_back(row, fields, body):
            needed = {**needed, **_taken_back(fields.get(row.properties_field))}
            if _batch_takes_back(row, fields, body):
                needed |= _batch_taken_back(body)
        return needed
    other = _OTHERS.get(code)
    return {} if other is None else other(fields, body)
