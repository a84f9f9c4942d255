"""Headers of requests about consumer offsets and queue bounds (14, 15, 29-32, 308, 314).

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
    """Request for the offset of a group in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    #: False: for a queue that was never consumed the response is QUERY_NOT_FOUND and not 0.
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(CommandHeader):
    """The first offset that the group has not consumed."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(CommandHeader):
    """Sets the offset of a group."""

    consumer_group: str
    topic: str
    #: If one of these two is missing, a dedicated error is returned.
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None


class SearchOffsetRequestHeader(CommandHeader):
    """Request for the offset of the message that was stored at a given time."""

    topic: str
    queue_id: Int32
    #: In Unix ms.
    timestamp: Int64
    #: "upper", in upper or lower case, requests the last of several equal times; any other value
    #: requests the first.
    boundary_type: str | None = None


class SearchOffsetResponseHeader(CommandHeader):
    """The offset that was found."""

    offset: Int64


class GetMaxOffsetRequestHeader(CommandHeader):
    """Request for the end of a queue."""

    topic: str
    queue_id: Int32
    #: False: includes messages that replicas have not confirmed yet.
    committed: bool = True


class GetMaxOffsetResponseHeader(CommandHeader):
    """The offset that the next message will get."""

    offset: Int64


class GetMinOffsetRequestHeader(CommandHeader):
    """Request for the beginning of a queue."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(CommandHeader):
    """The first offset that can be read."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(CommandHeader):
    """Request for the store time of the oldest message in a queue."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(CommandHeader):
    """The store time of the oldest message, Unix ms; -1 when there is no message."""

    timestamp: Int64


class QueryCorrectionOffsetHeader(CommandHeader):
    """Request for the smallest offset of all groups in each queue of a topic."""

    topic: str
    #: For a queue in which this group is the slowest, the response contains the greatest int64.
    compare_group: str
    #: The groups to ignore, separated by commas.
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(CommandHeader):
    """Copies the offsets of one group to another group."""

    src_group: str
    dest_group: str
    #: None or blank: all topics of the source group.
    topic: str | None = None
    #: True: includes topics to which the source group, while online, no longer subscribes.
    offline: bool = False
