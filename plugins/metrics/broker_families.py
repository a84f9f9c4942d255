"""Metrics of messages in and out, of connections, and of the store.

Source: BrokerMetricsManager.initStatsMetrics, initRequestMetrics, initConnectionMetrics,
DefaultStoreMetricsManager.init @5.3.3.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.bodies import ConsumeType
from twistmq.broker.api.observe import Sums, single
from twistmq.broker.api.topics import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_system_topic,
)

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.requests import Client

__all__ = ["collect", "flag", "is_system_group"]

_PROTOCOL: Final = "remoting"
_STORAGE: Final = {"storage_type": "local", "storage_medium": "disk"}
_MODES: Final = {ConsumeType.CONSUME_ACTIVELY: "pull", ConsumeType.CONSUME_PASSIVELY: "push",
                 ConsumeType.CONSUME_POP: "pop"}
#: The numbers of V3_9_1. From its snapshot on, each version up to V5_9_9 has two numbers: one for
#: its snapshot and one for its release. Source: MQVersion.
_FIRST_VERSION, _FIRST_RELEASE = 195, 391
_LAST_VERSION: Final = 611


def flag(value: bool) -> str:
    """Return a boolean as the text of a label."""
    return "true" if value else "false"


def is_system_group(group: str) -> bool:
    """Whether a group is one of a broker's own groups, as the metrics define them."""
    return group.upper().startswith(SYSTEM_GROUP_PREFIX)


def collect(broker: Broker) -> Iterator[MetricFamily]:
    """Make the families."""
    yield single("rocketmq_broker_permission", "The permission of clients: 4 read, 2 write, 6 "
                                               "both.",
                 broker.settings.int("brokerPermission"))
    yield single("rocketmq_topic_number", "Topics.", len(broker.topic_config.table))
    yield single("rocketmq_consumer_group_number", "Consumer groups that have settings.",
                 len(broker.subscription_group.table))
    yield from _traffic(broker)
    yield _dead_letters(broker)
    yield _producers(broker)
    yield _consumers(broker)
    yield from _storage(broker)


def _is_counted(topic: str) -> bool:
    """Whether messages of a topic count as in and out: retries and dead letters do not."""
    return not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))


def _traffic(broker: Broker) -> Iterator[MetricFamily]:
    """Stored messages and their bytes by topic, and outgoing messages also by consumer group."""
    labels = ("topic", "is_system")
    count = MetricFamily("rocketmq_messages_in", "counter", "Messages that were stored.", labels)
    size = MetricFamily("rocketmq_throughput_in", "counter", "Their bytes as stored.", labels)
    for (topic,), sums in broker.stats.all_sums("TOPIC_PUT"):
        if _is_counted(topic):
            values = (topic, flag(is_system_topic(topic)))
            count.add(sums.count, *values)
            size.add(sums.size, *values)
    yield count
    yield size
    yield from _out(broker)


def _out(broker: Broker) -> Iterator[MetricFamily]:
    """Messages to consumers; only popped messages are marked as retries or not.

    Pulls from retry topics do not count. Source: DefaultPullMessageResultHandler,
    PopMessageProcessor.
    """
    labels = ("topic", "consumer_group", "is_system", "is_retry")
    count = MetricFamily("rocketmq_messages_out", "counter", "Messages sent to consumers.", labels)
    size = MetricFamily("rocketmq_throughput_out", "counter", "Their bytes as stored.", labels)
    popped = broker.stats.popped_sums()
    none = Sums()
    for (topic, group), sums in broker.stats.all_sums("GROUP_GET"):
        pops = popped.get((topic, group, False), none)
        if _is_counted(topic) and sums.count > pops.count:
            values = (topic, group, flag(is_system_topic(topic) or is_system_group(group)), "")
            count.add(sums.count - pops.count, *values)
            size.add(sums.size - pops.size, *values)
    for (topic, group, is_retry), pops in popped.items():
        values = (topic, group, flag(is_system_topic(topic) or is_system_group(group)),
                  flag(is_retry))
        count.add(pops.count, *values)
        size.add(pops.size, *values)
    yield count
    yield size


def _dead_letters(broker: Broker) -> MetricFamily:
    family = MetricFamily(
        "rocketmq_send_to_dlq_messages", "counter", "Messages that a group gave up.",
        ("topic", "consumer_group", "is_system"))
    for (topic, group), sums in broker.stats.all_sums("SNDBCK2DLQ_TIMES"):
        family.add(sums.count, topic, group,
                   flag(is_system_topic(topic) or is_system_group(group)))
    return family


def _version(client: Client) -> str:
    """Return the name of a client's version; for a version before V3_9_1 its number."""
    number = client.version
    if number > _LAST_VERSION:
        return "higher_version"
    if number < _FIRST_VERSION:
        return str(number)
    name = "v" + "_".join(str(_FIRST_RELEASE + (number - _FIRST_VERSION + 1) // 2))
    return name if number % 2 else f"{name}_snapshot"


def _producers(broker: Broker) -> MetricFamily:
    family = MetricFamily("rocketmq_producer_connections", "gauge", "Producers, once per group.",
                          ("language", "version", "protocol_type"))
    counts = Counter((client.language.lower(), _version(client))
                     for clients in broker.clients.producers.values()
                     for client in clients.values())
    for (language, version), count in counts.items():
        family.add(count, language, version, _PROTOCOL)
    return family


def _consumers(broker: Broker) -> MetricFamily:
    family = MetricFamily(
        "rocketmq_consumer_connections", "gauge", "Consumers.",
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"))
    for name, group in broker.clients.consumers.items():
        mode = _MODES.get(group.data.consume_type, "") if group.data.consume_type else ""
        counts = Counter((client.language.lower(), _version(client))
                         for client in group.clients.values())
        for (language, version), count in counts.items():
            family.add(count, name, language, version, mode, _PROTOCOL,
                       flag(is_system_group(name)))
    return family


def _storage(broker: Broker) -> Iterator[MetricFamily]:
    store = broker.store
    try:
        space = shutil.disk_usage(store.settings.store_path_root_dir)
    except OSError:
        pass  # A folder that does not exist has no size.
    else:
        yield single("rocketmq_storage_size_bytes", "Bytes that are used on the store's disk.",
                     space.total - space.free, labels=_STORAGE)
    yield single("rocketmq_storage_flush_behind_bytes",
                 "Bytes of the commit log that a loss of power would lose.",
                 store.commit_log.max_offset - store.commit_log.flushed_offset, labels=_STORAGE)
    yield single("rocketmq_storage_dispatch_behind_bytes",
                 "Bytes of the commit log that are not in any queue yet.",
                 store.dispatch.behind_bytes, labels=_STORAGE)
    earliest_ms = store.reader.earliest_store_time()
    if earliest_ms > 0:
        yield single("rocketmq_storage_message_reserve_time_milliseconds",
                     "How long ago the oldest message was stored.", broker.now_ms() - earliest_ms,
                     labels=_STORAGE)
