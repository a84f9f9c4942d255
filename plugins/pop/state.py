"""The state shared by the parts of the pop plugin: check points, offsets, orders and waits.

Source: PopMessageProcessor, PopBufferMergeService @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.broker.api import ITimedDelivery, RequestRefused, ResponseCode
from twistmq.broker.api.wire import PERM_READ_WRITE
from twistmq.plugins.pop.check_point import CheckPoint, ReviveRecords
from twistmq.plugins.pop.counts import PopCounts
from twistmq.plugins.pop.hold import PopHold
from twistmq.plugins.pop.in_flight import InFlightCounts
from twistmq.plugins.pop.merge_buffer import MergeBuffer
from twistmq.plugins.pop.names import revive_topic
from twistmq.plugins.pop.offsets import PopOffsets, QueueKey
from twistmq.plugins.pop.order_info import OrderInfos
from twistmq.plugins.pop.settings import PopSettings

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["PopState"]

#: Source: PopAckConstants.retryQueueNum.
_RETRY_QUEUE_NUMS: Final = 1


class PopState:
    """The shared state of one broker's pops, and operations on it that several parts use."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        settings = self.settings = PopSettings.read(broker.settings)
        #: Counts since the start, for metrics.
        self.counts = PopCounts()
        self.records = ReviveRecords(broker, revive_topic(broker.cluster_name), self.counts)
        self.offsets = PopOffsets(broker)
        self.buffer = MergeBuffer(settings, self.records, broker.steady.now_ms)
        self.in_flight = InFlightCounts(broker, settings.has_threshold)
        self.orders = OrderInfos(broker, self._queue_is_free if settings.order_notify else None)
        #: Waiting pops, and waiting notification requests.
        self.hold = PopHold(broker)
        self.notified = PopHold(broker, newest_first=True)
        #: The number of queues of the revive topic; 0 before the plugin is loaded.
        self.queue_count = 0

    def delivered_ms(self) -> int:
        """Return the due time up to which messages are in the revive topic, Unix ms.

        The result is 0 if the time is unknown.
        """
        timers: ITimedDelivery | None = self._broker.hooks.provider(ITimedDelivery)
        return (timers.delivered_ms() if timers is not None else None) or 0

    def accepts(self, key: QueueKey, point: CheckPoint, now_ms: int) -> bool:
        """Whether a check point may wait in memory."""
        return self.buffer.accepts(point, now_ms) and (
            self.offsets.count(key) < self.settings.queue_size_max)

    def require_revive_queue(self, revive_queue: int) -> None:
        """:raises RequestRefused: when a receipt names a revive queue that does not exist."""
        if not 0 <= revive_queue < self.queue_count:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"revive queue {revive_queue} does not exist, there are {self.queue_count}")

    def make_retry_topic(self, topic: str, group: str) -> None:
        """Create the retry topic of a group if it does not exist.

        :raises RequestRefused: when there is no room for another topic.
        """
        broker = self._broker
        if broker.topic_config.get(topic) is not None:
            return
        broker.topic_config.create_in_send_back(topic, _RETRY_QUEUE_NUMS, PERM_READ_WRITE, 0)
        if broker.consumer_offset.query(group, topic, 0) < 0:
            broker.consumer_offset.commit(broker.broker_address, group, topic, 0, 0)
        broker.topics_changed()

    def revive_retry_topic(self, topic: str, group: str) -> None:
        """Recreate a retry topic that has messages, if its configuration was lost in a crash."""
        if self._broker.topic_config.get(topic) is None and (
                self._broker.store.queues.find(topic, 0) is not None):
            self.make_retry_topic(topic, group)

    def _queue_is_free(self, key: QueueKey) -> None:
        """Wake a client of an ordered group when the messages of a queue become visible again."""
        topic, group, queue_id = key
        self.hold.wake(topic, group, queue_id)
        self.notified.wake(topic, group, queue_id)
