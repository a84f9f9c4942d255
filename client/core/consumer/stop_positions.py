"""The positions at which a member stopped in queues that it lost, in case they come back soon.

Apache's client asks where a queue begins when it takes the queue, and commits that offset with its
first pull. If the previous member commits in between, the group goes back. Therefore a member
remembers for some seconds where it stopped. The position counts as long as the connection to the
broker is the same, because a new master may have other messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from twistmq.client.base.errors import NoRoute
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.engine import Connection
from twistmq.client.core.consumer.assigned_queues import AssignedQueue
from twistmq.protocol.bodies import MessageQueue

__all__ = ["StopPosition", "StopPositions"]

#: How long a member remembers where it stopped in a lost queue, in ms: members of Apache's client
#: commit twice in that time.
STOPPED_MS: Final = 10_000


class StopPosition(NamedTuple):
    """The position at which a member stopped in a queue that it lost.

    :param floor: the offset that was committed before the members changed. A member of Apache's
        client cannot have found a lower one, so a lower offset was set by a tool.
    :param ms: the time when it stopped, by the monotonic clock.
    :param connection: the connection to the broker; at the end of another connection, the queue
        may have other messages.
    """

    offset: int
    floor: int
    ms: float
    connection: Connection


class StopPositions:
    """The positions of one member, and the queues that were deleted while it read them."""

    def __init__(self, client: ClientCore) -> None:
        self._client = client
        #: Lost queues whose commits are in flight, and the connections to their brokers.
        self._stopping: dict[MessageQueue, tuple[AssignedQueue[Any], Connection]] = {}
        #: The positions in queues that other members have now.
        self._stopped: dict[MessageQueue, StopPosition] = {}
        #: Queues of topics that were deleted: all messages in them will be new.
        self.deleted: set[MessageQueue] = set()

    def note_lost(self, assigned: AssignedQueue[Any]) -> None:
        """Note that a queue is being given up."""
        connection = self._connection(assigned.queue)
        if connection is not None:
            self._stopping[assigned.queue] = assigned, connection

    def keep_positions(self, lost: list[AssignedQueue[Any]]) -> None:
        """Remember the positions in queues that were noted, now that they are given up."""
        now_ms = self._client.tasks.now_ms
        self._stopped = {queue: stop for queue, stop in self._stopped.items()
                         if now_ms - stop.ms <= STOPPED_MS}
        for assigned in lost:
            stopping, connection = self._stopping.get(assigned.queue, (None, None))
            if stopping is assigned and connection is not None:
                del self._stopping[assigned.queue]
                self._stopped[assigned.queue] = StopPosition(
                    assigned.window.committable, assigned.floor, now_ms, connection)

    def position(self, queue: MessageQueue) -> StopPosition | None:
        """Return the position in a queue, whether or not it still counts."""
        return self._stopped.get(queue)

    def is_valid(self, queue: MessageQueue, stop: StopPosition, stored: int | None) -> bool:
        """Whether the queue may continue at a position.

        :param stored: the group's offset in the queue; None when there is none.
        """
        return (queue not in self.deleted
                and self._client.tasks.now_ms - stop.ms <= STOPPED_MS
                and stop.connection is self._connection(queue)
                and (stored is None or stop.floor <= stored < stop.offset))

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Forget the positions in queues, because a tool moved their offsets."""
        for queue in queues:
            self._stopping.pop(queue, None)
            self._stopped.pop(queue, None)

    def drop(self, queue: MessageQueue) -> None:
        """Forget the position in a queue that this member takes."""
        self._stopped.pop(queue, None)

    def _connection(self, queue: MessageQueue) -> Connection | None:
        """Return the connection to the broker from which a queue is read; None without a route."""
        try:
            address = self._client.routes.reader(self._client.routes.broker_of(queue))
        except NoRoute:
            return None
        return self._client.engine.connection(address)
