"""The intake of a member that pulls: which queues it has, and how their messages come in.

    rounds               when the queues are divided               rounds.py
    rebalance            which queues this member has              rebalance.py
    handover, takeover   how queues go and come                    handover.py, takeover.py
    starts, stops        where queues begin, and where they ended  start_offsets.py,
                                                                   stop_positions.py
    fetcher              one task per queue, within flow control   fetcher.py, pull_gate.py
    committer            when offsets are stored                   committer.py, offsets.py
    moves                when an offset is changed from outside    offset_moves.py
    locks                the locks of ordered queues               queue_locks.py
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueues, MemberOptions
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.committer import Committer
from twistmq.client.core.consumer.damaged_messages import DamageLog
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.fetcher import Fetcher
from twistmq.client.core.consumer.flow_control import PullFlow
from twistmq.client.core.consumer.handover import Handover
from twistmq.client.core.consumer.initial_offsets import Beginnings
from twistmq.client.core.consumer.message_intake import MessageIntake
from twistmq.client.core.consumer.offset_moves import OffsetMoves
from twistmq.client.core.consumer.offsets import OffsetStore
from twistmq.client.core.consumer.pull_gate import PullGate
from twistmq.client.core.consumer.queue_listeners import QueueListeners
from twistmq.client.core.consumer.queue_locks import Locks
from twistmq.client.core.consumer.rebalance import Rebalance
from twistmq.client.core.consumer.rounds import Rounds
from twistmq.client.core.consumer.start_offsets import StartOffsets
from twistmq.client.core.consumer.stats import MemberStats
from twistmq.client.core.consumer.stop_positions import StopPositions
from twistmq.client.core.consumer.subscriber import Subscriber
from twistmq.client.core.consumer.subscription_check import SubscriptionCheck
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.client.core.consumer.takeover import Takeover
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.errors import BrokerError

__all__ = ["QueueIntake"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The wait before a failed commit of a close is tried once more, in ms.
_COMMIT_AGAIN_MS: Final = 200


class QueueIntake(Generic[T]):
    """Reads the queues of one member.

    :param group: the group's name at brokers.
    :param offsets: stores the offsets of the group.
    :param decode: returns the value of a message; with None, the value is the body.
    :param mark_group: see ``Committer``.
    """

    #: The member commits offsets, so tools can ask for them.
    has_offsets = True

    def __init__(
        self, client: ClientCore, group: str, options: MemberOptions, closing: CloseSignal,
        subscriptions: SubscriptionTable, queues: AssignedQueues[T], delivery: Delivery[T],
        listeners: QueueListeners, stats: MemberStats, damage: DamageLog, offsets: OffsetStore,
        decode: Callable[[ReceivedMessage[T]], T] | None,
        mark_group: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        tasks = client.tasks
        self._client = client
        self._group = group
        self._subscriptions = subscriptions
        self._queues = queues
        self._loops: list[Task[None]] = []
        self._locks = Locks(client, group, queues.queue_windows) if options.needs_locks else None
        self.committer: Committer[T] = Committer(
            tasks, group, options, closing, queues, offsets, mark_group)
        self.rounds = Rounds(client, group, options.rebalance_ms, closing, subscriptions, queues)
        self.beginnings = Beginnings(client, group, options, subscriptions, offsets)
        self.stops = StopPositions(client)
        self.moves = OffsetMoves(tasks, group, queues, offsets, self.stops, self.rounds.wake)
        self._flow = PullFlow(queues.total, options.limits, options.cache_bytes_max)
        self._gate = PullGate(
            tasks, options, queues, self._flow, needs_locks=self._locks is not None)
        fetcher: Fetcher[T] = Fetcher(
            client, group, options, subscriptions, queues, self._flow, self._gate,
            MessageIntake(tasks, group, options, delivery, stats, damage, decode),
            offsets, self.moves, self.beginnings, self.committer.settled)
        self._handover: Handover[T] = Handover(
            client, group, queues, self.committer, self.stops, self._locks, listeners)
        self.starts = StartOffsets(client, group, offsets, self.stops, self.beginnings)
        self.takeover: Takeover[T] = Takeover(
            client, group, closing, subscriptions, queues, self.starts, self.stops, fetcher,
            self._handover, self._locks, listeners)
        check = SubscriptionCheck(client, group, subscriptions)
        self._rebalance: Rebalance[T] = Rebalance(
            client, group, options, subscriptions, queues, self.beginnings, check,
            self._handover, self.takeover)
        self.subscriber = Subscriber(
            client, subscriptions, queues, self.rounds.wake, self.beginnings, check)
        self.rounds.on_members_changed.append(self._handover.set_floors)
        if not options.is_broadcast:
            self.rounds.on_members_changed.append(self._commit_now)

    def _commit_now(self) -> None:
        """Commit, because other members may take queues soon."""
        self._client.tasks.spawn(self.committer.commit(), "commit before a rebalance")

    # --- the group

    async def begin(self) -> None:
        """Find the topics, and begin the rounds that assign queues.

        :raises Closed: when the client or the member is closed during this call.
        """
        for topic in self._subscriptions:
            try:
                route = await self._client.routes.find(topic)
                self.beginnings.note_queues(topic, route.read_queues)
            except BrokerError as error:
                self.beginnings.note_missing(topic, error)
                # The retry topic does not exist before the first retry.
                log.debug("topic %s has no route yet: %s", topic, error)
        await self.rounds.begin(self._rebalance.round)
        self._loops.append(self._client.tasks.spawn(self.committer.commit_always(), "commits"))
        if self._locks is not None:
            self._loops.append(self._client.tasks.spawn(self._locks.renew_always(), "locks"))

    def assigned(self) -> list[MessageQueue]:
        """Return the queues of the subscribed topics, without retry topics, in order."""
        return sorted(assigned.public_queue for assigned in self._queues.values()
                      if not assigned.is_retry)

    def set_paused(self, queues: Sequence[MessageQueue] | None, paused: bool) -> None:
        """Pause or resume pulls of the given queues (named as in the namespace), or of all."""
        if queues is None:
            self._gate.is_paused = paused
        for assigned in self._queues.values():
            if queues is None or assigned.public_queue in queues:
                assigned.is_paused = paused

    async def commit(self) -> bool:
        """Commit the offsets; :returns: whether all of them are known to be stored."""
        return await self.committer.commit()

    async def move_to(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue queues at other offsets, because a tool moved them."""
        await self.moves.move_to(offsets)

    def pop_table(self) -> dict[MessageQueue, dict[str, int | bool]]:
        """Return the sources that are popped, for tools: there are none."""
        return {}

    # --- the end

    def stop(self) -> None:
        """Stop reading messages, because the member closes."""
        self.rounds.stop()
        for assigned in self._queues.values():
            if assigned.task is not None:
                assigned.task.cancel()

    async def leave(self) -> None:
        """Complete the rounds, commit the offsets of the queues, and give up the queues."""
        for loop in self._loops:
            loop.cancel()
        await self.rounds.finish()
        await self._handover.finish()
        await self.committer.commit_beginnings(
            [assigned for assigned in self._queues.values() if assigned.is_unread])
        is_committed = await self.commit()
        if not is_committed:
            await self._client.tasks.sleep(_COMMIT_AGAIN_MS)
            is_committed = await self.commit()
        if not is_committed:
            log.error("group %s: messages that were handled will be delivered again, since "
                      "their offsets could not be committed at the close", self._group)
        for assigned in self._queues.values():
            for message in assigned.window.drop():
                message.lost = True
        if self._locks is not None:
            # The lock of a handler that still runs expires at the broker.
            unlocking = self._client.tasks.spawn(
                self._locks.unlock([assigned.queue for assigned in self._queues.values()
                                    if not assigned.window.running_count]), "unlock")
            # A broker that did not answer the commits does not delay the close further.
            if is_committed:
                await self._client.tasks.all_of([unlocking])
