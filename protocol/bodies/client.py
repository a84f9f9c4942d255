"""Client bodies: heartbeats, connections, queue locks, and the running state of a consumer.

Source: HeartbeatData, ConsumerData, ProducerData, SubscriptionData, Connection,
ConsumerConnection, ProducerConnection, GetConsumerListByGroupResponseBody, CheckClientRequestBody,
LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody, ConsumerRunningInfo @5.3.3.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from twistmq.protocol.bodies.body import (
    Body,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    MessageQueue,
)
from twistmq.protocol.header import Int32, Int64

__all__ = ["CheckClientRequestBody", "Connection", "ConsumerConnection", "ConsumerData",
           "ConsumerRunningInfo", "GetConsumerListByGroupResponseBody", "HeartbeatData",
           "LockBatchRequestBody", "LockBatchResponseBody", "ProducerConnection", "ProducerData",
           "SubscriptionData", "UnlockBatchRequestBody"]

field: Final = msgspec.field


class SubscriptionData(Body):
    """The subscription of a consumer to a topic."""

    topic: str
    sub_string: str = "*"
    tags_set: set[str] = field(default_factory=set)
    #: The Java hash codes of the tags.
    code_set: set[Int32] = field(default_factory=set)
    #: When the client made it, Unix ms; of two subscriptions the one with the higher value counts.
    sub_version: Int64 = 0
    class_filter_mode: bool = False
    expression_type: str = "TAG"


class ProducerData(Body):
    """A producer group to which a client belongs."""

    group_name: str


class ConsumerData(Body):
    """A consumer group to which a client belongs."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(Body):
    """A client's heartbeat: its identity and its groups."""

    client_id: str = field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    #: A hash of all subscriptions of the client if it sends heartbeats of version 2; otherwise 0.
    heartbeat_fingerprint: Int32 = 0
    #: True: the subscriptions are omitted, and the fingerprint represents them.
    without_sub: bool = False


class CheckClientRequestBody(Body):
    """A client asks whether the broker accepts its subscription."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class GetConsumerListByGroupResponseBody(Body):
    """The client ids of a group."""

    consumer_id_list: list[str] = field(default_factory=list)


class Connection(Body):
    """One client of a group."""

    client_id: str | None = None
    client_addr: str | None = None
    #: The name of the language, as in a command's header.
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(Body):
    """The clients of a consumer group and the group's subscriptions."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body):
    """The clients of a producer group."""

    connection_set: tuple[Connection, ...] = ()


class LockBatchRequestBody(Body):
    """A client requests exclusive access to queues."""

    consumer_group: str | None = None
    client_id: str | None = None
    #: True: the broker does not ask the other brokers of its group.
    only_this_broker: bool = False
    mq_set: tuple[MessageQueue, ...] = ()


class LockBatchResponseBody(Body):
    """The queues that were locked."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = field(default=(), name="lockOKMQSet")


class UnlockBatchRequestBody(Body):
    """A client releases queues."""

    consumer_group: str | None = None
    client_id: str | None = None
    only_this_broker: bool = False
    mq_set: tuple[MessageQueue, ...] = ()


class ConsumerRunningInfo(Body):
    """The running state of a consumer. The broker passes the bytes on, and tools read them."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    #: The state of each queue, in the form that the client sends.
    mq_table: dict[MessageQueue, Any] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, Any] = field(default_factory=dict)
    #: Statistics by topic.
    status_table: dict[str, Any] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None
