"""Which parts a queue of a static topic is made of, and what that does to offsets.

A static topic has a fixed number of logical queues, numbered over all brokers. Each is a list of
parts, oldest first; a part is a physical queue of one broker, from its offset 0 on, and begins at a
logical offset:

    logical queue 3     broker-a queue 0            broker-b queue 2
                        |0 ...                      |10000 ...
                        (part of generation 0)      (generation 1, where messages are sent to)

The last part is where messages are sent to; its broker leads the queue. Between two parts there may
be offsets that no message has. A part that was just put at the end has the logical offset -1, until
it is known where the one before it ended. This module sends no request: offsets go in and come out.

Source: LogicQueueMappingItem, TopicQueueMappingDetail, TopicQueueMappingInfo,
TopicQueueMappingUtils, TopicQueueMappingSerializeWrapper, TopicConfigAndQueueMapping @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from twistmq.broker.api.bodies import Body, DataVersion, TopicConfig, TopicQueueMappingInfo
from twistmq.broker.api.wire import Int32, Int64

__all__ = [
    "GLOBAL_SCOPE", "LOGICAL_BROKER_PREFIX", "LogicQueueMappingItem", "TopicConfigAndQueueMapping",
    "TopicQueueMappingDetail", "TopicQueueMappingSerializeWrapper", "find_item", "latest_item",
    "logical_broker_name", "next_item",
]

GLOBAL_SCOPE: Final = "__global__"
#: The broker name that clients use for a logical queue. Source: MixAll.
LOGICAL_BROKER_PREFIX: Final = "__syslo__"
_LATEST: Final = 2**63 - 1


def logical_broker_name(scope: str) -> str:
    """The broker name that clients have for the queues of static topics."""
    return LOGICAL_BROKER_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)


class LogicQueueMappingItem(Body):
    """One part of a logical queue. It is never changed, only replaced."""

    #: Generation: of two parts of a queue the later has the greater.
    gen: Int32 = 0
    #: Of the physical queue.
    queue_id: Int32 = 0
    bname: str = ""
    #: Where it begins in the logical queue; -1: that is not decided yet.
    logic_offset: Int64 = 0
    #: Where it begins in the physical queue.
    start_offset: Int64 = 0
    #: Its end in the physical queue, exclusive; -1: unknown.
    end_offset: Int64 = -1
    #: Unix ms; -1: unknown, as always up to now.
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1

    @property
    def is_decided(self) -> bool:
        """Whether it is known where it begins in the logical queue."""
        return self.logic_offset >= 0

    @property
    def is_end_decided(self) -> bool:
        """Whether it is known where it ends, and that it holds something."""
        return self.end_offset > self.start_offset

    @property
    def offset_delta(self) -> int:
        """The difference of a logical offset and its physical one."""
        return self.logic_offset - self.start_offset

    def logical(self, physical: int) -> int:
        """The logical offset of a physical one, at least where this part begins."""
        return min(self.logic_offset + max(physical - self.start_offset, 0), _LATEST)

    def logical_inside(self, physical: int) -> int:
        """The logical offset, at most the end of this part; -1 while it is not decided."""
        if not self.is_decided:
            return -1
        if self.start_offset <= self.end_offset < physical:
            physical = self.end_offset
        return self.logical(physical)

    def physical(self, logical: int) -> int:
        """The physical offset of a logical one; outside of this part the result has no meaning.

        It is a Java long: clients send any offset, and it goes into tables and requests.
        """
        return min(logical - self.logic_offset + self.start_offset, _LATEST)

    @property
    def logical_end(self) -> int:
        """Its end in the logical queue, or its begin when the end is unknown."""
        return self.logic_offset + max(self.end_offset - self.start_offset, 0)


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """The logical queues of a static topic that a broker leads, or led, each with its parts."""

    #: Parts by number of the logical queue.
    hosted_queues: dict[Int32, list[LogicQueueMappingItem]] = msgspec.field(default_factory=dict)

    def leads(self, items: Sequence[LogicQueueMappingItem] | None) -> bool:
        """Whether a queue of these parts is led by this broker."""
        return bool(items) and items[-1].bname == self.bname  # type: ignore[index]

    def led(self) -> dict[int, int]:
        """The physical queues that messages are sent to, by number of the logical one."""
        return {number: items[-1].queue_id for number, items in self.hosted_queues.items()
                if self.leads(items)}

    def info(self) -> TopicQueueMappingInfo:
        """The facts of it that are registered with name servers."""
        return TopicQueueMappingInfo(topic=self.topic, total_queues=self.total_queues,
                                     bname=self.bname, epoch=self.epoch, curr_id_map=self.led())


class TopicQueueMappingSerializeWrapper(Body):
    """All static topics of a broker; the file topicQueueMapping.json holds it."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = msgspec.field(
        default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TopicConfigAndQueueMapping(TopicConfig):
    """How a topic is set up on one broker, and its logical queues there when it is static."""

    mapping_detail: TopicQueueMappingDetail | None = None


def find_item(
    items: Sequence[LogicQueueMappingItem], logical: int
) -> LogicQueueMappingItem | None:
    """The part that has a logical offset, or the first when it lies before all.

    :returns: None when no part is decided.
    """
    decided = [item for item in items if item.is_decided]
    for item in reversed(decided):
        if logical >= item.logic_offset:
            return item
    return decided[0] if decided else None


def latest_item(items: Sequence[LogicQueueMappingItem]) -> LogicQueueMappingItem | None:
    """The last part that is decided."""
    return find_item(items, _LATEST)


def next_item(
    items: Sequence[LogicQueueMappingItem], current: LogicQueueMappingItem
) -> LogicQueueMappingItem | None:
    """The part after one; None after the last, or when it is not decided."""
    for item, following in pairwise(items):
        if item.gen == current.gen:
            return following if following.is_decided else None
    return None
