"""Clients: heartbeats, who is connected, queue locks, what a consumer is doing.

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
    #: Java's hash codes of the tags.
    code_set: set[Int32] = field(default_factory=set)
    #: Unix ms when the client made it; of two the higher counts.
    sub_version: Int64 = 0
    class_filter_mode: bool = False
    expression_type: str = "TAG"


class ProducerData(Body):
    """A producer group of a client."""

    group_name: str


class ConsumerData(Body):
    """A consumer group of a client."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(Body):
    """A client says who it is and that it lives."""

    client_id: str = field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    #: Of what the client subscribes to, when it sends heartbeats of the second kind; or 0.
    heartbeat_fingerprint: Int32 = 0
    #: True: the subscriptions are left out, the fingerprint stands for them.
    without_sub: bool = False


class CheckClientRequestBody(Body):
    """A client asks whether the broker takes its subscription."""

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
    #: Name of the language, as in a command's header.
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(Body):
    """The clients of a consumer group and what it subscribed to."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body):
    """The clients of a producer group."""

    connection_set: tuple[Connection, ...] = ()


class LockBatchRequestBody(Body):
    """A client wants queues for itself."""

    consumer_group: str | None = None
    client_id: str | None = None
    #: True: the broker asks no other broker of its group.
    only_this_broker: bool = False
    mq_set: tuple[MessageQueue, ...] = ()


class LockBatchResponseBody(Body):
    """The queues it got."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = field(default=(), name="lockOKMQSet")


class UnlockBatchRequestBody(Body):
    """A client gives queues back."""

    consumer_group: str | None = None
    client_id: str | None = None
    only_this_broker: bool = False
    mq_set: tuple[MessageQueue, ...] = ()


class ConsumerRunningInfo(Body):
    """The running state of a consumer. The broker passes the bytes on; tools read them."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    #: State of each queue, as the client gives it.
    mq_table: dict[MessageQueue, Any] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, Any] = field(default_factory=dict)
    #: Statistics by topic.
    status_table: dict[str, Any] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None
