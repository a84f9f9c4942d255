"""The intake of a member that pops: which sources it pops, and how a close gives messages back."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from twistmq.client.base.messages import MessageQueue
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.rounds import Rounds
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.assignments import PopAssignments
from twistmq.client.core.pop.pop_loop import PopLoop
from twistmq.client.core.pop.popped_lines import PoppedLines
from twistmq.protocol.errors import BrokerError

__all__ = ["PopIntake"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The time for which a close waits for the brokers, in ms.
_CLOSE_MS: Final = 3000


class PopIntake(Generic[T]):
    """Pops the sources of one member.

    :param group: the group's name at brokers.
    """

    #: The brokers keep track of each message.
    has_offsets = False

    def __init__(
        self, client: ClientCore, group: str, subscriptions: SubscriptionTable, rounds: Rounds,
        assignments: PopAssignments[T], popping: PopLoop[T], lines: PoppedLines[T],
        acks: Acknowledger,
    ) -> None:
        self._client = client
        self._group = group
        self._subscriptions = subscriptions
        self._rounds = rounds
        self._assignments = assignments
        self._popping = popping
        self._lines = lines
        self._acks = acks

    # --- the group

    async def begin(self) -> None:
        """Find the topics, ask for the first assignment, and begin the rounds.

        :raises Closed: when the client or the member is closed during this call.
        :raises Unsupported: when a broker does not support pop consumption.
        """
        for topic in self._subscriptions:
            try:
                await self._client.routes.find(topic)
            except BrokerError as error:
                log.debug("topic %s has no route yet: %s", topic, error)
        await self._rounds.begin(self._assignments.round)
        await self._assignments.require_pop()
        await self._assignments.round()

    def assigned(self) -> list[MessageQueue]:
        """Return the queues that are popped, in order; id -1 stands for all queues of a broker."""
        return sorted(source.public_queue for source in self._popping.sources.values())

    def set_paused(self, queues: Sequence[MessageQueue] | None, paused: bool) -> None:
        """Pause or resume the pops of some sources, as ``assigned`` names them, or of all."""
        if queues is None:
            self._popping.is_paused = paused
        for source in self._popping.sources.values():
            if queues is None or source.public_queue in queues:
                source.is_paused = paused
        self._popping.wake()

    async def commit(self) -> bool:
        """Wait until the acknowledgements in flight have ended."""
        await self._acks.flush()
        return True

    async def move_to(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Ignore a reset of offsets by a tool: the broker itself pops from the new offsets."""

    def pop_table(self) -> dict[MessageQueue, dict[str, int | bool]]:
        """Return the state of each source, with the fields of Apache's PopProcessQueueInfo."""
        counts = self._lines.count_by_broker()
        return {queue: {"waitAckCount": counts[queue.broker_name], "droped": source.is_dropped,
                        "lastPopTimestamp": source.popped_ms}
                for queue, source in self._popping.sources.items()}

    # --- the end

    def stop(self) -> None:
        """Stop popping, because the member closes."""
        self._rounds.stop()
        self._popping.change([])

    async def leave(self) -> None:
        """Acknowledge finished messages, and make all other messages visible again."""
        await self._rounds.finish()
        unfinished = self._lines.drop_all()
        await self._within_close(self._acks.flush())
        await self._within_close(self._lines.give_back(unfinished))

    async def _within_close(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._client.tasks.spawn(coroutine, "end of a consumer")
        try:
            await self._client.tasks.wait_for(_CLOSE_MS, task, TimeoutError)
        except TimeoutError:
            task.cancel()
            log.warning("brokers do not answer: popped messages of group %s will be delivered "
                        "again later", self._group)
