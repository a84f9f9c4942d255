"""How many messages wait for their time, by their real topic; ``config/timermetrics`` holds it.

A figure for people: a crash may leave it a little wrong.

Source: TimerMetrics, TimerMessageStore.addMetric @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING

from msgspec import field
from twisted.logger import Logger

from twistmq.broker.api.bodies import Body, DataVersion
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import LMQ_PREFIX, SYSTEM_TOPIC_PREFIX
from twistmq.broker.api.wire import Int64

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Metric", "TimerMetrics", "TimerMetricsSerializeWrapper"]


class Metric(Body):
    """The waiting messages of one topic."""

    count: Int64 = 0
    #: Unix ms of the last change.
    time_stamp: Int64 = 0


class TimerMetricsSerializeWrapper(Body):
    """All topics; the file holds it, and an answer."""

    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, Metric] = field(default_factory=dict)


class TimerMetrics:
    """The waiting messages of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._file = broker.store.config_file("timermetrics")
        self.saved = TimerMetricsSerializeWrapper(DataVersion(timestamp=broker.now_ms()))
        #: Messages that came and that went since the start, by topic.
        self.came: Counter[str] = Counter()
        self.went: Counter[str] = Counter()

    def load(self) -> None:
        """Take over what was saved; what cannot be read is logged and begins at nothing."""
        try:
            self._file.load_rows(TimerMetricsSerializeWrapper, self._take_saved)
        except StoreDamaged as error:
            self.log.error("counting of timed messages starts at zero: {error}", error=str(error))

    def _take_saved(self, saved: TimerMetricsSerializeWrapper, _: bytes) -> None:
        self.saved = saved

    def add(self, topic: str, count: int) -> None:
        """Count messages that came, or below zero those that went."""
        now_ms = self._broker.now_ms()
        metric = self.saved.timing_count.setdefault(topic, Metric())
        metric.count += count
        metric.time_stamp = now_ms
        if count > 0:
            self.came[topic] += count
        else:
            self.went[topic] -= count
        self.saved.data_version.next_version(now_ms)

    def count(self, topic: str) -> int:
        """Waiting messages of a topic."""
        metric = self.saved.timing_count.get(topic)
        return 0 if metric is None else metric.count

    def forget(self, topics: Container[str]) -> None:
        """Forget topics that are not there any more.

        :param topics: those that are.
        """
        for topic in [topic for topic in self.saved.timing_count if topic not in topics
                      and not topic.startswith((SYSTEM_TOPIC_PREFIX, LMQ_PREFIX))]:
            del self.saved.timing_count[topic]
            self.came.pop(topic, None)
            self.went.pop(topic, None)

    def take(self, body: bytes) -> None:
        """Take the counts of the master; :raises WireError: when the body has no such table."""
        theirs = TimerMetricsSerializeWrapper.decode(body)
        if theirs.data_version != self.saved.data_version:
            self.saved = theirs

    def encode(self) -> bytes:
        """Write them as the file holds them, and an answer."""
        return self.saved.encode_standard()

    def write(self, data: bytes) -> None:
        """Save what ``encode`` gave, if it changed. Blocks.

        :raises StoreFull: when the disk is full.
        """
        self._file.save_bytes(data)
