"""Commits of a member: when the offsets of its queues are stored, and of which queues.

    every five seconds         queues whose offset has changed; at times all queues
    soon after the first pull  the start of a queue that is new to the group
    before a rebalance, when a queue is lost, and at a close: see their callers

Source: MQClientInstance.persistAllConsumerOffset @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, Final, Generic, TypeVar

from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import (
    AssignedQueue,
    AssignedQueues,
    MemberOptions,
)
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.offsets import OffsetStore
from twistmq.protocol.bodies import MessageQueue

__all__ = ["Committer"]

T = TypeVar("T")

#: The wait before the start offsets of new queues are committed, in ms.
_BEGINNINGS_MS: Final = 50
#: One in this number of commits includes all queues, even queues that have not changed.
ALL_COMMITTED_EVERY: Final = 3


class Committer(Generic[T]):
    """Commits the offsets of one member's queues.

    :param group: the group's name at brokers.
    :param offsets: stores the offsets.
    :param mark_group: called after the start offsets of new queues were committed; or None.
    """

    def __init__(
        self, tasks: Scheduler, group: str, options: MemberOptions, closing: CloseSignal,
        queues: AssignedQueues[T], offsets: OffsetStore,
        mark_group: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._tasks = tasks
        self._group = group
        self._options = options
        self._closing = closing
        self._queues = queues
        self._offsets = offsets
        self._mark_group = mark_group
        self._is_committing_soon = False
        #: The offsets of the commits that the store has not answered.
        self._unanswered: list[dict[MessageQueue, int]] = []

    async def commit(
        self, queues: Sequence[AssignedQueue[T]] | None = None, *, again: bool = False
    ) -> bool:
        """Commit the offsets of queues.

        A queue whose previous commit has no answer yet is always committed, because a seek may
        have set it back to the offset that was committed before.

        :param queues: the queues; None: all queues of the member.
        :param again: commit also queues that have not changed since the last commit.
        :returns: whether all offsets are known to be stored.
        """
        table = {assigned.queue: assigned.window.committable
                 for assigned in (self._queues.values() if queues is None else queues)
                 if assigned.is_settled and (again
                                             or assigned.window.committable != assigned.committed
                                             or self._is_unanswered(assigned.queue))}
        if not table:
            return True
        self._unanswered.append(table)
        try:
            committed = await self._offsets.write(table)
        finally:
            self._unanswered.remove(table)
        for assigned in list(self._queues.values()) if queues is None else queues:
            if assigned.queue in committed:
                assigned.committed = committed[assigned.queue]
        return len(committed) == len(table)

    def _is_unanswered(self, queue: MessageQueue) -> bool:
        return any(queue in table for table in self._unanswered)

    async def commit_beginnings(self, queues: Sequence[AssignedQueue[T]]) -> None:
        """Commit the start offsets of queues that leave before their first pull.

        An offset is committed only if the group has none for the queue. Without it, the next
        member could not know whether such a queue is older than the group.
        """
        reads = [self._tasks.spawn(self._offsets.read(assigned.queue), "offset of a new queue")
                 for assigned in queues]
        outcomes = await self._tasks.all_of(reads)
        table = {assigned.queue: assigned.window.committable
                 for assigned, offset in zip(queues, outcomes, strict=True) if offset is None}
        if table:
            await self._offsets.write(table)

    def settled(self, assigned: AssignedQueue[T]) -> None:
        """Note that the start offset of a queue is known; commit it soon if it is not committed.

        The offsets of all queues that are assigned together are committed together.
        """
        assigned.is_settled = True
        if assigned.is_new and assigned.committed is None and not self._is_committing_soon:
            self._is_committing_soon = True
            self._tasks.call_later(_BEGINNINGS_MS, self._commit_soon)

    def _commit_soon(self) -> None:
        self._is_committing_soon = False
        if not self._closing.is_set:
            self._tasks.spawn(self._commit_new(), "commit of beginnings")

    async def _commit_new(self) -> None:
        """Commit the start offsets of new queues."""
        await self.commit([assigned for assigned in self._queues.values() if assigned.is_new])
        if self._mark_group is not None:
            await self._mark_group()

    async def commit_always(self) -> None:
        """Commit again and again."""
        loop = Loop(f"the commit of group {self._group}", otherwise=False)
        for number in count(1):
            await self._tasks.sleep(self._options.commit_ms)
            # A late commit of the previous member may have reset the offset at the broker.
            await loop.turn(self.commit(again=(
                not self._options.is_broadcast and number % ALL_COMMITTED_EVERY == 0)))
