"""Consumer lag by topic, for groups that have members.

The lag of a group is 0 for a queue from which the group has consumed nothing yet. Every message
counts, whatever the group's filter expression is. Differs from Apache, which estimates how many
messages a filter accepts.

Source: ConsumerLagCalculator @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX, is_system_topic
from twistmq.broker.api.wire import PERM_READ_WRITE
from twistmq.plugins.metrics.broker_families import flag, is_system_group

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["collecting"]

_LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")


@dataclass(slots=True)
class _Lag:
    """The lag of one group in one topic: numbers of messages, and the store times of the next
    messages in Unix ms, which are 0 when the next message does not exist.
    """

    behind: int = 0
    in_flight: int = 0
    ready: int = 0
    next_ms: int = 0
    next_pull_ms: int = 0


def collecting(broker: Broker) -> Generator[None, None, list[MetricFamily]]:
    """Make the families, with a pause after each queue because each queue is read from disk."""
    families = (
        MetricFamily("rocketmq_consumer_lag_messages", "gauge",
                     "Messages whose consumption a group has not committed.", _LABELS),
        MetricFamily("rocketmq_consumer_lag_latency_milliseconds", "gauge",
                     "How long ago the oldest of these messages was stored.", _LABELS),
        MetricFamily("rocketmq_consumer_inflight_messages", "gauge",
                     "Messages that a group has pulled and not committed.", _LABELS),
        MetricFamily("rocketmq_consumer_queueing_latency_milliseconds", "gauge",
                     "How long ago the oldest message that the group has not pulled was stored.",
                     _LABELS),
        MetricFamily("rocketmq_consumer_ready_messages", "gauge",
                     "Messages that a group has not pulled.", _LABELS),
    )
    for name, group in list(broker.clients.consumers.items()):
        for topic in list(group.subscriptions):
            config = broker.topic_config.get(topic)
            if config is None or topic.startswith(RETRY_GROUP_TOPIC_PREFIX) or not (
                    config.perm & broker.settings.int("brokerPermission") & PERM_READ_WRITE):
                continue
            lag = _Lag()
            for queue_id in range(config.write_queue_nums):
                _add_queue(lag, broker, name, topic, queue_id)
                yield
            now_ms = broker.now_ms()
            is_system = flag(is_system_topic(topic) or is_system_group(name))
            for family, value in zip(families, (
                lag.behind, lag.next_ms and max(now_ms - lag.next_ms, 0), lag.in_flight,
                lag.next_pull_ms and max(now_ms - lag.next_pull_ms, 0), lag.ready,
            ), strict=True):
                family.add(value, name, topic, "false", is_system)
    return list(families)


def _add_queue(lag: _Lag, broker: Broker, group: str, topic: str, queue_id: int) -> None:
    """Add the lag of one queue for a group."""
    store, offsets = broker.store, broker.consumer_offset
    end = max(store.queues.max_offset(topic, queue_id), 0)
    committed = offsets.query(group, topic, queue_id)
    pulled = offsets.query_pulled(group, topic, queue_id)
    if committed < 0:
        committed = end if pulled < 0 else pulled
    pulled = min(max(pulled, committed), end)
    lag.behind += max(end - committed, 0)
    lag.in_flight += max(pulled - committed, 0)
    lag.ready += end - pulled
    if committed < end:
        lag.next_ms = _earlier(lag.next_ms, store.reader.store_time(topic, queue_id, committed))
    if pulled < end:
        lag.next_pull_ms = _earlier(
            lag.next_pull_ms, store.reader.store_time(topic, queue_id, pulled))


def _earlier(first_ms: int, second_ms: int) -> int:
    """Return the earlier of two times; a number that is not above 0 is not a time."""
    if second_ms <= 0:
        return first_ms
    return min(first_ms, second_ms) if first_ms else second_ms
