"""Responses to tools about a broker's clients, groups and statistics, and commands to clients.

Source: ProducerInfo, ProducerTableInfo, QueueTimeSpan, QueryConsumeTimeSpanBody,
QueryCorrectionOffsetBody, QuerySubscriptionResponseBody, GroupForbidden, ConsumeStatsList,
BrokerStatsItem, BrokerStatsData, MessageQueueForC, ResetOffsetBodyForC, HARuntimeInfo @5.3.3.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Self

import msgspec

from twistmq.protocol.bodies.body import Body, MessageQueue
from twistmq.protocol.bodies.client import SubscriptionData
from twistmq.protocol.bodies.group import ConsumeStats
from twistmq.protocol.header import Int32, Int64

__all__ = ["BrokerStatsData", "BrokerStatsItem", "ConsumeStatsList", "GroupForbidden",
           "HAClientRuntimeInfo", "HAConnectionRuntimeInfo", "HARuntimeInfo",
           "MessageQueueForC", "ProducerInfo", "ProducerTableInfo", "QueryConsumeTimeSpanBody",
           "QueryCorrectionOffsetBody", "QuerySubscriptionResponseBody", "QueueTimeSpan",
           "ResetOffsetBodyForC"]

field: Final = msgspec.field


class ProducerInfo(Body):
    """One client of a producer group."""

    client_id: str | None = None
    #: "/ip:port", in Java's form.
    remote_ip: str | None = field(default=None, name="remoteIP")
    language: str | None = None
    version: Int32 = 0
    #: The time of its last heartbeat, Unix ms.
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(Body):
    """The producers of a broker, by producer group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class QueueTimeSpan(Body):
    """The times of the messages in a queue, and the position of a group; Unix ms, -1: unknown."""

    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    #: The store time of the last message that the group consumed.
    consume_time_stamp: Int64 = 0
    #: How long the next message has been waiting, ms.
    delay_time: Int64 = 0
    #: The same times as formatted text.
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None

    def with_letters(self) -> Self:
        """Fill in the formatted times, in the local time zone."""
        self.min_time_stamp_str = _letters(self.min_time_stamp)
        self.max_time_stamp_str = _letters(self.max_time_stamp)
        self.consume_time_stamp_str = _letters(self.consume_time_stamp)
        return self


def _letters(time_ms: int) -> str:
    """Format a time as Java's tools do."""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d#%H:%M:%S}:{milliseconds:03}"


class QueryConsumeTimeSpanBody(Body):
    """The times of all queues of a topic."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class QueryCorrectionOffsetBody(Body):
    """The smallest offset of all groups, by queue."""

    correction_offsets: dict[Int32, Int64] = field(default_factory=dict)


class QuerySubscriptionResponseBody(Body):
    """The subscription of an online group to a topic."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None


class GroupForbidden(Body):
    """Whether a group may consume a topic."""

    topic: str | None = None
    group: str | None = None
    readable: bool | None = None


class ConsumeStatsList(Body):
    """The progress of every group in each of its topics."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    #: The number of messages that are not consumed, and of those the number already pulled.
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class BrokerStatsItem(Body):
    """The counts of one time window."""

    sum: Int64 = 0
    #: Per second.
    tps: float = 0.0
    #: Per request.
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """The counts of the last minute, hour and day."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class MessageQueueForC(Body):
    """A queue and the offset from which a C++ client must continue."""

    topic: str
    broker_name: str
    queue_id: Int32 = 0
    offset: Int64 = 0


class ResetOffsetBodyForC(Body):
    """The offsets from which a C++ client must continue; it cannot read maps with object keys."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


class HAConnectionRuntimeInfo(Body):
    """The progress of a slave as its master knows it; offsets are bytes of the commit log."""

    #: The address of its connection, "host:port".
    addr: str | None = None
    slave_ack_offset: Int64 = 0
    #: How many bytes the slave lags.
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    #: The offset at which the last transfer began.
    transfer_from_where: Int64 = 0


class HAClientRuntimeInfo(Body):
    """The progress of a slave as it knows itself; on a master the values are the initial ones."""

    #: Whether the slave is connected to its master; None if unknown.
    activated: bool | None = None
    #: Unix ms.
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str | None = None
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HARuntimeInfo(Body):
    """The replication state of a broker."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    #: The slaves of a master.
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    #: In bytes.
    master_commit_log_max_offset: Int64 = 0
