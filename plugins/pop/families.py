"""The metrics of pop consumption, and the counts from which they are computed.

The metrics have the names and units of Apache's exporter. Despite its name, the lag metric of
Apache's broker is a number of messages. twistmq exports the same number, because existing alerts
compare it with a count. Differs from Apache: a revive queue without open work has a lag of 0, not
of 1.

Source: PopMetricsManager, PopReviveService.getReviveBehindMessages, getReviveBehindMillis @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.observe import single

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.pop.revive import ReviveQueue
    from twistmq.plugins.pop.state import PopState

__all__ = ["families"]

def families(
    broker: Broker, state: PopState, queues: Sequence[ReviveQueue]
) -> list[MetricFamily]:
    """Collect the metric families."""
    counts = state.counts
    lag = MetricFamily("rocketmq_pop_revive_lag_milliseconds", "gauge",
                       "Messages of the revive topic that are not processed yet.", ("queue_id",))
    latency = MetricFamily("rocketmq_pop_revive_latency_milliseconds", "gauge",
                           "The delay of the next message of the revive topic.", ("queue_id",))
    now_ms = broker.now_ms()
    for queue in queues:
        lag.add(queue.backlog, str(queue.queue_id))
        latency.add(queue.late_ms(now_ms), str(queue.queue_id))
    return [
        _counter("in_message",
                 "Check points and acknowledgements to be stored in the revive topic.",
                 counts.came, "revive_message_type", "put_status"),
        _counter("out_message", "Messages that were read from the revive topic.",
                 counts.went, "queue_id", "revive_message_type"),
        _counter("retry_messages", "Popped messages to be stored again for a retry.",
                 counts.retried, "put_status"),
        lag, latency,
        single("rocketmq_pop_buffer_scan_time_consume_milliseconds",
               "Duration of a scan of the check points in memory.", counts.scans, "histogram"),
        single("rocketmq_pop_offset_buffer_size",
               "Popped ranges of queues that are not consumer offsets yet.",
               state.offsets.total),
        single("rocketmq_pop_checkpoint_buffer_size", "Check points that wait in memory.",
               len(state.buffer)),
    ]


def _counter(
    name: str, text: str, counts: Mapping[tuple[str, ...], int], *labels: str
) -> MetricFamily:
    family = MetricFamily(f"rocketmq_pop_revive_{name}", "counter", text,
                          ("consumer_group", "topic", *labels))
    for values, count in counts.items():
        family.add(count, *values)
    return family
