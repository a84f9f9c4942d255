"""Commands of brokers and clusters.

Source: the classes of tools/command/broker and tools/command/cluster @5.3.3.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from twistmq.protocol.bodies import HARuntimeInfo, KVTable
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.admin import ResetMasterFlushOffsetHeader
from twistmq.tools.admin.files import read_settings
from twistmq.tools.admin.rows import Cell, Result, Row, Table
from twistmq.tools.admin.session import AdminError, Broker, Session

__all__ = ["broker_settings", "broker_status", "clean_expired_queues", "clean_unused_topics",
           "cluster_list", "delete_expired_logs", "get_settings", "replication_status",
           "reset_flush_offset", "runtime_table", "update_settings"]


def runtime_table(session: Session, broker: Broker) -> dict[str, str]:
    """Return the figures of a broker."""
    return KVTable.decode(
        session.ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO).body).table


def broker_settings(session: Session, broker: Broker) -> dict[str, str]:
    """Return the settings of a broker."""
    return read_settings(session.ask(broker.address, RequestCode.GET_BROKER_CONFIG).body)


def broker_status(session: Session, *, broker: str | None, cluster: str | None) -> Iterator[Row]:
    """Show the figures of brokers."""
    targets = session.brokers(broker, cluster, slaves=True)
    for target, table in session.for_each(targets, lambda each: runtime_table(session, each)):
        assert isinstance(table, dict)
        for name, text in sorted(table.items()):
            yield target.name, target.address, name, text


def get_settings(session: Session, *, broker: str | None, cluster: str | None) -> Iterator[Row]:
    """Show the settings of brokers."""
    targets = session.brokers(broker, cluster, slaves=True)
    for target, settings in session.for_each(targets, lambda each: broker_settings(session, each)):
        assert isinstance(settings, dict)
        for name, text in sorted(settings.items()):
            yield target.name, target.address, name, text


def update_settings(
    session: Session, *, broker: str | None, cluster: str | None, slaves: bool, key: str,
    value: str,
) -> Iterator[Row]:
    """Change a setting of brokers."""
    if not key.strip():
        raise AdminError("-k must name a setting")
    body = f"{key}={value}".encode()
    targets = session.brokers(broker, cluster, slaves=slaves)
    for target, _ in session.for_each(targets, lambda each: session.ask(
            each.address, RequestCode.UPDATE_BROKER_CONFIG, None, body)):
        yield target.name, target.address, key, value


def _clean(
    session: Session, code: RequestCode, broker: str | None, cluster: str | None
) -> Iterator[Row]:
    for target, _ in session.for_each(session.brokers(broker, cluster),
                                  lambda each: session.ask(each.address, code)):
        yield target.name, target.address, True


def clean_expired_queues(
    session: Session, *, broker: str | None, cluster: str | None
) -> Iterator[Row]:
    """Remove files of consume queues whose messages no longer exist."""
    return _clean(session, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)


def clean_unused_topics(
    session: Session, *, broker: str | None, cluster: str | None
) -> Iterator[Row]:
    """Remove queues of topics that no longer exist."""
    return _clean(session, RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)


def delete_expired_logs(
    session: Session, *, broker: str | None, cluster: str | None
) -> Iterator[Row]:
    """Remove files of the commit log that are too old."""
    return _clean(session, RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)


def reset_flush_offset(session: Session, *, broker: str, offset: int) -> Iterator[Row]:
    """Set the flushed offset of the master on a slave."""
    session.ask(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET,
                ResetMasterFlushOffsetHeader(master_flush_offset=offset))
    yield broker, offset


def replication_status(
    session: Session, *, broker: str | None, cluster: str | None
) -> Iterator[Row]:
    """Show the replication lag of slaves.

    There is a row for each connection, and for each broker without connections.

    A slave knows the last reported end of the master's log. Without its master, or if that end is
    before its own end, it does not know its lag.
    """
    targets = session.brokers(broker, cluster, slaves=True)
    for target, info in session.for_each(targets, lambda each: HARuntimeInfo.decode(
            session.ask(each.address, RequestCode.GET_BROKER_HA_STATUS).body)):
        assert isinstance(info, HARuntimeInfo)
        if not info.master:
            own = info.ha_client_runtime_info
            master_end = own.master_flush_offset
            is_known = own.activated and master_end > 0 and master_end >= own.max_offset
            yield (target.name, target.address, "slave", own.max_offset, own.master_addr,
                   master_end if is_known else None,
                   master_end - own.max_offset if is_known else None,
                   own.activated, own.transferred_byte_in_second)
            continue
        end = info.master_commit_log_max_offset
        for each in info.ha_connection_info:
            yield (target.name, target.address, "master", end, each.addr, each.slave_ack_offset,
                   each.diff, each.in_sync, each.transferred_byte_in_second)
        if not info.ha_connection_info:
            yield target.name, target.address, "master", end, "no slave", None, None, None, None


# --- clusters

def cluster_list(session: Session, *, cluster: str | None, more: bool) -> Result:
    """Show all brokers of clusters, with their rates of incoming and outgoing messages."""
    places = session.all_brokers(cluster)
    if more:
        return Table(("cluster", "broker", "id", "in_yesterday", "out_yesterday", "in_today",
                      "out_today"), _day_figures(session, places))
    return _figures(session, places)


def _number(text: str | None) -> float | None:
    """Return the first number of a figure; None if it does not begin with a number."""
    try:
        return float((text or "").split(" ")[0])
    except ValueError:
        return None


def _figures(session: Session, brokers: list[Broker]) -> Iterator[Row]:
    for broker, table in session.for_each(brokers, lambda each: runtime_table(session, each)):
        assert isinstance(table, dict)
        earliest = _number(table.get("earliestMessageTimeStamp"))
        hours = (time.time() - earliest / 1000) / 3600 if earliest and earliest > 0 else None
        yield (broker.cluster, broker.name, broker.broker_id, broker.address,
               table.get("brokerVersionDesc"), _number(table.get("putTps")) or 0.0,
               _number(table.get("getTransferredTps")) or 0.0,
               _whole(table, "sendThreadPoolQueueSize"), _whole(table, "pullThreadPoolQueueSize"),
               _whole(table, "timerReadBehind"), _whole(table, "pageCacheLockTimeMills"), hours,
               _number(table.get("commitLogDiskRatio")), table.get("brokerActive") == "true")


def _whole(table: dict[str, str], name: str) -> Cell:
    number = _number(table.get(name))
    return None if number is None else int(number)


def _day_figures(session: Session, brokers: list[Broker]) -> Iterator[Row]:
    for broker, table in session.for_each(brokers, lambda each: runtime_table(session, each)):
        assert isinstance(table, dict)

        def between(begin: str, end: str, table: dict[str, str] = table) -> int:
            return int(_number(table.get(end)) or 0) - int(_number(table.get(begin)) or 0)

        yield (broker.cluster, broker.name, broker.broker_id,
               between("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning"),
               between("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning"),
               between("msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
               between("msgGetTotalTodayMorning", "msgGetTotalTodayNow"))
