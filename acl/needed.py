"""The resources and actions that a request needs in ACL 2.0, by the table of all codes.

A retry topic counts as its group, and a pop retry topic as the topic and the group to which it
belongs. Other topics of the broker itself need a separate entry, as in Apache's broker.

Differs from Apache:

    request                      here                             Apache's broker
    a code without a row         a super user                     every user
    a header without annotation  its row                          every user
    a required name is missing   a policy for every name          nothing, or a failure
    a pull of another group's    SUB on both groups               SUB on the group of the header
    retry topic, or a send to it
    properties that name topics  PUB on these topics              nothing
    307 with ``jstackEnable``    GET on the cluster as well       GET on the group

Source: DefaultAuthorizationContextBuilder @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from twistmq.acl.access_table import ACCESS, Action, CodeAccess, Kind, Need, RequestedAccess
from twistmq.acl.named import (
    BODY_CODES,
    has_mark,
    named_in_body,
    popped_topic,
    topics_of_batch,
    topics_of_properties,
)
from twistmq.acl.resources import DecidingValues, Fields, deciding_values, is_set
from twistmq.broker.api import RequestCode
from twistmq.broker.api.errors import MessageIllegal
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX
from twistmq.broker.api.wire import FRAME_SIZE_MAX

__all__ = ["needed_access", "requested_topics", "values_that_decide"]


class _SendFields(NamedTuple):
    """The fields of a send: the groups, the properties, and the flag of a batch."""

    groups: tuple[str, ...]
    properties: str
    batch: str


_SENDS: Final[Mapping[int, _SendFields]] = {
    RequestCode.SEND_MESSAGE: _SendFields(("group", "producerGroup"), "properties", "batch"),
    RequestCode.SEND_MESSAGE_V2: _SendFields(("a",), "i", "m"),
    RequestCode.SEND_BATCH_MESSAGE: _SendFields(("a",), "i", "m"),
}
#: The field with the properties of a reply message, whose topic the handler checks.
_REPLIES: Final[Mapping[int, str]] = {
    RequestCode.SEND_REPLY_MESSAGE: "properties", RequestCode.SEND_REPLY_MESSAGE_V2: "i"}
#: The field that names the group whose pop retry topics count as their topics.
_POPPED_GROUP: Final = "consumerGroup"
#: Codes whose requests may name no resource, such as the request by which a producer leaves.
_NAMES_NOTHING: Final = frozenset({RequestCode.UNREGISTER_CLIENT})
_PUB: Final = (Action.PUB,)
_SUB: Final = (Action.SUB,)
_GET: Final = (Action.GET,)


def values_that_decide(code: int, fields: Fields, body: bytes) -> DecidingValues | None:
    """Return the fields that decide which access a request needs, like ``deciding_values``.

    :returns: None if it depends on more than a topic and a group.
    """
    access = ACCESS.get(code)
    return None if access is None or access.of_users else deciding_values(code, fields, body)


def needed_access(
    code: int, fields: Fields, body: bytes, cluster: str, body_size_max: int = FRAME_SIZE_MAX
) -> Iterator[RequestedAccess] | None:
    """Yield the resources that a request wants to touch.

    The body of a batch is read after the topic of its header was yielded. A caller that stops at
    the first resource that the user may not touch spends no time on it; other connections would
    wait during this time.

    :param fields: the request's extFields.
    :param cluster: the name of the broker's cluster.
    :param body_size_max: the limit for the body of a message, bytes.
    :returns: None if the code has no row, so that only a super user may send the request.
    :raises AclError: when the body that names resources cannot be read.
    :raises MessageIllegal: when a batch that names topics is longer than ``body_size_max``.
    """
    access = ACCESS.get(code)
    if access is None:
        return None
    send = _SENDS.get(code)
    if send is not None:
        return _once(_send(access, send, fields, body, body_size_max))
    if code in _REPLIES:
        return _once(_published(topics_of_properties([fields.get(_REPLIES[code]) or ""])))
    if code in BODY_CODES:
        return _once(_in_body(code, access, body))
    return _once(_in_header(code, access, fields, cluster))


def _once(accesses: Iterable[RequestedAccess]) -> Iterator[RequestedAccess]:
    """Yield each resource once."""
    known: set[RequestedAccess] = set()
    for each in accesses:
        if each not in known:
            known.add(each)
            yield each


def requested_topics(
    code: int, publishes: Collection[str], consumes: Collection[str], groups: Collection[str]
) -> Collection[RequestedAccess]:
    """Return the resources that a handler found: see ``IResourceValidator``.

    :param publishes: topics that are written to, or in which a message is ended or deleted.
    :param consumes: topics that are read, or pop retry topics of one of ``groups``.
    """
    access = ACCESS.get(code)
    reads = _SUB if access is None else next(
        (need.actions for need in access.user_needs
         if need.kind is Kind.TOPIC and need.named_by and need.action is Action.SUB), _SUB)
    accesses = dict.fromkeys(_published(publishes))
    for group in groups:
        accesses[RequestedAccess(Kind.GROUP, group, _SUB)] = None
        consumes = [popped_topic(topic, group) for topic in consumes]
    accesses |= dict.fromkeys(_topic(topic, reads) for topic in consumes)
    return accesses


def _topic(name: str, actions: tuple[Action, ...]) -> RequestedAccess:
    """Return a topic, or the group to which a retry topic belongs."""
    if name.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return RequestedAccess(Kind.GROUP, name.removeprefix(RETRY_GROUP_TOPIC_PREFIX), actions)
    return RequestedAccess(Kind.TOPIC, name, actions)


def _published(topics: Iterable[str]) -> Iterator[RequestedAccess]:
    for topic in topics:
        yield _topic(topic, _SUB if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else _PUB)


def _send(
    access: CodeAccess, send: _SendFields, fields: Fields, body: bytes, body_size_max: int
) -> Iterator[RequestedAccess]:
    """Yield the topic of a send, and the topics in its properties and in its batch's properties."""
    topic = fields.get(access.needs[0].field) or ""
    yield from _published([topic])
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        for field in send.groups:
            group = fields.get(field)
            if group:
                yield RequestedAccess(Kind.GROUP, group, _SUB)
    yield from _published(topics_of_properties([fields.get(send.properties) or ""]))
    if is_set(fields, send.batch) and has_mark(body):
        if len(body) > body_size_max:
            raise MessageIllegal(
                f"the message body has {len(body)} bytes, more than {body_size_max}")
        yield from _published(topics_of_batch(body))


def _in_body(code: int, access: CodeAccess, body: bytes) -> Iterator[RequestedAccess]:
    actions = {need.kind: need.actions for need in access.user_needs}
    for kind, name, _ in named_in_body(code, body):
        if kind is Kind.TOPIC:
            yield _topic(name, actions[kind])
        else:
            yield RequestedAccess(kind, name, actions[kind])


def _in_header(
    code: int, access: CodeAccess, fields: Fields, cluster: str
) -> Iterator[RequestedAccess]:
    names_something = False
    for need in access.user_needs:
        for name in _names_in_field(need, fields, cluster):
            names_something = True
            if need.kind is Kind.TOPIC:
                yield _topic(name, need.actions)
            else:
                yield RequestedAccess(need.kind, name, need.actions)
    if not names_something and code not in _NAMES_NOTHING:
        # The header is not complete, so the request would fail or concern everything.
        for need in access.user_needs:
            if need.field:
                yield RequestedAccess(need.kind, "", need.actions)
    if code == RequestCode.GET_CONSUMER_RUNNING_INFO and is_set(fields, "jstackEnable"):
        yield RequestedAccess(Kind.CLUSTER, cluster, _GET)


def _names_in_field(need: Need, fields: Fields, cluster: str) -> list[str]:
    if need.kind is Kind.CLUSTER:
        return [cluster]
    text = fields.get(need.field) if need.field else None
    if text is None:
        return []
    if need.separator:
        return [name for name in text.split(need.separator) if name]
    group = fields.get(_POPPED_GROUP)
    return [text if group is None or need.kind is Kind.GROUP else popped_topic(text, group)]
