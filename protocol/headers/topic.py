"""Headers of requests about topics and groups (17, 202, 207, 208, 215, 300, 303, 343-352).

Source: the classes of these names in remoting/protocol/header @5.3.3.
"""

from __future__ import annotations

from typing import Literal

from twistmq.protocol.header import CommandHeader, Int32

__all__ = ["CreateTopicRequestHeader", "DeleteSubscriptionGroupRequestHeader",
           "DeleteTopicRequestHeader", "GetConsumeStatsRequestHeader",
           "GetSubscriptionGroupConfigRequestHeader", "GetTopicConfigRequestHeader",
           "GetTopicStatsInfoRequestHeader", "QueryConsumeTimeSpanRequestHeader",
           "QuerySubscriptionByConsumerRequestHeader", "QueryTopicConsumeByWhoRequestHeader",
           "QueryTopicsByConsumerRequestHeader"]


class CreateTopicRequestHeader(CommandHeader):
    """Creates or changes a topic."""

    topic: str
    #: The topic that serves as a model; Apache's broker only requires that it is given.
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    #: The permission bits: 4 read, 2 write, 1 inherit.
    perm: Int32
    topic_filter_type: Literal["SINGLE_TAG", "MULTI_TAG"]
    topic_sys_flag: Int32 | None = None
    order: bool = False
    #: "+name=value,-name": the attributes to set and to remove.
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(CommandHeader):
    """Deletes a topic with its messages."""

    topic: str


class GetTopicConfigRequestHeader(CommandHeader):
    """Request for the configuration of a topic."""

    topic: str


class GetTopicStatsInfoRequestHeader(CommandHeader):
    """Request for the offsets of all queues of a topic."""

    topic: str


class QueryTopicConsumeByWhoRequestHeader(CommandHeader):
    """Request for the groups that consume a topic."""

    topic: str


class GetConsumeStatsRequestHeader(CommandHeader):
    """Request for the progress of a group, in one topic, in several or in all."""

    consumer_group: str
    topic: str | None = None
    #: Topics joined by ";"; when given, ``topic`` is ignored.
    topic_list: str | None = None


class DeleteSubscriptionGroupRequestHeader(CommandHeader):
    """Deletes a consumer group."""

    group_name: str
    clean_offset: bool = False


class GetSubscriptionGroupConfigRequestHeader(CommandHeader):
    """Request for the configuration of a consumer group."""

    group: str


class QueryConsumeTimeSpanRequestHeader(CommandHeader):
    """Request for the time range of the messages in a topic, and the position of a group in it."""

    topic: str
    group: str


class QueryTopicsByConsumerRequestHeader(CommandHeader):
    """Request for the topics that a group has ever consumed."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(CommandHeader):
    """Request for the subscription of a group to a topic."""

    group: str
    topic: str | None = None
