"""Headers for sending, returning, replying to and recalling (10, 310, 320, 36, 324-326, 370).

Source: SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
ConsumerSendMsgBackRequestHeader, ReplyMessageRequestHeader, RecallMessage* @5.3.3.
"""

from __future__ import annotations

import msgspec

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["ConsumerSendMsgBackRequestHeader", "RecallMessageRequestHeader",
           "RecallMessageResponseHeader", "RecallRefusedResponseHeader",
           "ReplyMessageRequestHeader", "SendMessageRequestHeader", "SendMessageRequestHeaderV2",
           "SendMessageResponseHeader", "SendRefusedResponseHeader"]


class SendMessageRequestHeader(CommandHeader):
    """Sends one message or one batch."""

    is_hot = True

    producer_group: str
    topic: str
    #: The topic whose settings an automatically created topic copies, usually TBW102.
    default_topic: str
    default_topic_queue_nums: Int32
    #: The queue; a negative number lets the broker choose one.
    queue_id: Int32
    sys_flag: Int32
    #: When the client made the message, Unix ms.
    born_timestamp: Int64
    flag: Int32
    #: The properties: name, 0x01, value, 0x02, repeated.
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class SendMessageRequestHeaderV2(SendMessageRequestHeader):
    """The same header with one-letter names on the wire; a handler reads both alike."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(default=None, name="i")
    reconsume_times: Int32 | None = msgspec.field(default=None, name="j")
    unit_mode: bool | None = msgspec.field(default=None, name="k")
    max_reconsume_times: Int32 | None = msgspec.field(default=None, name="l")
    batch: bool | None = msgspec.field(default=None, name="m")
    broker_name: str | None = msgspec.field(default=None, name="n")


class SendMessageResponseHeader(CommandHeader):
    """The location at which a message was stored."""

    #: The offset message id; for a batch, all ids joined by commas.
    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    #: Apache adds these two to the header's own fields; clients put them into trace records.
    msg_region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: bool | None = msgspec.field(default=None, name="TRACE_ON")


class SendRefusedResponseHeader(CommandHeader):
    """The header of the response when a send is refused."""

    msg_region: str = msgspec.field(name="MSG_REGION")
    trace_on: bool = msgspec.field(name="TRACE_ON")


class ConsumerSendMsgBackRequestHeader(CommandHeader):
    """A consumer returns a message that it could not process, to receive it later."""

    #: The commit log offset of the message, bytes.
    offset: Int64
    group: str
    #: 0: the broker chooses a level by the number of attempts; negative: no further attempts.
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class ReplyMessageRequestHeader(CommandHeader):
    """A reply message in the form that the broker pushes to the requesting client."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    #: "ip:port" of the replying client and of the broker.
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


class RecallMessageRequestHeader(CommandHeader):
    """Recalls a timed message before it is delivered."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(CommandHeader):
    """The message that was recalled."""

    msg_id: str
    #: Apache adds it to the header's own field.
    msg_region: str | None = msgspec.field(default=None, name="MSG_REGION")


class RecallRefusedResponseHeader(CommandHeader):
    """The header of the response when a recall is refused."""

    msg_region: str = msgspec.field(name="MSG_REGION")
