"""Headers of popping (200050-200055, 200151).

Their codes do not fit a binary header's int16, so they come in JSON headers only (trap 2 of the
protocol notes). Times are ms. Source: PopMessage*, PeekMessage*, AckMessage*,
ChangeInvisibleTime*, Notification*, PollingInfo* @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["AckMessageRequestHeader", "ChangeInvisibleTimeRequestHeader",
           "ChangeInvisibleTimeResponseHeader", "NotificationRequestHeader",
           "NotificationResponseHeader", "PeekMessageRequestHeader", "PollingInfoRequestHeader",
           "PollingInfoResponseHeader", "PopMessageRequestHeader", "PopMessageResponseHeader"]


class PopMessageRequestHeader(CommandHeader):
    """Messages of a topic for a group, invisible to its other members for a time."""

    consumer_group: str
    topic: str
    #: -1: any queue.
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    #: How long the broker may hold the request.
    poll_time: Int64
    #: Where a new group starts: 0 at the oldest message, 1 at the newest.
    init_mode: Int32
    #: When the client sent it; 0: the broker takes the time it comes.
    born_time: Int64 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(CommandHeader):
    """The data that an acknowledgement of the popped messages needs."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequestHeader(CommandHeader):
    """Messages without taking them."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class AckMessageRequestHeader(CommandHeader):
    """One popped message is consumed."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


class ChangeInvisibleTimeRequestHeader(CommandHeader):
    """Hide one popped message for longer."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


class ChangeInvisibleTimeResponseHeader(CommandHeader):
    """The data that its acknowledgement needs now."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequestHeader(CommandHeader):
    """Tell when there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 = 0
    order: bool = False
    attempt_id: str | None = None


class NotificationResponseHeader(CommandHeader):
    """Whether there is."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(CommandHeader):
    """How many pops of a queue are waiting?"""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(CommandHeader):
    """So many."""

    polling_num: Int32
