"""The parts of which a queue of a static topic consists, and their effect on offsets.

A static topic has a fixed number of logical queues, numbered across all brokers. Each logical queue
is a list of parts, oldest first. A part is a physical queue of one broker, starting at its offset
0, and it begins at a logical offset:

    logical queue 3     broker-a queue 0            broker-b queue 2
                        |0 ...                      |10000 ...
                        (part of generation 0)      (generation 1, where messages are sent to)

Messages are sent to the last part, and its broker leads the queue. Between two parts there may be
offsets without a message. A part that was just appended has the logical offset -1, until the end
of the previous part is known. This module sends no requests: it only computes offsets.

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
#: The first part of the broker name that clients use for a logical queue. Source: MixAll.
LOGICAL_BROKER_PREFIX: Final = "__syslo__"
_LATEST: Final = 2**63 - 1


def logical_broker_name(scope: str) -> str:
    """Return the broker name that clients use for the queues of static topics."""
    return LOGICAL_BROKER_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)


class LogicQueueMappingItem(Body):
    """One part of a logical queue. An item is never changed, only replaced."""

    #: Generation: the later of two parts of a queue has the greater number.
    gen: Int32 = 0
    #: The id of the physical queue.
    queue_id: Int32 = 0
    bname: str = ""
    #: The start in the logical queue; -1 if it is not decided yet.
    logic_offset: Int64 = 0
    #: The start in the physical queue.
    start_offset: Int64 = 0
    #: The end in the physical queue, exclusive; -1 if it is unknown.
    end_offset: Int64 = -1
    #: Unix ms; -1 if it is unknown, which is always the case at present.
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1

    @property
    def is_decided(self) -> bool:
        """Whether the start in the logical queue is known."""
        return self.logic_offset >= 0

    @property
    def is_end_decided(self) -> bool:
        """Whether the end is known and the part is not empty."""
        return self.end_offset > self.start_offset

    @property
    def offset_delta(self) -> int:
        """The difference between a logical offset and its physical offset."""
        return self.logic_offset - self.start_offset

    def logical(self, physical: int) -> int:
        """Return the logical offset of a physical one, at least the start of this part."""
        return min(self.logic_offset + max(physical - self.start_offset, 0), _LATEST)

    def logical_inside(self, physical: int) -> int:
        """Return the logical offset, at most the end of this part; -1 while it is not decided."""
        if not self.is_decided:
            return -1
        if self.start_offset <= self.end_offset < physical:
            physical = self.end_offset
        return self.logical(physical)

    def physical(self, logical: int) -> int:
        """Return the physical offset of a logical one; it is meaningless outside of this part.

        The result is limited to a Java long, because clients can send any offset, and the result
        is stored in tables and sent in requests.
        """
        return min(logical - self.logic_offset + self.start_offset, _LATEST)

    @property
    def logical_end(self) -> int:
        """The end in the logical queue, or the start if the end is unknown."""
        return self.logic_offset + max(self.end_offset - self.start_offset, 0)


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """The logical queues of a static topic that a broker leads or led, with all their parts."""

    #: The parts of each logical queue, by its number.
    hosted_queues: dict[Int32, list[LogicQueueMappingItem]] = msgspec.field(default_factory=dict)

    def leads(self, items: Sequence[LogicQueueMappingItem] | None) -> bool:
        """Whether this broker leads a queue that consists of these parts."""
        return bool(items) and items[-1].bname == self.bname  # type: ignore[index]

    def led(self) -> dict[int, int]:
        """Return the physical queues to which messages are sent, by logical queue number."""
        return {number: items[-1].queue_id for number, items in self.hosted_queues.items()
                if self.leads(items)}

    def info(self) -> TopicQueueMappingInfo:
        """Return the part of the mapping that is registered with name servers."""
        return TopicQueueMappingInfo(topic=self.topic, total_queues=self.total_queues,
                                     bname=self.bname, epoch=self.epoch, curr_id_map=self.led())


class TopicQueueMappingSerializeWrapper(Body):
    """All static topics of a broker, as saved in the file topicQueueMapping.json."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = msgspec.field(
        default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TopicConfigAndQueueMapping(TopicConfig):
    """The configuration of a topic on one broker, with its logical queues if it is static."""

    mapping_detail: TopicQueueMappingDetail | None = None


def find_item(
    items: Sequence[LogicQueueMappingItem], logical: int
) -> LogicQueueMappingItem | None:
    """Return the part that contains a logical offset, or the first part for a smaller offset.

    :returns: None if no part is decided.
    """
    decided = [item for item in items if item.is_decided]
    for item in reversed(decided):
        if logical >= item.logic_offset:
            return item
    return decided[0] if decided else None


def latest_item(items: Sequence[LogicQueueMappingItem]) -> LogicQueueMappingItem | None:
    """Return the last part that is decided."""
    return find_item(items, _LATEST)


def next_item(
    items: Sequence[LogicQueueMappingItem], current: LogicQueueMappingItem
) -> LogicQueueMappingItem | None:
    """Return the part after another one; None after the last, or if it is not decided."""
    for item, following in pairwise(items):
        if item.gen == current.gen:
            return following if following.is_decided else None
    return None
