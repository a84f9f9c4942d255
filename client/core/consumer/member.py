"""A member of a consumer group: its queues, the messages read from them, and their results.

    rebalance     decides which queues this member has        rebalance.py
    pull          one task per queue, within flow control     fetcher.py
    take          passes messages to handlers                 delivery.py
    succeed, fail handle the results                          results.py, retries.py
    commit        stores the offsets of the group             offsets.py

Everything runs in the engine. A shell takes messages with :meth:`Member.take`, and waits for more
with :meth:`Member.ready`.

Source: DefaultMQPushConsumerImpl, ConsumeMessageConcurrentlyService,
ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final, TypeVar

from twistmq.client.base.errors import Closed, OptionError
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.tasks import Cancelled, Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, MemberOptions
from twistmq.client.core.consumer.fetcher import Fetcher
from twistmq.client.core.consumer.flow_control import PullFlow
from twistmq.client.core.consumer.offsets import (
    FileAccess,
    LocalOffsets,
    OffsetStore,
    RemoteOffsets,
)
from twistmq.client.core.consumer.rebalance import Rebalance
from twistmq.client.core.consumer.results import Results
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    MessageQueue,
)
from twistmq.protocol.log_rate import LineRate, lines_left_out
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX, group_fault, retry_topic

__all__ = ["Member"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The wait before a failed commit of a close is tried once more, in ms.
_COMMIT_AGAIN_MS: Final = 200
#: The wait before the start offsets of new queues are committed, in ms.
_BEGINNINGS_MS: Final = 50
#: One in this number of commits includes all queues, even queues that have not changed.
ALL_COMMITTED_EVERY: Final = 3
#: The delay, in ms, before the member looks for a retry topic that was just created.
_RETRY_TOPIC_MS: Final = 1000


class Member(Results[T]):
    """The core of a consumer.

    :param client: the client, perhaps shared.
    :param wanted: the subscriptions by topic, with the names at brokers.
    :param decode: returns the value of a message; with None, the value is the body.
    :param file: the file in which a broadcasting member keeps its offsets.

    ``on_assigned`` and ``on_lost`` are called with the queues that were assigned or lost.
    """

    #: The name of this kind of consumer in heartbeats and tools.
    consume_type = ConsumeType.CONSUME_PASSIVELY
    #: Whether it commits offsets, so that tools can ask for them.
    has_offsets = True

    def __init__(
        self, client: ClientCore, options: MemberOptions, subscriptions: Mapping[str, Subscription],
        sender: Sender, *, decode: Callable[[ReceivedMessage[T]], T] | None = None,
        file: FileAccess | None = None,
    ) -> None:
        fault = group_fault(options.group)
        if fault is not None:
            raise OptionError(f"group {options.group!r}: {fault}")
        super().__init__(client, options, sender)
        self.decode = decode
        self.subscriptions: dict[str, Subscription] = dict(subscriptions)
        if not options.is_broadcast:
            topic = retry_topic(self.group)
            self.subscriptions[topic] = Subscription(topic)
        self.sub_version = client.tasks.clock.wall_ms()
        self.flow = PullFlow(self.total, options.limits, options.cache_bytes_max)
        self.offsets: OffsetStore = (LocalOffsets(client, file) if options.is_broadcast
                                     else RemoteOffsets(client, self.group))
        #: A broker decides how often it moves a group.
        self._moved_lines = LineRate()
        self.rebalance: Rebalance[T] = Rebalance(self)
        self.fetcher: Fetcher[T] = Fetcher(self)
        self.on_assigned: list[Callable[[list[MessageQueue]], object]] = []
        self.on_lost: list[Callable[[list[MessageQueue]], object]] = []
        self.is_paused = False
        #: The queues that the program assigned; None: the group's members divide the queues.
        self.fixed: frozenset[MessageQueue] | None = None
        self._loops: list[Task[None]] = []
        #: The task that completes a close; None before a close.
        self._closing: Task[None] | None = None
        self._is_committing_soon = False
        #: The time when the member was made, in Unix ms.
        self.started_ms = client.tasks.clock.wall_ms()

    # --- the group

    def __repr__(self) -> str:
        topics = ", ".join(sorted(topic for topic in self.subscriptions
                                  if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)))
        return f"consumer of group {self.group} with topics {topics or 'not chosen yet'}"

    def producer_data(self) -> None:
        """Return None, because a consumer produces nothing."""

    def consumer_data(self) -> ConsumerData:
        """Return the member's part of a heartbeat."""
        start = self.options.start
        where = (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET if start == "last" else
                 ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET if start == "first" else
                 ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)
        return ConsumerData(
            group_name=self.group, consume_type=self.consume_type,
            message_model=(MessageModel.BROADCASTING if self.options.is_broadcast
                           else MessageModel.CLUSTERING),
            consume_from_where=where,
            subscription_data_set=tuple(each.data(self.sub_version)
                                        for each in self.subscriptions.values()))

    async def start(self) -> None:
        """Join the group and begin to read; if this fails or is cancelled, leave again.

        :raises Closed: when the client is closed.
        :raises OptionError: when the client has a member of the group.
        """
        try:
            await self._join()
        except (Exception, Cancelled):
            await self.close(0)
            raise
        self._loops.append(self.tasks.spawn(self._commit_always(), "commits"))
        self._loops.append(self.tasks.spawn(self._expire_always(), "time-outs of handlers"))
        if self.locks is not None:
            self._loops.append(self.tasks.spawn(self.locks.renew_always(), "locks"))

    async def _join(self) -> None:
        """Follow the topics and become a member of the group; raises like :meth:`start`."""
        self.client.add(self)
        for topic in self.subscriptions:
            self.client.routes.follow(topic)
        await self.rebalance.begin()

    def subscribe(self, subscription: Subscription) -> None:
        """Add or change a subscription."""
        if subscription.topic not in self.subscriptions:
            self.rebalance.beginnings.forget(subscription.topic)
        self.subscriptions[subscription.topic] = subscription
        self.client.routes.follow(subscription.topic)
        self.sub_version = self.tasks.clock.wall_ms()
        for assigned in self.assigned_queues.values():
            if assigned.queue.topic == subscription.topic:
                assigned.subscription = subscription
        self.tasks.spawn(self.client.heartbeat_all(), "heartbeat")
        self.rebalance.wake()

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        if self.subscriptions.pop(topic, None) is not None:
            self.sub_version = self.tasks.clock.wall_ms()
            self.rebalance.subscription_check.warn_unsubscribed(topic)
            self.tasks.spawn(self.client.heartbeat_all(), "heartbeat")
            self.rebalance.wake()

    def assigned(self) -> list[MessageQueue]:
        """Return the queues of the subscribed topics, without retry topics, in order."""
        return sorted(assigned.public_queue for assigned in self.assigned_queues.values()
                      if not assigned.queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX))

    def set_paused(self, queues: Sequence[MessageQueue] | None, paused: bool) -> None:
        """Pause or resume pulls of the given queues (named as in the namespace), or of all."""
        if queues is None:
            self.is_paused = paused
        for assigned in self.assigned_queues.values():
            if queues is None or assigned.public_queue in queues:
                assigned.is_paused = paused

    def pop_table(self) -> dict[MessageQueue, dict[str, int | bool]]:
        """Return the sources of a member that pops, for tools; empty for all other members."""
        return {}

    def sent_back(self) -> None:
        """Look for the retry topic soon, because the first message sent back creates it."""
        if self.client.routes.cached_route(retry_topic(self.group)) is None:
            self.tasks.call_later(_RETRY_TOPIC_MS, self.rebalance.wake)

    # --- offsets

    async def commit(
        self, queues: Sequence[AssignedQueue[T]] | None = None, *, again: bool = False
    ) -> bool:
        """Commit the offsets of queues.

        :param again: commit also queues that have not changed since the last commit.
        :returns: whether all offsets are known to be stored.
        """
        table = {assigned.queue: assigned.window.committable
                 for assigned in (self.assigned_queues.values() if queues is None else queues)
                 if assigned.is_settled and (again
                                             or assigned.window.committable != assigned.committed)}
        if not table:
            return True
        committed = await self.offsets.write(table)
        for assigned in list(self.assigned_queues.values()) if queues is None else queues:
            if assigned.queue in committed:
                assigned.committed = committed[assigned.queue]
        return len(committed) == len(table)

    async def commit_beginnings(self, queues: Sequence[AssignedQueue[T]]) -> None:
        """Commit the start offsets of queues that leave before their first pull.

        An offset is committed only if the group has none for the queue. Without it, the next
        member could not know whether such a queue is older than the group.
        """
        reads = [self.tasks.spawn(self.offsets.read(assigned.queue), "offset of a new queue")
                 for assigned in queues]
        outcomes = await self.tasks.all_of(reads)
        table = {assigned.queue: assigned.window.committable
                 for assigned, offset in zip(queues, outcomes, strict=True) if offset is None}
        if table:
            await self.offsets.write(table)

    def settled(self, assigned: AssignedQueue[T]) -> None:
        """Note that the start offset of a queue is known; commit it soon if it is not committed.

        The offsets of all queues that are assigned together are committed together.
        """
        assigned.is_settled = True
        if assigned.is_new and assigned.committed is None and not self._is_committing_soon:
            self._is_committing_soon = True
            self.tasks.call_later(_BEGINNINGS_MS, self._commit_soon)

    def _commit_soon(self) -> None:
        self._is_committing_soon = False
        if not self.is_closing:
            self.tasks.spawn(self.commit_new(), "commit of beginnings")

    async def commit_new(self) -> None:
        """Commit the start offsets of new queues."""
        await self.commit([assigned for assigned in self.assigned_queues.values()
                           if assigned.is_new])

    async def move_to(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue queues at other offsets, also at lower ones; messages read are forgotten.

        Results of running messages do not count. Queues of other members are left out.
        """
        self.rebalance.forget(offsets)
        moved = {queue: offset for queue, offset in offsets.items()
                 if queue in self.assigned_queues}
        for queue, offset in moved.items():
            window = self.assigned_queues[queue].window
            for message in window.drop():
                message.lost = True
            window.freeze_at(offset)
        if not moved:
            return
        left_out = self._moved_lines.left_out(int(self.tasks.now_ms))
        if left_out is not None:
            log.warning("group %s: these queues continue at other offsets: %s%s", self.group,
                        ", ".join(f"{queue} at {offset}" for queue, offset in moved.items()),
                        lines_left_out(left_out))
        for queue, offset in (await self.offsets.write(moved)).items():
            if queue in self.assigned_queues and self.assigned_queues[queue].window.is_dropped:
                self.assigned_queues[queue].committed = offset
        self.rebalance.wake()

    async def _commit_always(self) -> None:
        loop = Loop(f"the commit of group {self.group}", otherwise=False)
        for number in count(1):
            await self.tasks.sleep(self.options.commit_ms)
            # A late commit of the previous member may have reset the offset at the broker.
            await loop.turn(self.commit(again=(
                not self.options.is_broadcast and number % ALL_COMMITTED_EVERY == 0)))

    # --- the end

    async def finish(self) -> None:
        """See ``GroupMember``: commits the results of handlers."""
        await self.commit()
        if self.trace is not None:
            await self.trace.flush()

    async def close(self, timeout_ms: float = 10_000) -> None:
        """Stop reading, wait for the handlers, commit, unlock, and leave the group.

        A second call waits for the end of the first. If a call is cancelled, the close no longer
        waits for handlers, but completes all other steps.
        """
        if self._closing is None:
            self.is_closing = True
            self.rebalance.stop()
            self._stop_reading()
            self._end_pauses()
            while self._waiting:
                self._waiting.popleft().set_error(Closed("the consumer is closed"))
            self._closing = self.tasks.spawn(self._leave(timeout_ms), "close of a consumer")
            # This comes before the traces, which record the last results.
            self.client.before_close.insert(0, self._wait_closed)
        try:
            await self._closing
        except Cancelled:
            self._stop_waiting()
            raise

    @property
    def has_left(self) -> bool:
        """Whether a close has completed."""
        return self._closing is not None and self._closing.is_done

    async def _wait_closed(self) -> None:
        """Wait until the close has completed."""
        assert self._closing is not None
        await self.tasks.all_of([self._closing])

    async def _leave(self, timeout_ms: float) -> None:
        try:
            await self._wait_for_handlers(timeout_ms)
            for loop in self._loops:
                loop.cancel()
            await self.rebalance.finish()
            await self._leave_queues()
            self.assigned_queues.clear()
            self._unfollow()
            if self.trace is not None:
                await self.trace.close()
            await self.client.remove(self)
        finally:
            self.client.before_close.remove(self._wait_closed)

    def _unfollow(self) -> None:
        """Stop following topics, except topics that other members of the client read."""
        if self not in self.client.members:
            return
        others = {topic for each in self.client.members
                  if isinstance(each, Member) and not each.is_closing
                  for topic in each.subscriptions}
        for topic in self.subscriptions.keys() - others:
            self.client.routes.unfollow(topic)

    def _stop_reading(self) -> None:
        """Stop reading messages, because the member closes."""
        for assigned in self.assigned_queues.values():
            if assigned.task is not None:
                assigned.task.cancel()

    async def _leave_queues(self) -> None:
        """Commit the offsets of the queues, and leave the queues."""
        await self.commit_beginnings(
            [assigned for assigned in self.assigned_queues.values() if assigned.is_unread])
        if not await self.commit():
            await self.tasks.sleep(_COMMIT_AGAIN_MS)
            if not await self.commit():
                log.error("group %s: messages that were handled will be delivered again, since "
                          "their offsets could not be committed at the close", self.group)
        for assigned in self.assigned_queues.values():
            for message in assigned.window.drop():
                message.lost = True
        if self.locks is not None:
            # The lock of a handler that still runs expires at the broker.
            self.locks.unlock_all([assigned.queue for assigned in self.assigned_queues.values()
                                   if not assigned.window.running_count])
