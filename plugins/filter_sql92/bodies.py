"""The format of the file consumerFilter.json.

Source: ConsumerFilterManager, FilterDataMapByTopic, ConsumerFilterData, BloomFilterData @5.3.3.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twistmq.broker.api.bodies import Body
from twistmq.broker.api.wire import Int32, Int64

__all__ = ["BloomFilterData", "ConsumerFilterData", "ConsumerFilterTable", "FilterDataMapByTopic"]

field: Final = msgspec.field


class BloomFilterData(Body):
    """The bits of one group and topic."""

    bit_num: Int32 = 0
    bit_pos: tuple[Int32, ...] = ()


class ConsumerFilterData(Body):
    """The filter of a group for a topic."""

    bloom_filter_data: BloomFilterData | None = None
    #: Unix ms; the filter was evaluated for messages that were stored after this time.
    born_time: Int64 = 0
    #: Version of the subscription.
    client_version: Int64 = 0
    consumer_group: str = ""
    #: Whether the group has no member; the file's value is not read.
    dead: bool = False
    #: The time at which the last member left, Unix ms; 0 while the group has members.
    dead_time: Int64 = 0
    expression: str = ""
    expression_type: str = ""
    topic: str = ""


class FilterDataMapByTopic(Body):
    """The filters of one topic by group."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str = ""


class ConsumerFilterTable(Body):
    """All filters by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = field(default_factory=dict)
