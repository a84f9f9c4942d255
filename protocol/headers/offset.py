"""Headers of consumer offsets and queue bounds (14, 15, 29-32, 308, 314).

All offsets are logical indices in a consume queue. Source: QueryConsumerOffset*,
UpdateConsumerOffset*, SearchOffset*, GetMaxOffset*, GetMinOffset*, GetEarliestMsgStoretime*,
QueryCorrectionOffsetHeader, CloneGroupOffsetRequestHeader @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["CloneGroupOffsetRequestHeader", "GetEarliestMsgStoretimeRequestHeader",
           "GetEarliestMsgStoretimeResponseHeader", "GetMaxOffsetRequestHeader",
           "GetMaxOffsetResponseHeader", "GetMinOffsetRequestHeader",
           "GetMinOffsetResponseHeader", "QueryConsumerOffsetRequestHeader",
           "QueryConsumerOffsetResponseHeader", "QueryCorrectionOffsetHeader",
           "SearchOffsetRequestHeader", "SearchOffsetResponseHeader",
           "UpdateConsumerOffsetRequestHeader"]


class QueryConsumerOffsetRequestHeader(CommandHeader):
    """How far has a group come in a queue?"""

    consumer_group: str
    topic: str
    queue_id: Int32
    #: False: a queue that was never consumed answers QUERY_NOT_FOUND, not 0.
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(CommandHeader):
    """The first offset the group has not consumed."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(CommandHeader):
    """A group has come this far."""

    consumer_group: str
    topic: str
    #: These two have a refusal of their own when they are missing.
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None


class SearchOffsetRequestHeader(CommandHeader):
    """Which message of a queue was stored at a time?"""

    topic: str
    queue_id: Int32
    #: Unix ms.
    timestamp: Int64
    #: "upper" in any case asks for the last of equal times, all else for the first.
    boundary_type: str | None = None


class SearchOffsetResponseHeader(CommandHeader):
    """The offset found."""

    offset: Int64


class GetMaxOffsetRequestHeader(CommandHeader):
    """Where does a queue end?"""

    topic: str
    queue_id: Int32
    #: False: also what is not yet confirmed by replicas.
    committed: bool = True


class GetMaxOffsetResponseHeader(CommandHeader):
    """The offset the next message will get."""

    offset: Int64


class GetMinOffsetRequestHeader(CommandHeader):
    """Where does a queue begin?"""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(CommandHeader):
    """The first offset that can be read."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(CommandHeader):
    """When was the oldest message of a queue stored?"""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(CommandHeader):
    """The store time of the oldest message, Unix ms; -1 without any."""

    timestamp: Int64


class QueryCorrectionOffsetHeader(CommandHeader):
    """How far has the slowest group come in each queue of a topic?"""

    topic: str
    #: A queue in which this group is behind all others answers the greatest int64.
    compare_group: str
    #: Groups, separated by commas, that do not count.
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(CommandHeader):
    """Let a group begin where another has come to."""

    src_group: str
    dest_group: str
    #: None or blank: in all topics of the first.
    topic: str | None = None
    #: True: also topics that the first, being online, no longer subscribes to.
    offline: bool = False
