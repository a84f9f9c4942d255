"""Subscription groups and their offsets.

Source: SubscriptionGroupConfig, GroupRetryPolicy, SubscriptionGroupWrapper, SubscriptionGroupList,
ConsumerOffsetManager, ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper, ConsumeStats,
ResetOffsetBody, GetConsumerStatusBody @5.3.3.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twistmq.protocol.bodies.body import Body, MessageQueue
from twistmq.protocol.bodies.topic import DataVersion
from twistmq.protocol.header import Int32, Int64

__all__ = ["ConsumeStats", "ConsumerOffsetSerializeWrapper", "CustomizedRetryPolicy",
           "DelayOffsetSerializeWrapper", "ExponentialRetryPolicy", "GetConsumerStatusBody",
           "GroupRetryPolicy", "LmqConsumerOffsetSerializeWrapper", "OffsetWrapper",
           "ResetOffsetBody", "SimpleSubscriptionData",
           "SubscriptionGroupConfig", "SubscriptionGroupList", "SubscriptionGroupWrapper"]

field: Final = msgspec.field

_MINUTE: Final = 60_000
#: The wait before each retry, ms: two short waits, then the delay levels 3 to 18.
_RETRY_DELAYS: Final = (
    1_000, 5_000, 10_000, 30_000, *(minutes * _MINUTE for minutes in range(1, 11)),
    20 * _MINUTE, 30 * _MINUTE, 60 * _MINUTE, 120 * _MINUTE,
)


class ExponentialRetryPolicy(Body):
    """Waits that grow exponentially, ms."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body):
    """A list of single waits, ms."""

    next: tuple[Int64, ...] = _RETRY_DELAYS


class GroupRetryPolicy(Body):
    """How long a message waits before it is delivered again."""

    #: Either EXPONENTIAL or CUSTOMIZED.
    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body):
    """The subscriptions of a group that an administrator set."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(Body):
    """The configuration of a consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


class SubscriptionGroupWrapper(Body):
    """All consumer groups of a broker, as the file subscriptionGroup.json stores them."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    #: For each group and topic, the bits of the forbidden operations; 4.9 does not write it.
    forbidden_table: dict[str, dict[str, Int32]] | None = None


class SubscriptionGroupList(Body):
    """The consumer groups to create."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class ConsumerOffsetSerializeWrapper(Body):
    """The offsets of every group, as the file consumerOffset.json and a response store them.

    Version 4.9 writes only the offsets.
    """

    #: The logical offset, by "topic@group" and queue id.
    offset_table: dict[str, dict[Int32, Int64]] = field(default_factory=dict)
    data_version: DataVersion | None = None
    group_topic_map: dict[str, set[str]] | None = None


class LmqConsumerOffsetSerializeWrapper(ConsumerOffsetSerializeWrapper):
    """The same with the offsets of light queue groups, as in the file lmqConsumerOffset.json."""

    #: The logical offset in the topic's only queue, by "topic@group".
    lmq_offset_table: dict[str, Int64] = field(default_factory=dict)


class DelayOffsetSerializeWrapper(Body):
    """The offset of every delay level, as the file delayOffset.json stores them."""

    #: The logical offset, by delay level.
    offset_table: dict[Int32, Int64] = field(default_factory=dict)
    data_version: DataVersion | None = None


class OffsetWrapper(Body):
    """The progress of a group in one queue."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    #: When the last consumed message was stored, Unix ms.
    last_timestamp: Int64 = 0


class ConsumeStats(Body):
    """The progress of a group."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    #: Messages per second.
    consume_tps: float = 0.0


class ResetOffsetBody(Body):
    """The offsets at which a client has to continue."""

    offset_table: dict[MessageQueue, Int64] = field(default_factory=dict)


class GetConsumerStatusBody(Body):
    """The offsets that clients report."""

    message_queue_table: dict[MessageQueue, Int64] = field(default_factory=dict)
    #: The same offsets, by client id.
    consumer_table: dict[str, dict[MessageQueue, Int64]] = field(default_factory=dict)
