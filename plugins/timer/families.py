"""The metrics of timed messages.

Source: DefaultStoreMetricsManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.observe import MetricKind, single
from twistmq.broker.api.topics import TIMER_TOPIC

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.timer.service import TimerService

__all__ = ["families"]

_STORAGE: Final = {"storage_type": "local", "storage_medium": "disk"}


def families(broker: Broker, service: TimerService) -> list[MetricFamily]:
    """Make the families."""
    now_ms = broker.now_ms()
    behind = service.enqueue.backlog
    next_ms = 0
    if behind:
        next_ms = broker.store.reader.store_time(TIMER_TOPIC, 0, service.enqueue.offset)
    metrics = service.metrics
    waiting = {topic: each.count for topic, each in metrics.reported().items()}
    return [
        _gauge("timer_enqueue_lag", "Timed messages that wait to be entered.", behind),
        _gauge("timer_enqueue_latency_milliseconds", "How long ago the next of them was stored.",
               max(now_ms - next_ms, 0) if next_ms > 0 else 0),
        _gauge("timer_dequeue_lag", "Timed messages that wait for their time.",
               service.wheel.waiting_count),
        _gauge("timer_dequeue_latency_milliseconds", "How late the delivery is.",
               max(now_ms - service.dequeue.read_ms, 0)),
        _by_topic("timing_messages", "gauge", "Timed messages that wait, by real topic.", waiting),
        _by_topic("timer_enqueue", "counter", "Timed messages that were entered.", metrics.came),
        _by_topic("timer_dequeue", "counter", "Timed messages that were removed.", metrics.went),
    ]


def _gauge(name: str, text: str, value: float) -> MetricFamily:
    return single(f"rocketmq_{name}", text, value, labels=_STORAGE)


def _by_topic(
    name: str, kind: MetricKind, text: str, counts: Mapping[str, int]
) -> MetricFamily:
    family = MetricFamily(f"rocketmq_{name}", kind, text, (*_STORAGE, "topic"))
    for topic, count in counts.items():
        family.add(count, *_STORAGE.values(), topic)
    return family
