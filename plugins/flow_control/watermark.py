"""How many requests of each kind wait, for a scrape of the metrics.

They wait together, so they are looked at one by one; of many only some are. Apache's broker has a
queue for each processor and tells its length. Its ``async_put`` has no counterpart here,
``load_balance`` none there.

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

#: So many requests are looked at: a few milliseconds. Of more each stands for several.
LOOKS_MAX: Final = 1000


def watermark(waiting: WaitingRequests | None) -> MetricFamily:
    """Make the family.

    :param waiting: None: nothing was ever looked at.
    """
    family = MetricFamily("rocketmq_processor_watermark", "gauge",
                          "Requests that wait for their turn; of many each kind's share is counted "
                          "in some.", ("processor",))
    counts = waiting_counts(waiting)
    for kind in KINDS:
        family.add(counts[kind.processor], kind.processor)
    return family


def waiting_counts(waiting: WaitingRequests | None) -> Counter[str]:
    """Count what waits by what metrics call its processor."""
    counts: Counter[str] = Counter()
    if waiting is not None:
        stride = -(-waiting.request_count // LOOKS_MAX) or 1
        for frame in islice(waiting.frames(), None, None, stride):
            found = look(frame)
            if found is not None:
                counts[kind_of(found[0]).processor] += stride
    return counts
