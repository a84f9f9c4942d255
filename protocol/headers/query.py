"""Headers of requests that look up messages (12, 33, 321).

Source: QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader,
QueryConsumeQueueRequestHeader @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["QueryConsumeQueueRequestHeader", "QueryMessageRequestHeader",
           "QueryMessageResponseHeader", "ViewMessageRequestHeader"]


class QueryMessageRequestHeader(CommandHeader):
    """Request for messages with a key; the extra field ``_UNIQUE_KEY_QUERY`` marks a unique key."""

    topic: str
    key: str
    max_num: Int32
    #: In Unix ms; both ends are included.
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponseHeader(CommandHeader):
    """The progress of the index; the records are in the body."""

    #: In Unix ms.
    index_last_update_timestamp: Int64
    #: The commit log offset, bytes.
    index_last_update_phyoffset: Int64


class ViewMessageRequestHeader(CommandHeader):
    """Request for the message at a position of the commit log."""

    #: In bytes.
    offset: Int64
    topic: str | None = None


class QueryConsumeQueueRequestHeader(CommandHeader):
    """Request for raw entries of a consume queue."""

    topic: str | None = None
    queue_id: Int32 = 0
    #: The index of the first entry.
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None
