"""The handover of queues that a member loses: it stops, commits, and gives the locks back.

Waiting messages are forgotten and running messages are marked as lost. The offset is committed at
once, and once more if handlers end soon, because the member that gets a queue asks for its offset
only after half a second. The lock is given back when the handler ends.

Source: RebalancePushImpl.removeUnnecessaryMessageQueue @5.3.3.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Generic, TypeVar

from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, AssignedQueues
from twistmq.client.core.consumer.committer import Committer
from twistmq.client.core.consumer.queue_listeners import QueueListeners
from twistmq.client.core.consumer.queue_locks import Locks
from twistmq.client.core.consumer.stop_positions import StopPositions
from twistmq.protocol.bodies import MessageQueue

__all__ = ["Handover"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long to wait for the handler of a lost ordered queue before its lock is given back, in ms: a
#: broker releases a lock that was not renewed for this time.
UNLOCK_WAIT_MS: Final = 60_000
#: The longest time for the commit of a lost queue, in ms.
COMMIT_WAIT_MS: Final = 1000
#: The time that handlers of lost queues have to end, in ms, and the tolerance when it is checked.
HANDLERS_WAIT_MS: Final = 300
LATE_MS: Final = 50
#: Changes of members within this time count as one change, in ms.
FLOOR_MS: Final = 3_000


class Handover(Generic[T]):
    """Gives up queues of one member.

    :param group: the group's name at brokers.
    :param stops: remembers where this member stopped.
    :param locks: the locks of ordered queues, or None.
    """

    def __init__(
        self, client: ClientCore, group: str, queues: AssignedQueues[T], committer: Committer[T],
        stops: StopPositions, locks: Locks | None, listeners: QueueListeners,
    ) -> None:
        self._client = client
        self._group = group
        self._queues = queues
        self._committer = committer
        self._stops = stops
        self._locks = locks
        self._listeners = listeners
        #: The tasks that give up queues.
        self._leaving: set[Task[None]] = set()
        #: Ordered queues that are lost and still locked, with the tasks that give the locks back.
        self._ending: dict[MessageQueue, tuple[AssignedQueue[T], Task[None]]] = {}

    def is_ending(self, queue: MessageQueue) -> bool:
        """Whether a queue is lost and still locked, so that it cannot be taken again."""
        return queue in self._ending

    def set_floors(self) -> None:
        """Note the committed offsets of all queues, because the members change.

        The next member of a queue may ask for its offset before this member gives it up.
        """
        for assigned in self._queues.values():
            self._set_floor(assigned)

    def _set_floor(self, assigned: AssignedQueue[T]) -> None:
        """Note the committed offset, unless that was done shortly before for the same change."""
        now_ms = self._client.tasks.now_ms
        if assigned.committed is not None and now_ms - assigned.floor_ms > FLOOR_MS:
            assigned.floor, assigned.floor_ms = assigned.committed, now_ms

    async def give_up(self, lost: list[AssignedQueue[T]]) -> None:
        """Commit queues, drop them, and give their locks back.

        If handlers end soon, their results are committed too.
        """
        unread = [assigned for assigned in lost if assigned.is_unread]
        for assigned in lost:
            self._queues.pop(assigned.queue, None)
            if assigned.task is not None:
                assigned.task.cancel()
            if (self._queues.fixed is None and assigned.is_settled
                    and not assigned.window.is_dropped):
                self._set_floor(assigned)
                self._stops.note_lost(assigned)
            for message in assigned.window.stop_handing_out():
                message.lost = True
        if lost:
            # This task continues even if the rounds of the rebalance end.
            leaving = self._client.tasks.spawn(
                self._commit_lost(lost, unread), "queues that are lost")
            self._leaving.add(leaving)
            leaving.when_done(lambda _: self._leaving.discard(leaving))
            await leaving

    async def _commit_lost(
        self, lost: list[AssignedQueue[T]], unread: list[AssignedQueue[T]]
    ) -> None:
        committer, tasks = self._committer, self._client.tasks
        until_ms = tasks.now_ms + HANDLERS_WAIT_MS
        running = [assigned for assigned in lost if assigned.window.running_count]
        committing: list[Task[Any]] = [
            tasks.spawn(committer.commit(lost), "commit of lost queues"),
            tasks.spawn(committer.commit_beginnings(unread), "beginnings of lost queues")]
        try:
            while tasks.now_ms < until_ms and any(assigned.window.running_count
                                                  for assigned in running):
                await tasks.sleep(10)
            # Later than this, the new member may have made more progress.
            if running and tasks.now_ms <= until_ms + LATE_MS:
                committing.append(tasks.spawn(committer.commit(running), "commit of lost queues"))
            await tasks.wait_for(COMMIT_WAIT_MS, tasks.spawn(tasks.all_of(committing)),
                                 TimeoutError)
        except TimeoutError:
            log.warning("%d queues that another member has now were not committed in time",
                        len(lost))
        finally:
            for assigned in lost:
                assigned.window.drop()
        self._stops.keep_positions(lost)
        if self._locks is not None:
            for assigned in lost:
                self._ending[assigned.queue] = assigned, tasks.spawn(
                    self._unlock(assigned, self._locks), "unlock")
        log.info("group %s: this member has lost %d queues", self._group, len(lost))
        self._listeners.call_lost([assigned.public_queue for assigned in lost
                                   if not assigned.is_retry])

    async def _unlock(self, assigned: AssignedQueue[T], locks: Locks) -> None:
        """Give a lock back after the handler has ended; only then the queue is taken again."""
        end_ms = self._client.tasks.now_ms + UNLOCK_WAIT_MS
        while assigned.window.running_count and self._client.tasks.now_ms < end_ms:
            await self._client.tasks.sleep(20)
        await locks.unlock([assigned.queue])
        self._ending.pop(assigned.queue, None)

    async def finish(self) -> None:
        """Complete the work for lost queues: commits, and locks that can be given back.

        The lock of a handler that still runs expires at the broker.
        """
        await self._client.tasks.all_of(self._leaving)
        unlocking = []
        for assigned, task in self._ending.values():
            if assigned.window.running_count:
                # Otherwise it would give back the lock of a later member of this client.
                task.cancel()
            else:
                unlocking.append(task)
        await self._client.tasks.all_of(unlocking)
