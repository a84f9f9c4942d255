"""The number of waiting requests of each kind, for a scrape of the metrics.

All kinds wait in one queue, so the requests are examined one by one, and a long queue is sampled.
Apache's broker has a queue for each processor and reports its length. Its ``async_put`` has no
counterpart here, and ``load_balance`` has no counterpart there.

Source: BrokerMetricsManager.initStatsMetrics @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import MetricFamily
from twistmq.plugins.flow_control.classes import KINDS, kind_of
from twistmq.plugins.flow_control.peek_header import look

if TYPE_CHECKING:
    from twistmq.broker.api.requests import WaitingRequests

__all__ = ["waiting_counts", "watermark"]

#: At most this many requests are examined, in a few milliseconds; more requests are sampled.
LOOKS_MAX: Final = 1000


def watermark(waiting: WaitingRequests | None) -> MetricFamily:
    """Make the metric family.

    :param waiting: the waiting requests; None if none were ever examined.
    """
    family = MetricFamily("rocketmq_processor_watermark", "gauge",
                          "Waiting requests; in a long queue the share of each kind is estimated "
                          "from a sample.", ("processor",))
    counts = waiting_counts(waiting)
    for kind in KINDS:
        family.add(counts[kind.processor], kind.processor)
    return family


def waiting_counts(waiting: WaitingRequests | None) -> Counter[str]:
    """Count the waiting requests by the name of their processor in metrics."""
    counts: Counter[str] = Counter()
    if waiting is not None:
        stride = -(-waiting.request_count // LOOKS_MAX) or 1
        for frame in islice(waiting.frames(), None, None, stride):
            head = look(frame)
            if head is not None:
                counts[kind_of(head[0]).processor] += stride
    return counts
