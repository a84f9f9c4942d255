"""Commands that export the configuration of a cluster, to the screen or to the folder of -f.

Source: the classes of tools/command/export @5.3.3.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from twistmq.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import VERSION
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.topic_names import (
    DLQ_GROUP_TOPIC_PREFIX,
    HALF_TOPIC,
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    is_system_group,
    is_system_topic,
)
from twistmq.tools.admin.brokers import broker_settings, runtime_table
from twistmq.tools.admin.clients import consumer_connection, version_name
from twistmq.tools.admin.files import write_export
from twistmq.tools.admin.rows import Result, Row, Table
from twistmq.tools.admin.session import AdminError, Broker, Session
from twistmq.tools.admin.statistics import PUT_NUMS, day_sum, figures, minute_rate

__all__ = ["WRITTEN", "export_configs", "export_metadata", "export_metrics"]

#: The columns of the result if a file is written.
WRITTEN: Final = ("file",)
#: Settings that describe a cluster's guarantees; getBrokerConfig shows all other settings.
_SETTINGS: Final = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime",
    "filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName",
    "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS", "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)


def _shown_or_written(
    session: Session, content: dict[str, Any], folder: str | None, name: str
) -> Result:
    if folder is not None:
        return Table(WRITTEN, [(write_export(folder, name, content),)])
    return _flat(content)


def _flat(value: Any, path: str = "") -> Iterator[Row]:
    """Return the leaves of an export by their paths."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _flat(member, f"{path}/{key}" if path else str(key))
    else:
        yield path, value if isinstance(value, str | int | float | bool | None) \
            else msgspec.json.encode(value).decode()


def export_configs(session: Session, *, cluster: str, folder: str | None) -> Result:
    """Export the size of a cluster and the guarantees of its brokers."""
    masters = session.brokers(None, cluster)
    configs = {broker.name: {name: settings[name] for name in _SETTINGS if name in settings}
               for broker, settings in session.for_each(
                   masters, lambda each: broker_settings(session, each))
               if isinstance(settings, dict)}
    return _shown_or_written(session, {
        "clusterScale": {
            "namesrvSize": len(session.name_servers), "masterBrokerSize": len(masters),
            "slaveBrokerSize": len(session.brokers(None, cluster, slaves=True)) - len(masters)},
        "brokerConfigs": configs}, folder, "configs.json")


def _topics(session: Session, broker: Broker, *, special: bool) -> dict[str, TopicConfig]:
    """Return a broker's topics except system topics; ``special`` includes retry topics."""
    own = TopicList.decode(session.ask(
        broker.address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body).topic_list
    table = TopicConfigSerializeWrapper.decode(session.ask(
        broker.address, RequestCode.GET_ALL_TOPIC_CONFIG).body).topic_config_table
    derived = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
    return {name: config for name, config in table.items()
            if name not in own and not is_system_topic(name)
            and (special or not name.startswith(derived))}


def _groups(session: Session, broker: Broker) -> dict[str, SubscriptionGroupConfig]:
    table = SubscriptionGroupWrapper.decode(session.ask(
        broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body).subscription_group_table
    return {name: config for name, config in table.items() if not is_system_group(name)}


def export_metadata(
    session: Session, *, cluster: str | None, broker: str | None, folder: str | None,
    only_topics: bool, only_groups: bool, special: bool,
) -> Result:
    """Export topics and groups; for a cluster, the queues of all masters are added up."""
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}

    def collect(target: Broker) -> None:
        for topic, config in _topics(session, target, special=special).items():
            if topic in topics:
                config.read_queue_nums += topics[topic].read_queue_nums
                config.write_queue_nums += topics[topic].write_queue_nums
            topics[topic] = config
        for name, group in _groups(session, target).items():
            if name in groups:
                group.retry_queue_nums += groups[name].retry_queue_nums
            groups[name] = group

    for _ in session.for_each(session.brokers(broker, cluster), collect):
        pass
    both = only_topics is only_groups
    content: dict[str, Any] = {}
    if both or only_topics:
        content["topicConfigTable"] = msgspec.to_builtins(dict(sorted(topics.items())))
    if both or only_groups:
        content["subscriptionGroupTable"] = msgspec.to_builtins(dict(sorted(groups.items())))
    name = "metadata" if both else "topic" if only_topics else "subscriptionGroup"
    return _shown_or_written(session, {**content, "exportTime": time.time_ns() // 1_000_000},
                             folder, f"{name}.json")


def export_metrics(session: Session, *, cluster: str, folder: str | None) -> Result:
    """Export the throughput and sizes of a cluster, for capacity planning."""
    reports = {broker.name: report for broker, report in session.for_each(
        session.brokers(None, cluster), lambda each: _report(session, each))
        if isinstance(report, dict)}
    if not reports:
        raise AdminError(f"no broker of {cluster} answers")
    quotas = [report["runtimeQuota"] for report in reports.values()]
    totals = {
        f"total{kind[0].upper()}{kind[1:]}": {
            name: sum(quota[kind][name] for quota in quotas) for name in quotas[0][kind]}
        for kind in ("tps", "oneDayNum")}
    return _shown_or_written(session, {"evaluateReport": reports, "totalData": totals}, folder,
                             "metrics.json")


def _report(session: Session, broker: Broker) -> dict[str, Any]:
    table = runtime_table(session, broker)
    settings = broker_settings(session, broker)
    groups = _groups(session, broker)
    transactions = figures(session, broker, PUT_NUMS, HALF_TOPIC)
    delays = figures(session, broker, PUT_NUMS, SCHEDULE_TOPIC)
    clients = set()
    for group in groups:
        try:
            connected = consumer_connection(session, group, broker.address).connection_set
        except BrokerError:
            continue
        clients |= {f"{each.language}%{version_name(each.version)}" for each in connected}

    def rate(name: str) -> float:
        return float(table.get(name, "0").split(" ")[0] or 0)

    def yesterday(kind: str) -> int:
        return (int(table.get(f"msg{kind}TotalTodayMorning", 0))
                - int(table.get(f"msg{kind}TotalYesterdayMorning", 0)))

    return {
        "runtimeEnv": {"cpuNum": settings.get("clientCallbackExecutorThreads"),
                       "totalMemKBytes": table.get("totalMemKBytes")},
        "runtimeQuota": {
            "diskRatio": {name: table.get(name)
                          for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
            "tps": {"normalInTps": rate("putTps"), "normalOutTps": rate("getTransferredTps"),
                    "transInTps": minute_rate(transactions),
                    "scheduleInTps": minute_rate(delays)},
            "oneDayNum": {"normalOneDayInNum": yesterday("Put"),
                          "normalOneDayOutNum": yesterday("Get"),
                          "transOneDayInNum": day_sum(transactions),
                          "scheduleOneDayInNum": day_sum(delays)},
            "messageAverageSize": table.get("putMessageAverageSize"),
            "topicSize": len(_topics(session, broker, special=False)), "groupSize": len(groups)},
        "runtimeVersion": {"rocketmqVersion": version_name(VERSION),
                           "clientInfo": sorted(clients)},
    }
