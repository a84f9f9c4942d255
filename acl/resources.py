"""The resources of a request and the permissions of ACL 1.0 that it needs, by its code.

The table ``access_table`` states the needs of each code. This module finds the resources in the
header fields, in the body, and in the properties of messages. A group is represented by the name of
its retry topic, so that topics and groups share one table.

A request whose code has no row needs only an account. Handlers ask for further permissions when
they learn which resources a request touches: see ``IResourceValidator``.

Source: PlainAccessValidator.parse @4.9.4, PlainAccessResource.parse @5.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol

from twistmq.acl.access_table import ACCESS, Action, CodeAccess, Kind, needs_administrator
from twistmq.acl.named import (
    BODY_CODES,
    Named,
    has_mark,
    named_in_body,
    popped_topic,
    property_topics,
    topics_of_batch,
    topics_of_properties,
)
from twistmq.acl.permissions import Permission
from twistmq.broker.api import RequestCode
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX, retry_topic

__all__ = ["CLUSTER", "DecidingValues", "Fields", "Needed", "PopRetries", "Resource",
           "deciding_values", "is_set", "needed_by_batch_header", "needed_resources",
           "touched_resources"]


class _Whole(Enum):
    """A resource that is not a single topic or group."""

    CLUSTER = "cluster"


class PopRetries(NamedTuple):
    """The pop retry topic of a topic and a group.

    A pop of the topic also returns the messages of its retry topic. The topic and the group are
    checked separately. This object stands for all other topics and groups to which the name of the
    retry topic may belong.
    """

    topic: str
    group: str


CLUSTER: Final = _Whole.CLUSTER
#: A topic, or the retry topic of a group.
Resource = str | PopRetries | _Whole


class Fields(Protocol):
    """The extFields of a request by name."""

    def get(self, name: str, /) -> str | None:
        """Return a field's text, or None if it was not sent."""


Needed = dict[Resource, Permission]
#: A request's code, and the topic and group that it names.
DecidingValues = tuple[int, str | None, str | None]


class _Row(NamedTuple):
    """Describes a code whose requests need permissions only for a topic and a group."""

    topic_field: str
    group_field: str
    needed: Callable[[str | None, str | None], Needed]
    #: The field with a message's properties; a message that recalls another one needs more.
    properties_field: str = ""
    #: The field that states whether the body is a batch.
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


def _named(
    topic_permission: Permission, group_permission: Permission, topic: str | None,
    group: str | None,
) -> Needed:
    resources: Needed = {}
    if topic is not None:
        resources[topic] = topic_permission
    if group is not None:
        resources[retry_topic(group)] = group_permission
    return resources


def _pops(topic: str | None, group: str | None) -> Needed:
    if topic is None or group is None:
        return _reads(topic, group)
    return {**_popped(topic, group), PopRetries(popped_topic(topic, group), group): Permission.SUB}


def _old_send(fields: Fields, body: bytes) -> Needed:
    needed = {**_old_header(fields), **_published(topics_of_properties(
        [fields.get("properties") or ""]))}
    if is_set(fields, "batch") and has_mark(body):
        needed |= _published(topics_of_batch(body))
    return needed


def _old_header(fields: Fields) -> Needed:
    return _sends(fields.get("topic"), fields.get("group"), fields.get("producerGroup"))


def is_set(fields: Fields, name: str) -> bool:
    """Whether a field is present and not "false": handlers read flags in this way."""
    return (fields.get(name) or "false").lower() != "false"


def _checked_by_handler(topic: str | None, group: str | None) -> Needed:
    """Return nothing, because the handler determines the touched resources."""
    return {}


def _published(topics: Iterable[str]) -> Needed:
    """Return the permissions to write to topics."""
    resources: Needed = {}
    for topic in topics:
        resources |= _sends(topic)
    return resources


def _consumed(named: Iterable[Named]) -> Needed:
    """Return the permissions to read topics and to act for groups."""
    resources: Needed = {}
    for each in named:
        name = each.name if each.kind is Kind.TOPIC else retry_topic(each.name)
        resources[name] = Permission.SUB
        if each.popped is not None:
            resources[PopRetries(each.popped, each.name)] = Permission.SUB
    return resources


def _running_info(fields: Fields, body: bytes) -> Needed:
    """Return the permission to ask for a consumer's state; stacks show its whole process."""
    needed = _reads(None, fields.get("consumerGroup"))
    if is_set(fields, "jstackEnable"):
        needed[CLUSTER] = Permission.ANY
    return needed


def _consume_stats(fields: Fields, body: bytes) -> Needed:
    topics = [fields.get("topic"), *(fields.get("topicList") or "").split(";")]
    needed: Needed = {topic: Permission.ANY for topic in topics if topic}
    return {**needed, **_reads(None, fields.get("consumerGroup"))}


def _clones(fields: Fields, body: bytes) -> Needed:
    return {**_reads(fields.get("topic"), fields.get("srcGroup")),
            **_reads(None, fields.get("destGroup"))}


def _popped(topic: str, group: str) -> Needed:
    """Return the permission to pop a topic, or its retry topic for the group."""
    return {popped_topic(topic, group): Permission.SUB, retry_topic(group): Permission.SUB}


_OF_ACTION: Final = {
    Action.PUB: Permission.PUB, Action.SUB: Permission.SUB, Action.GET: Permission.ANY}

_POPS_CODES: Final = frozenset({
    RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO})
#: Sends: the fields with the group, with the properties, and whether the body is a batch.
_SENDS_FIELDS: Final = {
    RequestCode.SEND_MESSAGE_V2: ("a", "i", "m"), RequestCode.SEND_BATCH_MESSAGE: ("a", "i", "m"),
    RequestCode.RECALL_MESSAGE: ("", "", "")}
#: Codes whose requests name resources in more than two fields.
_OTHERS: Final[dict[int, Callable[[Fields, bytes], Needed]]] = {
    RequestCode.SEND_MESSAGE: _old_send,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
    RequestCode.GET_CONSUME_STATS: _consume_stats,
    RequestCode.CLONE_GROUP_OFFSET: _clones,
}


def _row(code: int, access: CodeAccess) -> _Row:
    """Describe a code whose header names all needed resources."""
    fields = {need.kind: need.field for need in access.needs}
    permissions = {need.kind: _OF_ACTION[need.action] for need in access.needs}
    topic, group = fields.get(Kind.TOPIC, ""), fields.get(Kind.GROUP, "")
    if code in _SENDS_FIELDS:
        return _Row(topic, _SENDS_FIELDS[RequestCode(code)][0], _sends,
                    *_SENDS_FIELDS[RequestCode(code)][1:])
    if code in _POPS_CODES:
        return _Row(topic, group, _pops)
    return _Row(topic, group, partial(_named, permissions.get(Kind.TOPIC, Permission.SUB),
                                      permissions.get(Kind.GROUP, Permission.SUB)))


def _rows() -> Iterator[tuple[int, _Row]]:
    # The handlers of reply messages check their topic, unless it is the cluster's reply topic.
    yield RequestCode.SEND_REPLY_MESSAGE, _Row("", "", _checked_by_handler, "properties")
    yield RequestCode.SEND_REPLY_MESSAGE_V2, _Row("", "", _checked_by_handler, "i")
    special_codes = {*_OTHERS, *BODY_CODES, RequestCode.SEND_REPLY_MESSAGE,
                     RequestCode.SEND_REPLY_MESSAGE_V2}
    for code, access in ACCESS.items():
        if code not in special_codes and access.needs and not needs_administrator(code):
            yield code, _row(code, access)


_ROWS: Final = dict(_rows())


def touched_resources(
    publishes: Collection[str], consumes: Collection[str], groups: Collection[str]
) -> Needed:
    """Return the permissions needed to touch topics and groups.

    :param publishes: topics that are written to, or in which a message is ended or deleted.
    :param consumes: topics that are read, or pop retry topics of one of ``groups``.
    """
    resources: Needed = {}
    for topic in publishes:
        resources |= _sends(topic)
    for group in groups:
        resources |= _reads(None, group)
        for topic in consumes:
            popped = popped_topic(topic, group)
            if popped != topic:
                resources[PopRetries(popped, group)] = Permission.SUB
        consumes = [popped_topic(topic, group) for topic in consumes]
    for topic in consumes:
        resources |= _reads(topic, None)
    return resources


def deciding_values(code: int, fields: Fields, body: bytes) -> DecidingValues | None:
    """Return the only fields that decide which resources a request needs.

    :returns: None if more than a topic and a group decide.
    """
    row = _ROWS.get(code)
    if row is None or (row.properties_field and _names_more(row, fields, body)):
        return None
    return code, fields.get(row.topic_field), fields.get(row.group_field)


def _names_more(row: _Row, fields: Fields, body: bytes) -> bool:
    """Whether the properties of a send may name other topics."""
    properties = fields.get(row.properties_field) or ""
    return property_topics(properties) or _batch_names_more(row, fields, body)


def _batch_names_more(row: _Row, fields: Fields, body: bytes) -> bool:
    """Whether the properties of a message in a batch may name other topics."""
    return bool(row.batch_field) and is_set(fields, row.batch_field) and has_mark(body)


def needed_by_batch_header(code: int, fields: Fields, body: bytes) -> Needed | None:
    """Return the permissions to check before the messages of a batch are read.

    :returns: None if the request is not a batch, or if its messages name no other topics.
    """
    if code == RequestCode.SEND_MESSAGE:
        return _old_header(fields) if is_set(fields, "batch") and has_mark(body) else None
    row = _ROWS.get(code)
    if row is None or not _batch_names_more(row, fields, body):
        return None
    return row.needed(fields.get(row.topic_field), fields.get(row.group_field))


def needed_resources(code: int, fields: Fields, body: bytes) -> Needed:
    """Return the permission that each resource of a request needs.

    :param fields: the request's extFields.
    :raises AclError: when the body that names resources cannot be read.
    """
    row = _ROWS.get(code)
    if row is not None:
        needed = row.needed(fields.get(row.topic_field), fields.get(row.group_field))
        if row.properties_field and _names_more(row, fields, body):
            needed = {**needed, **_published(topics_of_properties(
                [fields.get(row.properties_field) or ""]))}
            if _batch_names_more(row, fields, body):
                needed |= _published(topics_of_batch(body))
        return needed
    if needs_administrator(code):
        return {CLUSTER: Permission.ANY}
    other = _OTHERS.get(code)
    return _consumed(named_in_body(code, body)) if other is None else other(fields, body)
