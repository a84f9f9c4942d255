"""What a scrape of the metrics gets to know of pops, and what is counted for it.

Under the names of Apache's exporter, units with them. What its broker calls a lag is a number of
messages, whatever the name says, and so it is here: alerts that are in use compare it with one.
Differs from Apache: a revive queue that is done has a lag of 0, not of 1.

Source: PopMetricsManager, PopReviveService.getReviveBehindMessages, getReviveBehindMillis @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from twistmq.broker.codes import ResponseCode
from twistmq.broker.observe.metrics import Histogram, MetricFamily, single

if TYPE_CHECKING:
    from twistmq.broker.errors import BrokerError
    from twistmq.broker.plugin.protocols import Broker
    from twistmq.plugins.pop.check_point import PointKey
    from twistmq.plugins.pop.service import PopService

__all__ = ["PopCounts", "ReviveKind", "families"]

#: What a message of the revive topic is. Source: PopReviveMessageType.
ReviveKind = Literal["CK", "ACK"]
#: Source: PopMetricsManager.getMetricsView.
_SCAN_ENDS_MS: Final = (1.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
#: What became of a message, in Apache's words. Source: PutMessageStatus.
_STORED: Final = "PUT_OK"
_REFUSED: Final = {
    ResponseCode.SERVICE_NOT_AVAILABLE: "SERVICE_NOT_AVAILABLE",
    ResponseCode.MESSAGE_ILLEGAL: "MESSAGE_ILLEGAL",
    ResponseCode.SYSTEM_BUSY: "OS_PAGE_CACHE_BUSY",
}
_OTHERWISE: Final = "UNKNOWN_ERROR"


def _status(refusal: BrokerError | None) -> str:
    if refusal is None:
        return _STORED
    for code, status in _REFUSED.items():
        if refusal.response_code == code:
            return status
    return _OTHERWISE


class PopCounts:
    """What one broker has done since its start."""

    def __init__(self) -> None:
        #: Messages of the revive topic that were to be stored: by group, topic, kind, status.
        self.came: Counter[tuple[str, ...]] = Counter()
        #: Those that were read there: by group, topic, revive queue, kind.
        self.went: Counter[tuple[str, ...]] = Counter()
        #: Messages that were to be stored again: by group, topic, status.
        self.retried: Counter[tuple[str, ...]] = Counter()
        #: How long a look at what waits in memory took, ms.
        self.scans = Histogram(_SCAN_ENDS_MS)

    def put(self, key: PointKey, kind: ReviveKind, refusal: BrokerError | None) -> None:
        """A message was stored in the revive topic, or refused."""
        self.came[key.group, key.topic, kind, _status(refusal)] += 1

    def got(self, key: PointKey, kind: ReviveKind, revive_queue: int) -> None:
        """One was read there."""
        self.went[key.group, key.topic, str(revive_queue), kind] += 1

    def retry(self, key: PointKey, refusal: BrokerError | None) -> None:
        """A message was stored for another try, or refused."""
        self.retried[key.group, key.topic, _status(refusal)] += 1

    def forget_gone(self, kernel: Broker) -> None:
        """Forget topics and groups that are not there any more."""
        for counts in (self.came, self.went, self.retried):
            for labels in [labels for labels in counts
                           if kernel.topic_config.get(labels[1]) is None
                           or not kernel.subscription_group.has(labels[0])]:
                del counts[labels]


def families(kernel: Broker, service: PopService) -> list[MetricFamily]:
    """Make the families."""
    counts = service.counts
    lag = MetricFamily("rocketmq_pop_revive_lag_milliseconds", "gauge",
                       "Messages of the revive topic that are not done with.", ("queue_id",))
    latency = MetricFamily("rocketmq_pop_revive_latency_milliseconds", "gauge",
                           "How late the next of them is.", ("queue_id",))
    now_ms = kernel.now_ms()
    for queue in service.queues:
        lag.add(queue.behind, str(queue.queue_id))
        latency.add(queue.late_ms(now_ms), str(queue.queue_id))
    return [
        _counter("in_message",
                 "Check points and acknowledgements that were to be stored in the revive topic.",
                 counts.came, "revive_message_type", "put_status"),
        _counter("out_message", "Those that were read there.",
                 counts.went, "queue_id", "revive_message_type"),
        _counter("retry_messages", "Popped messages that were to be stored again.",
                 counts.retried, "put_status"),
        lag, latency,
        single("rocketmq_pop_buffer_scan_time_consume_milliseconds",
               "How long a look at what waits in memory took.", counts.scans, "histogram"),
        single("rocketmq_pop_offset_buffer_size",
               "Parts of queues that were popped and are no consumer offset yet.",
               service.offsets.total),
        single("rocketmq_pop_checkpoint_buffer_size", "Check points that wait in memory.",
               len(service.buffer)),
    ]


def _counter(
    name: str, text: str, counts: Mapping[tuple[str, ...], int], *labels: str
) -> MetricFamily:
    family = MetricFamily(f"rocketmq_pop_revive_{name}", "counter", text,
                          ("consumer_group", "topic", *labels))
    for values, count in counts.items():
        family.add(count, *values)
    return family
