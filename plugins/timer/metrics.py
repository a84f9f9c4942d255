"""Counts the messages that wait for their time, by real topic, in ``config/timermetrics``.

The count of a topic is the sum of ``LogUnit.change`` over the units that are in the wheel. A
message counts from the time when it is entered until its slot is finished, and a recall counts
against it for the same time. Therefore every count returns to zero, whatever the order of sends,
recalls, rolls and deletions. A recall of a message that does not exist makes a count negative until
its slot is finished; such a count is reported as 0.

Source: TimerMetrics, TimerMessageStore.addMetric @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import field
from twisted.logger import Logger

from twistmq.broker.api.bodies import Body, DataVersion
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import LMQ_PREFIX, SYSTEM_TOPIC_PREFIX
from twistmq.broker.api.wire import Int64, java_string_hash

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Metric", "TimerMetrics", "TimerMetricsSerializeWrapper"]


class Metric(Body):
    """The waiting messages of one topic."""

    count: Int64 = 0
    #: Unix ms of the last change.
    time_stamp: Int64 = 0


class TimerMetricsSerializeWrapper(Body):
    """The waiting messages of all topics, as the file and a response contain them."""

    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, Metric] = field(default_factory=dict)


class TimerMetrics:
    """The waiting messages of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._file = broker.store.config_file("timermetrics")
        self.saved = TimerMetricsSerializeWrapper(DataVersion(timestamp=broker.now_ms()))
        #: Messages entered and messages finished since the start, by topic.
        self.came: Counter[str] = Counter()
        self.went: Counter[str] = Counter()

    def load(self) -> bool:
        """Load the saved counts; a file that cannot be read is logged.

        :returns: whether any counts were loaded.
        """
        try:
            return self._file.load_rows(TimerMetricsSerializeWrapper, self._take_saved)
        except StoreDamaged as error:
            self.log.error("the counts of timed messages cannot be read: {error}",
                           error=str(error))
            return False

    def _take_saved(self, saved: TimerMetricsSerializeWrapper, _: bytes) -> None:
        self.saved = saved

    def add(self, topic: str, count: int) -> None:
        """Add messages that were entered, or with a negative count messages that are finished."""
        now_ms = self._broker.now_ms()
        metric = self.saved.timing_count.setdefault(topic, Metric())
        metric.count += count
        metric.time_stamp = now_ms
        if count > 0:
            self.came[topic] += count
        else:
            self.went[topic] -= count
        self.saved.data_version.next_version(now_ms)

    def nothing_waits(self) -> None:
        """Set all counts to zero because the wheel is empty; this corrects any earlier error."""
        for topic, metric in self.saved.timing_count.items():
            if metric.count:
                self.add(topic, -metric.count)

    def recount(self, by_hash: Mapping[int, int]) -> None:
        """Take the counts from the timer log, after a crash or the loss of the file.

        :param by_hash: sums of ``LogUnit.change`` by the hash of the real topic.
        """
        topics: dict[int, list[str]] = {}
        for topic in {*self.saved.timing_count, *self._broker.topic_config.table}:
            topics.setdefault(java_string_hash(topic), []).append(topic)
        now_ms = self._broker.now_ms()
        for topic_hash, names in topics.items():
            count = by_hash.get(topic_hash, 0)
            # If several topics share a hash, the saved counts are the best ones, unless it is 0.
            if len(names) > 1 and count:
                continue
            for topic in names:
                if count or topic in self.saved.timing_count:
                    metric = self.saved.timing_count.setdefault(topic, Metric(0, now_ms))
                    metric.count = count

    def topic_of(self, topic_hash: int) -> str:
        """Return the counted topic that has a hash; an empty text if no topic has it."""
        return next((topic for topic in self.saved.timing_count
                     if java_string_hash(topic) == topic_hash), "")

    def count(self, topic: str) -> int:
        """Return the number of waiting messages of a topic."""
        metric = self.saved.timing_count.get(topic)
        return 0 if metric is None else max(metric.count, 0)

    def reported(self) -> dict[str, Metric]:
        """Return the counts of existing topics, as they are reported to others."""
        return {topic: Metric(max(metric.count, 0), metric.time_stamp)
                for topic, metric in self.saved.timing_count.items() if self._exists(topic)}

    def _exists(self, topic: str) -> bool:
        return topic.startswith((SYSTEM_TOPIC_PREFIX, LMQ_PREFIX)) or (
            topic in self._broker.topic_config.table)

    def forget(self) -> None:
        """Forget topics that no longer exist, once none of their messages waits."""
        for topic, metric in list(self.saved.timing_count.items()):
            if metric.count or self._exists(topic):
                continue
            del self.saved.timing_count[topic]
            self.came.pop(topic, None)
            self.went.pop(topic, None)

    def take(self, body: bytes) -> None:
        """Adopt the master's counts; :raises WireError: when the body is not such a table."""
        master_table = TimerMetricsSerializeWrapper.decode(body)
        if master_table.data_version != self.saved.data_version:
            self.saved = master_table

    def encode(self) -> bytes:
        """Encode the counts in the form of the file."""
        return self.saved.encode_standard()

    def answer(self) -> bytes:
        """Encode the counts that are reported to others."""
        return TimerMetricsSerializeWrapper(
            self.saved.data_version, self.reported()).encode_standard()

    def write(self, data: bytes) -> None:
        """Save the result of ``encode`` if it has changed. Blocks.

        :raises StoreFull: when the disk is full.
        """
        self._file.save_bytes(data)
