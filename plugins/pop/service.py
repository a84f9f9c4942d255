"""The pop consumption of one broker: its parts, and its periodic work.

Source: PopMessageProcessor, AckMessageProcessor, BrokerController @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import AnyHandler, StoreError
from twistmq.broker.api.bodies import TopicConfig
from twistmq.broker.api.wire import PERM_READ_WRITE
from twistmq.plugins.pop.ack import AckRequests
from twistmq.plugins.pop.assignment import Assignments
from twistmq.plugins.pop.invisible import ChangeInvisibleTime
from twistmq.plugins.pop.names import is_retry, pop_retry_topic
from twistmq.plugins.pop.notification import Notifications
from twistmq.plugins.pop.pop_requests import PopRequests
from twistmq.plugins.pop.request_mode import RequestModes
from twistmq.plugins.pop.revive import ReviveQueue
from twistmq.plugins.pop.state import PopState
from twistmq.plugins.pop.take import Taker

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["PopService"]

#: Duration of one round of revival work, ms.
_TURN_MS: Final = 5
#: The minimum time between two syncs, ms.
_SYNC_MS: Final = 500


class PopService:
    """The service of one broker for groups that pop."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        state = self.state = PopState(broker)
        self.modes = RequestModes(broker)
        self.taker = Taker(broker, state)
        self.queues: list[ReviveQueue] = []
        self._has_more = False
        self._was_slave = False
        self._is_syncing = False
        self._synced_ms = 0
        broker.on_topic_deletion.append(self._topic_deleted)
        broker.store.log_cut.on_cut.append(self.forget)

    # --- life

    def load(self) -> None:
        """Load the saved state; the store must be loaded already.

        :raises StoreError: when a file is damaged.
        """
        broker, topic = self._broker, self.state.records.topic
        self.state.orders.load()
        self.modes.load()
        config = broker.topic_config.get(topic)
        count = self.state.settings.revive_queues
        if config is None or min(config.read_queue_nums, config.write_queue_nums) < count:
            broker.topic_config.update(TopicConfig(topic, count, count, PERM_READ_WRITE), {})
            broker.topics_changed()
        broker.topic_config.system_topics.add(topic)
        # The content of this topic decides which messages are given out again, and to which groups.
        broker.send_forbidden_topics.add(topic)
        config = broker.topic_config.get(topic)
        assert config is not None
        # Includes queues in which a broker with a larger number of queues left entries.
        self.state.queue_count = config.read_queue_nums
        self.queues = [ReviveQueue(broker, self.state, queue_id)
                       for queue_id in range(config.read_queue_nums)]

    def handlers(self) -> list[AnyHandler]:
        broker = self._broker
        parts = (PopRequests(broker, self.state, self.taker), AckRequests(broker, self.state),
                 ChangeInvisibleTime(broker, self.state, self.taker),
                 Notifications(broker, self.state, self.taker),
                 Assignments(broker, self.modes), self.modes)
        return [row for part in parts for row in part.handlers()]

    def stop(self) -> Deferred[None] | None:
        """Write the check points in memory, and save the progress."""
        self.state.hold.release_all()
        self.state.notified.release_all()
        broker = self._broker
        if broker.is_slave or not self.queues:
            return None
        self.state.buffer.write_all()
        if self.state.orders.dirty:
            broker.saves.save(self.state.orders)
        durable = broker.store.flush.flushed(broker.store.commit_log.max_offset)
        if durable is None:
            self.settle(broker.now_ms())
            return None
        return durable.addCallbacks(lambda _: self.settle(broker.now_ms()), self._not_durable)

    def _not_durable(self, failure: Failure) -> None:
        failure.trap(StoreError)
        self.log.error("the progress of pops cannot be saved: {error}",
                       error=failure.getErrorMessage())

    # --- periodic work

    def _is_working(self) -> bool:
        """Whether this broker is a master; a former master forgets its state."""
        if not self._broker.is_slave:
            self._was_slave = False
            return bool(self.queues)
        if not self._was_slave:
            self._was_slave = True
            self.forget()
        return False

    def role_changed(self) -> None:
        """Forget the state of a master that is a slave now, however soon it is a master again."""
        if self._broker.is_slave:
            self.forget()

    def forget(self) -> None:
        """Forget all that the log may no longer contain; pops continue at the settled progress."""
        self.state.buffer.clear()
        self.state.offsets.clear_all()
        for queue in self.queues:
            queue.reset()

    def rest_ms(self) -> int | None:
        """Return how long :meth:`tick` has nothing to do unless something happens, ms.

        :returns: 0 when it has work; None while nothing waits.
        """
        broker, state = self._broker, self.state
        if broker.is_slave != self._was_slave:
            return 0
        steady_ms = broker.steady.now_ms()
        rests = [due_ms - steady_ms for due_ms in (
            state.hold.next_end_ms, state.notified.next_end_ms) if due_ms is not None]
        if self.queues and not broker.is_slave:
            if state.offsets.waits or any(queue.waits for queue in self.queues):
                return 0
            if (due_ms := state.buffer.due_ms) is not None:
                rests.append(due_ms - steady_ms)
            if (free_ms := state.orders.free_ms) is not None:
                rests.append(free_ms - broker.now_ms())
        return max(min(rests), 0) if rests else None

    def tick(self, now_ms: int) -> None:
        """End waits, write due check points, and commit settled offsets."""
        self.state.hold.check()
        self.state.notified.check()
        if self._is_working():
            self.state.orders.notify_unblocked(now_ms)
            steady_ms = self._broker.steady.now_ms
            begin_ms = steady_ms()
            self.state.buffer.write_due()
            self.settle(now_ms)
            self.state.counts.scans.add(steady_ms() - begin_ms)
            self._sync_soon(begin_ms)

    def _sync_soon(self, now_ms: int) -> None:
        """Sync the commit log from time to time while an offset waits for it.

        Otherwise the log may stay unsynced for ten seconds, and a broker that is killed in this
        time would give out the messages of these seconds again.
        """
        waits = self.state.offsets.waits or any(queue.waits for queue in self.queues)
        if not waits or self._is_syncing or now_ms - self._synced_ms < _SYNC_MS:
            return
        self._synced_ms = now_ms
        durable = self._broker.store.flush.flushed(self._broker.store.commit_log.max_offset)
        if durable is not None:
            self._is_syncing = True
            durable.addCallbacks(lambda _: self.settle(now_ms), self._not_durable)
            durable.addBoth(self._sync_done)

    def _sync_done(self, _: object) -> None:
        self._is_syncing = False

    def settle(self, now_ms: int) -> None:
        """Commit settled progress as consumer offsets."""
        self.state.offsets.settle()
        for queue in self.queues:
            queue.save_settled()

    def revive_period_ms(self) -> int:
        """The time until the next round, which is short while there is more to do."""
        return 1 if self._has_more else self._broker.settings.int("reviveInterval")

    def revive(self, now_ms: int) -> None:
        """Process the revive topic for some milliseconds."""
        self._has_more = False
        if not self._is_working() or self.state.delivered_ms() <= 0:
            return
        end_ms = self._broker.steady.now_ms() + _TURN_MS
        waiting = list(self.queues)
        while waiting:
            waiting = [queue for queue in waiting if queue.step()]
            if waiting and self._broker.steady.now_ms() >= end_ms:
                self._has_more = True
                return

    def _topic_deleted(self, topic: str) -> list[str]:
        """Forget the pops of a topic; :returns: the retry topics that belong to it.

        Source: AdminBrokerProcessor.deleteTopic @5.3.3, which finds them by the groups that have
        offsets there.
        """
        table = self._broker.topic_config
        retries = [] if is_retry(topic) else [
            retry for group in self._broker.consumer_offset.groups_of_topic(topic)
            for retry in (pop_retry_topic(topic, group, True), pop_retry_topic(topic, group, False))
            if table.get(retry) is not None]
        gone_topics = frozenset([topic, *retries])
        for part in (self.state.offsets, self.state.orders, self.state.in_flight):
            part.forget_topics(gone_topics)
        return retries

    def forget_gone(self, now_ms: int) -> None:
        """Forget topics, groups and clients that no longer exist."""
        self.state.hold.forget_gone()
        self.state.notified.forget_gone()
        self.state.offsets.forget_gone()
        self.state.in_flight.forget_gone()
        self.state.counts.forget_gone(self._broker)
