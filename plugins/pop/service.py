"""The pop consumption of one broker: its parts, and what is done again and again.

Source: PopMessageProcessor, AckMessageProcessor, BrokerController @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import RequestRefused, StoreError
from twistmq.broker.interfaces import ITimedDelivery
from twistmq.broker.remoting.messages import AnyHandler
from twistmq.broker.wire.bodies import TopicConfig
from twistmq.plugins.pop.ack import AckRequests
from twistmq.plugins.pop.assignment import Assignments
from twistmq.plugins.pop.check_point import CheckPoint, ReviveRecords
from twistmq.plugins.pop.families import PopCounts
from twistmq.plugins.pop.hold import PopHold
from twistmq.plugins.pop.in_flight import InFlightCounts
from twistmq.plugins.pop.invisible import ChangeInvisibleTime
from twistmq.plugins.pop.merge_buffer import MergeBuffer
from twistmq.plugins.pop.names import is_retry, pop_retry_topic, revive_topic
from twistmq.plugins.pop.notification import Notifications
from twistmq.plugins.pop.offsets import PopOffsets, QueueKey
from twistmq.plugins.pop.order_info import OrderInfos
from twistmq.plugins.pop.pop_requests import PopRequests
from twistmq.plugins.pop.request_mode import RequestModes
from twistmq.plugins.pop.revive import ReviveQueue
from twistmq.plugins.pop.settings import PopSettings
from twistmq.plugins.pop.take import Taker

if TYPE_CHECKING:
    from twistmq.broker.plugin.protocols import Broker

__all__ = ["PopService"]

_READ_WRITE: Final = 6
#: Source: PopAckConstants.retryQueueNum.
_RETRY_QUEUE_NUMS: Final = 1
#: How long a turn of reviving is, ms.
_TURN_MS: Final = 5
#: Least time between two syncs, ms.
_SYNC_MS: Final = 500


class PopService:
    """What one broker does for groups that pop."""

    log = Logger()

    def __init__(self, kernel: Broker) -> None:
        self._kernel = kernel
        settings = self.settings = PopSettings.read(kernel.settings)
        #: What was done since the start, for metrics.
        self.counts = PopCounts()
        self.records = ReviveRecords(kernel, revive_topic(kernel.cluster_name), self.counts)
        self.offsets = PopOffsets(kernel)
        self.buffer = MergeBuffer(settings, self.records, kernel.steady.now_ms)
        self.in_flight = InFlightCounts(kernel, settings.has_threshold)
        self.orders = OrderInfos(kernel, self._queue_is_free if settings.order_notify else None)
        self.modes = RequestModes(kernel)
        self.taker = Taker(kernel, self)
        #: Pops that wait, and those that wait to be told.
        self.hold = PopHold(kernel)
        self.notified = PopHold(kernel, newest_first=True)
        self.queues: list[ReviveQueue] = []
        self._has_more = False
        self._was_slave = False
        self._is_syncing = False
        self._synced_ms = 0
        kernel.on_topic_deletion.append(self._topic_deleted)

    # --- life

    def load(self) -> None:
        """Take over what was saved; the store is loaded.

        :raises StoreError: when a file is damaged.
        """
        kernel, topic = self._kernel, self.records.topic
        self.orders.load()
        self.modes.load()
        config = kernel.topic_config.get(topic)
        count = self.settings.revive_queues
        if config is None or min(config.read_queue_nums, config.write_queue_nums) < count:
            kernel.topic_config.update(TopicConfig(topic, count, count, _READ_WRITE), {})
            kernel.topics_changed()
        kernel.topic_config.system_topics.add(topic)
        # What is in it decides what is given out again, and to whom.
        kernel.send_forbidden_topics.add(topic)
        config = kernel.topic_config.get(topic)
        assert config is not None
        # Also those that a broker with more queues left something in.
        self.queues = [ReviveQueue(kernel, self, queue_id)
                       for queue_id in range(config.read_queue_nums)]

    def handlers(self) -> list[AnyHandler]:
        kernel = self._kernel
        parts = (PopRequests(kernel, self, self.hold), AckRequests(kernel, self),
                 ChangeInvisibleTime(kernel, self),
                 Notifications(kernel, self, self.notified, self.hold),
                 Assignments(kernel, self.modes), self.modes)
        return [row for part in parts for row in part.handlers()]

    def stop(self) -> Deferred[None] | None:
        """Write all that waits in memory, and save how far all has come."""
        self.hold.release_all()
        self.notified.release_all()
        kernel = self._kernel
        if kernel.is_slave or not self.queues:
            return None
        self.buffer.write_all()
        if self.orders.dirty:
            kernel.saves.save(self.orders)
        durable = kernel.store.flushed(kernel.store.max_offset)
        if durable is None:
            self.settle(kernel.now_ms())
            return None
        return durable.addCallbacks(lambda _: self.settle(kernel.now_ms()), self._not_durable)

    def _not_durable(self, failure: Failure) -> None:
        failure.trap(StoreError)
        self.log.error("how far pops have come is not saved: {error}",
                       error=failure.getErrorMessage())

    # --- again and again

    def _is_working(self) -> bool:
        """Whether this broker is a master; one that is no more forgets what it knew."""
        if not self._kernel.is_slave:
            self._was_slave = False
            return bool(self.queues)
        if not self._was_slave:
            self._was_slave = True
            self.buffer.clear()
            for queue in self.queues:
                queue.reset()
        return False

    def tick(self, now_ms: int) -> None:
        """End waits, write what has to leave the memory, let offsets follow."""
        self.hold.check()
        self.notified.check()
        if self._is_working():
            self.orders.tell_free(now_ms)
            steady_ms = self._kernel.steady.now_ms
            begin_ms = steady_ms()
            self.buffer.write_due()
            self.settle(now_ms)
            self.counts.scans.add(steady_ms() - begin_ms)
            self._sync_soon(begin_ms)

    def _sync_soon(self, now_ms: int) -> None:
        """Have the log synced now and then while an offset waits for that.

        By itself it may be left for ten seconds, and a broker that is killed meanwhile would give
        out again what it gave out in them.
        """
        waits = self.offsets.waits or any(queue.waits for queue in self.queues)
        if not waits or self._is_syncing or now_ms - self._synced_ms < _SYNC_MS:
            return
        self._synced_ms = now_ms
        durable = self._kernel.store.flushed(self._kernel.store.max_offset)
        if durable is not None:
            self._is_syncing = True
            durable.addCallbacks(lambda _: self.settle(now_ms), self._not_durable)
            durable.addBoth(self._sync_done)

    def _sync_done(self, _: object) -> None:
        self._is_syncing = False

    def settle(self, now_ms: int) -> None:
        """Make consumer offsets of what is durable."""
        self.offsets.settle()
        for queue in self.queues:
            queue.save_durable()

    def revive_period_ms(self) -> int:
        """When to look next: at once while there is more to do."""
        return 1 if self._has_more else self._kernel.settings.int("reviveInterval")

    def revive(self, now_ms: int) -> None:
        """Work off the revive topic, for some milliseconds."""
        self._has_more = False
        if not self._is_working() or self.delivered_ms() <= 0:
            return
        end_ms = self._kernel.steady.now_ms() + _TURN_MS
        waiting = list(self.queues)
        while waiting:
            waiting = [queue for queue in waiting if queue.step()]
            if waiting and self._kernel.steady.now_ms() >= end_ms:
                self._has_more = True
                return

    def _topic_deleted(self, topic: str) -> list[str]:
        """Forget what was popped of a topic; :returns: the topics of its retries.

        Source: AdminBrokerProcessor.deleteTopic @5.3.3, by which groups have offsets there.
        """
        table = self._kernel.topic_config
        retries = [] if is_retry(topic) else [
            retry for group in self._kernel.consumer_offset.groups_of_topic(topic)
            for retry in (pop_retry_topic(topic, group, True), pop_retry_topic(topic, group, False))
            if table.get(retry) is not None]
        gone = frozenset([topic, *retries])
        for part in (self.offsets, self.orders, self.in_flight):
            part.forget_topics(gone)
        return retries

    def forget_gone(self, now_ms: int) -> None:
        """Forget topics, groups and clients that are not there any more."""
        self.hold.forget_gone()
        self.notified.forget_gone()
        self.offsets.forget_gone()
        self.in_flight.forget_gone()
        self.counts.forget_gone(self._kernel)

    # --- what its parts ask

    def delivered_ms(self) -> int:
        """What was due before this time is in the revive topic, Unix ms; 0: who knows."""
        timers: ITimedDelivery | None = self._kernel.hooks.provider(ITimedDelivery)
        return (timers.delivered_ms() if timers is not None else None) or 0

    def takes(self, key: QueueKey, point: CheckPoint, now_ms: int) -> bool:
        """Whether a check point may wait in memory."""
        return self.buffer.takes(point, now_ms) and (
            self.offsets.count(key) < self.settings.queue_size_max)

    def require_revive_queue(self, revive_queue: int) -> None:
        """:raises RequestRefused: when a receipt names a revive queue that is not there."""
        if not 0 <= revive_queue < len(self.queues):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"there is no revive queue {revive_queue}, there are {len(self.queues)}")

    def make_retry_topic(self, topic: str, group: str) -> None:
        """Make a group's topic of retries, if it is not there.

        :raises RequestRefused: when there is no room for another topic.
        """
        kernel = self._kernel
        if kernel.topic_config.get(topic) is not None:
            return
        kernel.topic_config.create_in_send_back(topic, _RETRY_QUEUE_NUMS, _READ_WRITE, 0)
        if kernel.consumer_offset.query(group, topic, 0) < 0:
            kernel.consumer_offset.commit(kernel.broker_address, group, topic, 0, 0)
        kernel.topics_changed()

    def revive_retry_topic(self, topic: str, group: str) -> None:
        """Make a topic of retries again that a kill made forgotten, if it has messages."""
        if self._kernel.topic_config.get(topic) is None and (
                self._kernel.store.queue(topic, 0) is not None):
            self.make_retry_topic(topic, group)

    def _queue_is_free(self, key: QueueKey) -> None:
        """What a group in order has of a queue is visible again: who waits may pop it."""
        topic, group, queue_id = key
        self.hold.wake(topic, group, queue_id)
        self.notified.wake(topic, group, queue_id)
