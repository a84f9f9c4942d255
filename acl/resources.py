"""Which topics and groups a request needs, by its code.

    10, 310, 320                   the topic: PUB; a retry topic: SUB on its group and the sender's
    36                             the group: SUB
    11, 361, 200050 to 200053      topic and group: SUB
    12                             the topic: SUB
    15                             group and topic: SUB
    34                             each consumer group and each topic it subscribes to: SUB
    35, 38                         the consumer group: SUB

Any other request needs no more than an account. Groups stand under their retry topics' names.

Differs from Apache: 361 and POP's four codes read messages as 11 does but are looked at by no
broker of Apache's; and a send to a retry topic needs the group whose topic it is, where Apache's
broker believes the sender's word which group that is.

Source: PlainAccessValidator.parse @4.9.4, PlainAccessResource.parse @5.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from twistmq.acl.errors import AclError
from twistmq.acl.permissions import Permission
from twistmq.broker.codes import RequestCode
from twistmq.broker.errors import WireError
from twistmq.broker.topic_names import RETRY_GROUP_TOPIC_PREFIX, retry_topic
from twistmq.broker.wire.bodies import HeartbeatData

__all__ = ["needed_resources"]

Fields = Mapping[str, str]
Needed = dict[str, Permission]


def _send(fields: Fields, topic_field: str, group_fields: tuple[str, ...]) -> Needed:
    topic = fields.get(topic_field)
    if topic is None:
        return {}
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return {topic: Permission.PUB}
    groups = (fields[name] for name in group_fields if name in fields)
    return {topic: Permission.SUB, **{retry_topic(group): Permission.SUB for group in groups}}


def _read(topic_field: str = "", group_field: str = "") -> Callable[[Fields, bytes], Needed]:
    def needed(fields: Fields, body: bytes) -> Needed:
        resources: Needed = {}
        if topic_field in fields:
            resources[fields[topic_field]] = Permission.SUB
        if group_field in fields:
            resources[retry_topic(fields[group_field])] = Permission.SUB
        return resources

    return needed


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

_NEEDED: Final[dict[int, Callable[[Fields, bytes], Needed]]] = {
    RequestCode.SEND_MESSAGE: lambda fields, body: _send(
        fields, "topic", ("group", "producerGroup")),
    RequestCode.SEND_MESSAGE_V2: lambda fields, body: _send(fields, "b", ("a",)),
    RequestCode.SEND_BATCH_MESSAGE: lambda fields, body: _send(fields, "b", ("a",)),
    RequestCode.CONSUMER_SEND_MSG_BACK: _read(group_field="group"),
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.POP_MESSAGE: _pull,
    RequestCode.PEEK_MESSAGE: _pull,
    RequestCode.ACK_MESSAGE: _pull,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pull,
    RequestCode.QUERY_MESSAGE: _read("topic"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _pull,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _read(group_field="consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _read(group_field="consumerGroup"),
}


def needed_resources(code: int, fields: Fields, body: bytes) -> Needed:
    """The permission each resource of a request needs.

    :param fields: the request's extFields.
    :raises AclError: when the body that would say so cannot be read.
    """
    needed = _NEEDED.get(code)
    return {} if needed is None else needed(fields, body)
