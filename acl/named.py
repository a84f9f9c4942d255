"""The topics and groups that a request names outside its header fields: in its body or properties.

Every access scheme needs these names, and then decides about each of them. A body is decoded by the
same code as in its handler, so that the two never understand a request differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Final, NamedTuple

import msgspec

from twistmq.acl.access_table import Kind
from twistmq.acl.errors import AclError
from twistmq.broker.api import BrokerError, RequestCode, parse_properties
from twistmq.broker.api.bodies import (
    Body,
    CheckClientRequestBody,
    HeartbeatData,
    UnlockBatchRequestBody,
)
from twistmq.broker.api.errors import WireError
from twistmq.broker.api.topics import retry_topic
from twistmq.broker.api.wire import TIMER_DEL_UNIQKEY, decode_batch
from twistmq.broker.api.wire import properties as names

__all__ = ["BODY_CODES", "NAMES_MAX", "Named", "has_mark", "named_in_body", "popped_topic",
           "property_topics", "topics_of_batch", "topics_of_properties"]


class Named(NamedTuple):
    """One topic or group that a request names."""

    kind: Kind
    name: str
    #: The topic, if the name is the group of an acknowledgement, which also pops this topic.
    popped: str | None = None


#: The properties of a message that name topics, as they occur in bodies.
_MARKS: Final = (TIMER_DEL_UNIQKEY.encode("ascii"), names.INNER_MULTI_DISPATCH.encode("ascii"))
#: Limit of parts in a TIMER_DEL_UNIQKEY; the text of a real message has fewer.
_PLUS_MAX: Final = 8
#: Limit of topics named by the properties of one request; a message has room for about 4,700 light
#: queues. Other connections wait while the names are checked.
NAMES_MAX: Final = 5000


def popped_topic(topic: str, group: str) -> str:
    """Return the topic that a pop reads.

    :param topic: the topic, or its retry topic for the group: %RETRY%GROUP_TOPIC or
        %RETRY%GROUP+TOPIC.
    """
    beginning = retry_topic(group)
    if topic.startswith((f"{beginning}_", f"{beginning}+")):
        return topic[len(beginning) + 1:]
    return topic


# --- properties


def has_mark(body: bytes) -> bool:
    """Whether the properties in a batch may name topics."""
    return any(mark in body for mark in _MARKS)


def property_topics(text: str) -> bool:
    """Whether the properties of a message may name topics."""
    return TIMER_DEL_UNIQKEY in text or names.INNER_MULTI_DISPATCH in text


def topics_of_properties(texts: Iterable[str]) -> Iterable[str]:
    """Return the topics that the properties of messages name: of recalls and light queues.

    :param texts: the properties of each message.
    :raises AclError: when the properties name too many topics, or when one of them could mean any
        of too many topics.
    """
    # The names are collected first, because each message of a batch may name the same topics.
    topics: dict[str, None] = {}
    for text in texts:
        if not property_topics(text):
            continue
        fields = parse_properties(text)
        topics.update(dict.fromkeys(_recalled_topics(fields.get(TIMER_DEL_UNIQKEY))))
        topics.update(dict.fromkeys((fields.get(names.INNER_MULTI_DISPATCH) or "").split(",")))
        if len(topics) > NAMES_MAX:
            raise AclError(f"the properties name more than {NAMES_MAX} topics")
    topics.pop("", None)
    return topics


def topics_of_batch(body: bytes) -> Iterable[str]:
    """Return the topics named by the properties of the messages of a batch.

    :raises AclError: as ``topics_of_properties``, and when the batch cannot be read.
    """
    try:
        messages = decode_batch(body)
    except BrokerError as error:
        raise AclError(str(error)) from None
    return topics_of_properties([properties for _, _, properties in messages])


def _recalled_topics(text: str | None) -> list[str]:
    """Return the possible topics of the timed message that a message recalls."""
    if text is None:
        return []
    # The topic's name and the message's key may contain a plus, so every reading is considered.
    parts = text.split("+")
    if len(parts) > _PLUS_MAX:
        raise AclError(f"{TIMER_DEL_UNIQKEY} has more than {_PLUS_MAX - 1} plus signs")
    return ["+".join(parts[:count]) for count in range(1, len(parts))]


# --- bodies


def named_in_body(code: int, body: bytes) -> list[Named]:
    """Return the topics and groups in a request's body; none if the code's body names none.

    :raises AclError: when the body cannot be read.
    """
    read = _READERS.get(code)
    if read is None:
        return []
    try:
        return list(read(body))
    except (WireError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AclError(str(error)) from None


def _topic(name: str) -> Named:
    return Named(Kind.TOPIC, name)


def _group(name: str) -> Named:
    return Named(Kind.GROUP, name)


def _heartbeat(body: bytes) -> Iterator[Named]:
    for consumer in HeartbeatData.decode(body).consumer_data_set:
        yield _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield _topic(subscription.topic)


def _checked_client(body: bytes) -> Iterator[Named]:
    """Yield the group and the topic of the subscription that a client asks about."""
    if not body:
        return
    request_body = CheckClientRequestBody.decode(body)
    subscription = request_body.subscription_data
    if subscription is not None and subscription.topic is not None:
        yield _topic(subscription.topic)
    if request_body.group is not None:
        yield _group(request_body.group)


def _locks(body: bytes) -> Iterator[Named]:
    request_body = UnlockBatchRequestBody.decode(body)
    group = request_body.consumer_group
    if group is not None:
        yield _group(group)
    for queue in request_body.mq_set:
        yield _topic(popped_topic(queue.topic or "", group or ""))
        yield _group(group or "")


def _assignment(body: bytes) -> Iterator[Named]:
    """Yield the topic whose queues a client asks for, or sets how they are shared."""
    request_body = _Assignment.decode(body)
    topic, group = request_body.topic, request_body.consumer_group
    if topic is not None:
        yield _topic(topic if group is None else popped_topic(topic, group))
    if group is not None:
        yield _group(group)


def _batch_ack(body: bytes) -> Iterator[Named]:
    try:
        acks = msgspec.json.decode(body, type=_BatchAcks).acks
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AclError(f"a batch of acknowledgements: {error}") from None
    for ack in acks:
        # If both names are present, the handler uses the later one, so both are considered.
        for topic, group in product({ack.t, ack.topic} - {""} or {""},
                                    {ack.c, ack.consumer_group} - {""} or {""}):
            popped = popped_topic(topic, group)
            yield _topic(popped)
            yield Named(Kind.GROUP, group, popped)


def _created_topics(body: bytes) -> Iterator[Named]:
    for config in _TopicNames.decode(body).topic_config_list:
        yield _topic(config.topic_name)


def _created_group(body: bytes) -> Iterator[Named]:
    yield _group(_GroupName.decode(body).group_name)


def _created_groups(body: bytes) -> Iterator[Named]:
    for config in _GroupNames.decode(body).group_config_list:
        yield _group(config.group_name)


class _BatchAck(msgspec.Struct):
    """The topic and group of an acknowledgement, under short or long names."""

    t: str = ""
    c: str = ""
    topic: str = ""
    consumer_group: str = msgspec.field(name="consumerGroup", default="")


class _BatchAcks(msgspec.Struct):
    acks: list[_BatchAck] = msgspec.field(default_factory=list)


class _Assignment(Body):
    """The topic and group in the bodies of 400 and 401."""

    topic: str | None = None
    consumer_group: str | None = None


class _TopicName(Body):
    topic_name: str


class _TopicNames(Body):
    """The names of the topics in the body of 18."""

    topic_config_list: list[_TopicName] = msgspec.field(default_factory=list)


class _GroupName(Body):
    """The name of the group in the body of 200."""

    group_name: str


class _GroupNames(Body):
    """The names of the groups in the body of 225."""

    group_config_list: list[_GroupName] = msgspec.field(default_factory=list)


_READERS: Final[Mapping[int, Callable[[bytes], Iterator[Named]]]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.CHECK_CLIENT_CONFIG: _checked_client,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _assignment,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _created_topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _created_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _created_groups,
}
#: The codes whose bodies name topics or groups.
BODY_CODES: Final = frozenset(_READERS)
