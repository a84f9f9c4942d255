"""Headers of pull requests (11, 361).

Source: PullMessageRequestHeader, PullMessageResponseHeader @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["PullForbiddenResponseHeader", "PullMessageRequestHeader",
           "PullMessageResponseHeader"]


class PullMessageRequestHeader(CommandHeader):
    """Request for messages of one queue from an offset on; it may wait for the next message.

    Apache's class marks three fields as required that its fast decoder reads as 0 when they are
    missing.
    """

    is_hot = True

    consumer_group: str
    topic: str
    queue_id: Int32
    #: The logical index in the consume queue.
    queue_offset: Int64
    max_msg_nums: Int32
    #: Bits: 1 commit_offset is valid, 2 may be held, 4 subscription is given, 8 class filter.
    sys_flag: Int32
    commit_offset: Int64 = 0
    #: How long the broker may hold the request, ms.
    suspend_timeout_millis: Int64 = 0
    sub_version: Int64 = 0
    subscription: str | None = None
    #: TAG when absent, because clients before 4.1 do not send it.
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    #: Spelt as on the wire.
    proxy_froward_client_id: str | None = None


class PullMessageResponseHeader(CommandHeader):
    """Where to continue; the messages are in the body."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class PullForbiddenResponseHeader(CommandHeader):
    """The origin of a refusal: 1 broker, 2 group, 3 topic, 4 broadcasting, 5 subscription."""

    forbidden_type: Int32
