"""Headers of clients and groups (34, 35, 38, 40, 41, 42, 203, 204, 220, 221, 307, 309).

Source: the classes of these names in remoting/protocol/header @5.3.3.
"""

from __future__ import annotations

import msgspec

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["ConsumeMessageDirectlyResultRequestHeader", "GetConsumerConnectionListRequestHeader",
           "GetConsumerListByGroupRequestHeader", "GetConsumerRunningInfoRequestHeader",
           "GetConsumerStatusRequestHeader", "GetProducerConnectionListRequestHeader",
           "HeartbeatResponseHeader", "NotifyConsumerIdsChangedRequestHeader",
           "ResetOffsetRequestHeader", "UnregisterClientRequestHeader"]


class HeartbeatResponseHeader(CommandHeader):
    """The heartbeat features of the broker; Apache adds these fields without a class for them."""

    #: True: the client may send a fingerprint instead of its subscriptions.
    support_heart_beat_v2: bool | None = msgspec.field(
        default=None, name="IS_SUPPORT_HEART_BEAT_V2"
    )
    #: Whether this heartbeat changed a subscription.
    sub_change: bool | None = msgspec.field(default=None, name="IS_SUB_CHANGE")


class UnregisterClientRequestHeader(CommandHeader):
    """A client leaves a consumer group, a producer group, or both."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(CommandHeader):
    """Request for the client ids of a group."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(CommandHeader):
    """Notifies a client that the members of its group changed, so it must rebalance."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(CommandHeader):
    """Request for the connections and subscriptions of a consumer group."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(CommandHeader):
    """Request for the connections of a producer group."""

    producer_group: str


class GetConsumerRunningInfoRequestHeader(CommandHeader):
    """Request for the running state of a consumer; the broker forwards it to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(CommandHeader):
    """Request that one client consumes one message now; the broker forwards it with the message."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class ResetOffsetRequestHeader(CommandHeader):
    """Change the consumption offset: to a client (220) or to the broker (222)."""

    group: str
    topic: str
    #: In Unix ms; -1 stands for the end of the queue.
    timestamp: Int64 = 0
    #: False: offsets are only moved back.
    is_force: bool = False
    #: The queue; -1 stands for all queues.
    queue_id: Int32 = -1
    offset: Int64 | None = None


class GetConsumerStatusRequestHeader(CommandHeader):
    """Request for the offsets of all clients of a group, to a client (221) or the broker (223)."""

    topic: str
    group: str
    client_addr: str | None = None
