"""Headers of pop requests (200050-200055, 200151).

Their codes do not fit the int16 of a binary header, so they are sent only in JSON headers (trap 2
of the protocol notes). Times are in ms. Source: PopMessage*, PeekMessage*, AckMessage*,
ChangeInvisibleTime*, Notification*, PollingInfo* @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["AckMessageRequestHeader", "ChangeInvisibleTimeRequestHeader",
           "ChangeInvisibleTimeResponseHeader", "NotificationRequestHeader",
           "NotificationResponseHeader", "PeekMessageRequestHeader", "PollingInfoRequestHeader",
           "PollingInfoResponseHeader", "PopMessageRequestHeader", "PopMessageResponseHeader"]


class PopMessageRequestHeader(CommandHeader):
    """Request for messages of a topic, which become invisible to the other members for a time."""

    consumer_group: str
    topic: str
    #: The queue; -1 stands for any queue.
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    #: How long the broker may hold the request, ms.
    poll_time: Int64
    #: Where a new group starts: 0 at the oldest message, 1 at the newest.
    init_mode: Int32
    #: When the client sent the request; 0: the broker uses the time at which the request arrives.
    born_time: Int64 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(CommandHeader):
    """The data that is needed to acknowledge the popped messages."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequestHeader(CommandHeader):
    """Request for messages without making them invisible."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class AckMessageRequestHeader(CommandHeader):
    """Acknowledges one popped message."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


class ChangeInvisibleTimeRequestHeader(CommandHeader):
    """Extends the time for which one popped message is invisible."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


class ChangeInvisibleTimeResponseHeader(CommandHeader):
    """The data that is now needed to acknowledge the message."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequestHeader(CommandHeader):
    """Request for a notification when there is a message to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 = 0
    order: bool = False
    attempt_id: str | None = None
    #: The group's filter, since 5.5.0; None for every message.
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(CommandHeader):
    """Whether there is a message to pop."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(CommandHeader):
    """Request for the number of pop requests that wait on a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(CommandHeader):
    """The number of waiting pop requests."""

    polling_num: Int32
