"""The metrics of pops, and the counts for them.

Under the names of Apache's exporter, units with them. A lag of its broker is a number of messages,
in spite of its name, and so it is here: alerts that are in use compare it with one.
Differs from Apache: a revive queue that is done has a lag of 0, not of 1.

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
    """Make the families."""
    counts = state.counts
    lag = MetricFamily("rocketmq_pop_revive_lag_milliseconds", "gauge",
                       "Messages of the revive topic that are not done with.", ("queue_id",))
    latency = MetricFamily("rocketmq_pop_revive_latency_milliseconds", "gauge",
                           "How late the next of them is.", ("queue_id",))
    now_ms = broker.now_ms()
    for queue in queues:
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
