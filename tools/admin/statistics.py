"""Commands that show figures by topic and group.

Source: StatsAllSubCommand, BrokerConsumeStatsSubCommad @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twistmq.protocol.bodies import BrokerStatsData, ConsumeStatsList
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    ViewBrokerStatsDataRequestHeader,
)
from twistmq.protocol.topic_names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from twistmq.tools.admin.groups import consume_stats
from twistmq.tools.admin.rows import Millis, Row
from twistmq.tools.admin.session import Broker, Session
from twistmq.tools.admin.topics import groups_of

__all__ = ["PUT_NUMS", "broker_consume_stats", "day_sum", "figures", "minute_rate", "stats_all"]

#: The names of the tables of figures.
PUT_NUMS: Final = "TOPIC_PUT_NUMS"
_GET_NUMS: Final = "GROUP_GET_NUMS"


def figures(session: Session, broker: Broker, table: str, key: str) -> BrokerStatsData:
    """Return the figures of the last minute, hour and day; zeros if nothing was counted."""
    header = ViewBrokerStatsDataRequestHeader(stats_name=table, stats_key=key)
    try:
        body = session.ask(broker.address, RequestCode.VIEW_BROKER_STATS_DATA, header).body
    except RequestRefused:
        return BrokerStatsData()
    return BrokerStatsData.decode_reply(body)


def minute_rate(stats: BrokerStatsData) -> float:
    """Return the number of events a second in the last minute."""
    return stats.stats_minute.tps


def day_sum(stats: BrokerStatsData) -> int:
    """Return the number of events in the last day, or since counting began."""
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum


def stats_all(session: Session, *, topic: str | None, active_only: bool) -> Iterator[Row]:
    """Show the rates of messages into topics and out to groups."""
    for each in session.topics() if topic is None else [topic]:
        if each.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
            continue
        try:
            yield from _of_topic(session, each, active_only)
        except BrokerError as error:
            if topic is not None:
                raise
            session.failures.append(str(error))


def _of_topic(session: Session, topic: str, active_only: bool) -> Iterator[Row]:
    brokers = session.brokers_of(topic)
    in_stats = [figures(session, broker, PUT_NUMS, topic) for broker in brokers]
    in_rate, in_count = sum(map(minute_rate, in_stats)), sum(map(day_sum, in_stats))
    groups = groups_of(session, topic)
    for group in groups:
        out_stats = [figures(session, broker, _GET_NUMS, f"{topic}@{group}") for broker in brokers]
        out_count = sum(map(day_sum, out_stats))
        if active_only and not (in_count or out_count):
            continue
        try:
            waiting = sum(offsets.broker_offset - offsets.consumer_offset for offsets
                          in consume_stats(session, group, topic).offset_table.values())
        except RequestRefused:
            waiting = 0
        yield (topic, group, max(waiting, 0), in_rate, sum(map(minute_rate, out_stats)), in_count,
               out_count)
    if not groups and (in_count or not active_only):
        yield topic, None, 0, in_rate, None, in_count, None


def broker_consume_stats(
    session: Session, *, broker: str, timeout_ms: int, level: int, order: bool
) -> Iterator[Row]:
    """Show the offsets of all groups of a broker with at least the given backlog."""
    reply = session.ask(broker, RequestCode.GET_BROKER_CONSUME_STATS,
                        GetConsumeStatsInBrokerHeader(is_order=order), timeout_s=timeout_ms / 1000)
    stats = ConsumeStatsList.decode_reply(reply.body)
    rows = []
    for groups in stats.consume_stats_list:
        for group, tables in groups.items():
            for queue, offsets in (pair for each in tables for pair in each.offset_table.items()):
                difference = offsets.broker_offset - offsets.consumer_offset
                if difference >= level and offsets.last_timestamp > 0:
                    rows.append((queue.topic, group, queue.broker_name, queue.queue_id,
                                 offsets.broker_offset, offsets.consumer_offset, difference,
                                 Millis(offsets.last_timestamp)))
    yield from sorted(rows)
