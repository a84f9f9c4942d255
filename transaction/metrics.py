"""The number of open half messages by real topic, saved in ``config/transactionMetrics``.

The numbers are only for information: a crash, or a message that is ended twice, can make them
slightly wrong.

Source: TransactionMetrics @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import field
from twisted.logger import Logger

from twistmq.broker.api import StoreError
from twistmq.broker.api.bodies import Body, DataVersion
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.observe import Outage
from twistmq.broker.api.wire import Int64

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Metric", "TransactionMetrics", "TransactionMetricsSerializeWrapper"]


class Metric(Body):
    """The open half messages of one topic."""

    count: Int64 = 0
    #: Unix ms of the last change.
    time_stamp: Int64 = 0


class TransactionMetricsSerializeWrapper(Body):
    """The numbers of all topics, as saved in the file transactionMetrics."""

    data_version: DataVersion = field(default_factory=DataVersion)
    transaction_count: dict[str, Metric] = field(default_factory=dict)


class TransactionMetrics:
    """The open half messages of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._file = broker.store.config_file("transactionMetrics")
        self._outage = Outage()
        #: Half messages that were ended since the start, by topic and outcome.
        self.ends: Counter[tuple[str, int]] = Counter()
        self.saved = TransactionMetricsSerializeWrapper(DataVersion(timestamp=broker.now_ms()))

    def load(self) -> None:
        """Load the saved numbers; if they are unreadable, log this and start at zero."""
        try:
            self._file.load_rows(TransactionMetricsSerializeWrapper, self._take_saved)
        except StoreDamaged as error:
            self.log.error("counting of open half messages starts at zero: {error}",
                           error=str(error))

    def _take_saved(self, saved: TransactionMetricsSerializeWrapper, _: bytes) -> None:
        self.saved = saved

    def add(self, counts: Mapping[str, int]) -> None:
        """Add new half messages by topic; negative numbers stand for messages that were ended."""
        if not counts:
            return
        now_ms = self._broker.now_ms()
        for topic, count in counts.items():
            metric = self.saved.transaction_count.setdefault(topic, Metric())
            metric.count += count
            metric.time_stamp = now_ms
        self.saved.data_version.next_version(now_ms)

    def count(self, topic: str) -> int:
        """Return the number of open half messages of a topic."""
        metric = self.saved.transaction_count.get(topic)
        return 0 if metric is None else metric.count

    def save(self) -> None:
        """Save the numbers if they changed; a failure is logged and saving is tried again.

        Topics that no longer exist are forgotten.
        """
        counts = self.saved.transaction_count
        gone_topics = {topic for topic in (*counts, *(topic for topic, _ in self.ends))
                       if self._broker.topic_config.get(topic) is None}
        for topic in gone_topics:
            counts.pop(topic, None)
        for key in [key for key in self.ends if key[0] in gone_topics]:
            del self.ends[key]
        try:
            self._file.save(self.saved.encode_standard().decode())
            self._outage.ends()
        except (StoreError, OSError) as error:
            if self._outage.begins():
                self.log.error("transactionMetrics cannot be saved: {error}", error=str(error))
