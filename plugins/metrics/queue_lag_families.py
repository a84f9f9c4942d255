"""Consumer lag by queue, for all groups that have committed an offset, with and without members.

Apache's metrics of consumer lag end when the last member of a group leaves, which is when an alert
or an autoscaler needs them most. These metrics come from the table of consumer offsets instead, so
all names are specific to twistmq::

    twistmq_consumer_queue_lag_messages         gauge   consumer_group, topic, queue_id
    twistmq_consumer_queue_lag_queues_left_out  gauge

A slave leaves them out, unless it stands in for its master, so that a sum over all brokers counts
each message once. ``metrics.queue_lag_max`` limits the number of queues; the queues with the
largest lag are kept.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.observe import single
from twistmq.broker.api.topics import is_system_topic
from twistmq.plugins.metrics.broker_families import is_system_group

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["QUEUE_LAG_MAX", "collecting"]

#: The setting that limits the number of queues.
QUEUE_LAG_MAX: Final = "metrics.queue_lag_max"
#: The number of queues that are read, or written, between two pauses.
_QUEUES_AT_ONCE: Final = 500


def collecting(broker: Broker) -> Generator[None, None, list[MetricFamily]]:
    """Make the families, with pauses, because a broker may have very many offsets."""
    count_max = broker.settings.int(QUEUE_LAG_MAX)
    identity = broker.identity
    if not count_max or (identity.is_slave and not identity.is_acting):
        return []
    kept: list[tuple[int, str, str, int]] = []
    left_out_count = read_count = 0
    for key in list(broker.consumer_offset.table):
        topic, _, group = key.partition("@")
        if is_system_group(group) or is_system_topic(topic) or (
                broker.topic_config.get(topic) is None):
            continue
        for queue_id, offset in broker.consumer_offset.offsets_in(group, topic).items():
            end = broker.store.queues.max_offset(topic, queue_id)
            row = max(end - max(offset, 0), 0), group, topic, queue_id
            if len(kept) < count_max:
                heappush(kept, row)
            else:
                heappushpop(kept, row)
                left_out_count += 1
            read_count += 1
            if not read_count % _QUEUES_AT_ONCE:
                yield
    lag = MetricFamily("twistmq_consumer_queue_lag_messages", "gauge",
                       "Messages of a queue whose consumption a group has not committed, also "
                       "while the group has no members.", ("consumer_group", "topic", "queue_id"))
    for number, (lag_count, group, topic, queue_id) in enumerate(kept, 1):
        lag.add(lag_count, group, topic, str(queue_id))
        if not number % _QUEUES_AT_ONCE:
            yield
    return [lag, single("twistmq_consumer_queue_lag_queues_left_out",
                        f"Queues with a smaller lag, which {QUEUE_LAG_MAX} leaves out.",
                        left_out_count)]
