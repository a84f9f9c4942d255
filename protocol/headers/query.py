"""Headers of looking at messages (12, 33, 321).

Source: QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader,
QueryConsumeQueueRequestHeader @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["QueryConsumeQueueRequestHeader", "QueryMessageRequestHeader",
           "QueryMessageResponseHeader", "ViewMessageRequestHeader"]


class QueryMessageRequestHeader(CommandHeader):
    """Messages of a topic with a key. A unique key is marked by ``_UNIQUE_KEY_QUERY`` beside."""

    topic: str
    key: str
    max_num: Int32
    #: Unix ms, both ends included.
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponseHeader(CommandHeader):
    """How far the index has come; the records are the body."""

    #: Unix ms.
    index_last_update_timestamp: Int64
    #: Commit-log offset, bytes.
    index_last_update_phyoffset: Int64


class ViewMessageRequestHeader(CommandHeader):
    """The message at a place of the commit log."""

    #: Bytes.
    offset: Int64
    topic: str | None = None


class QueryConsumeQueueRequestHeader(CommandHeader):
    """Entries of a consume queue, as they are."""

    topic: str | None = None
    queue_id: Int32 = 0
    #: The first entry.
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None
