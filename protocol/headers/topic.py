"""Headers of topics and subscription groups (17, 202, 207, 208, 215, 300, 303, 343-352).

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
    """Create a topic or change it."""

    topic: str
    #: The topic it is modelled on; Apache's broker only asks that it is given.
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    #: Bits: 4 read, 2 write, 1 inherit.
    perm: Int32
    topic_filter_type: Literal["SINGLE_TAG", "MULTI_TAG"]
    topic_sys_flag: Int32 | None = None
    order: bool = False
    #: "+name=value,-name": attributes to set and to drop.
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(CommandHeader):
    """Delete a topic with its messages."""

    topic: str


class GetTopicConfigRequestHeader(CommandHeader):
    """How is a topic set up?"""

    topic: str


class GetTopicStatsInfoRequestHeader(CommandHeader):
    """Which offsets do a topic's queues have?"""

    topic: str


class QueryTopicConsumeByWhoRequestHeader(CommandHeader):
    """Which groups consume a topic?"""

    topic: str


class GetConsumeStatsRequestHeader(CommandHeader):
    """How far has a group come, in one topic, in several or in all?"""

    consumer_group: str
    topic: str | None = None
    #: Topics joined by ";"; when given, ``topic`` does not count.
    topic_list: str | None = None


class DeleteSubscriptionGroupRequestHeader(CommandHeader):
    """Delete a group."""

    group_name: str
    clean_offset: bool = False


class GetSubscriptionGroupConfigRequestHeader(CommandHeader):
    """How is a group set up?"""

    group: str


class QueryConsumeTimeSpanRequestHeader(CommandHeader):
    """From when to when are a topic's messages, and at which is a group?"""

    topic: str
    group: str


class QueryTopicsByConsumerRequestHeader(CommandHeader):
    """Which topics did a group ever consume?"""

    group: str


class QuerySubscriptionByConsumerRequestHeader(CommandHeader):
    """What does a group want of a topic?"""

    group: str
    topic: str | None = None
