"""The positions of a pull consumer: where its next poll continues in each queue.

Source: DefaultLitePullConsumerImpl (seek, committed), AssignedMessageQueue @5.3.3.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from twistmq.client.base.errors import NotAssigned, OptionError
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, AssignedQueues
from twistmq.client.core.consumer.offsets import OffsetStore
from twistmq.client.core.consumer.queries import Queries
from twistmq.client.core.consumer.takeover import Takeover
from twistmq.protocol.bodies import MessageQueue

__all__ = ["Positions"]

T = TypeVar("T")


class Positions(Generic[T]):
    """The positions of one consumer; queues have their names in the namespace here.

    :param takeover: continues a queue elsewhere.
    """

    def __init__(
        self, client: ClientCore, queues: AssignedQueues[T], offsets: OffsetStore,
        takeover: Takeover[T],
    ) -> None:
        self._client = client
        self._queues = queues
        self._offsets = offsets
        self._takeover = takeover
        self._queries = Queries(client)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset from which the next poll hands out messages of a queue.

        :raises NotAssigned: when the queue is not assigned to this consumer now.
        """
        assigned = self._assigned(queue)
        waiting = assigned.window.next_waiting
        return assigned.next_offset if waiting is None else waiting

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group; None when there never was one.

        :raises BrokerError: when it cannot be determined now.
        """
        await self._client.locate(queue)
        return await self._offsets.read(self._client.namespace.queue(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at an offset; the next commit commits it.

        :raises NotAssigned: when the queue is not assigned to this consumer now.
        :raises OptionError: when the queue does not have this offset.
        """
        self._assigned(queue)
        first = await self._queries.min_offset(queue)
        end = await self._queries.max_offset(queue)
        if not max(first, 0) <= offset <= end:
            raise OptionError(f"the queue {queue} has offsets from {first} to {end}, not {offset}")
        self._takeover.restart(self._assigned(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue a queue at its first message."""
        self._assigned(queue)
        first = await self._queries.min_offset(queue)
        # Apache's broker reports -1 as the beginning of a queue that it does not have.
        self._takeover.restart(self._assigned(queue), max(first, 0))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue a queue at its next new message."""
        self._assigned(queue)
        end = await self._queries.max_offset(queue)
        self._takeover.restart(self._assigned(queue), end)

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """Continue a queue at the first message stored at that Unix ms or later."""
        self._assigned(queue)
        offset = await self._queries.search_offset(queue, time_ms)
        self._takeover.restart(self._assigned(queue), offset)

    def _assigned(self, queue: MessageQueue) -> AssignedQueue[T]:
        assigned = self._queues.get(self._client.namespace.queue(queue))
        if assigned is None or assigned.window.is_dropped:
            raise NotAssigned(f"this consumer does not have the queue {queue} now")
        return assigned
