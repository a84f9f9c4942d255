"""A member of a group in a simulation; its handlers take time, fail and are cancelled."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.client.invariants import Invariants, PromiseBroken
from twistmq.client.base.errors import Closed
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Cancelled, Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch
from twistmq.client.core.consumer.member import Member
from twistmq.client.roles.parts import build_consumer
from twistmq.client.testing import MemoryCluster

__all__ = ["SimulatedMember"]

#: How long a close may take beyond the wait for handlers, ms.
_CLOSE_MS = 15_000


class SimulatedMember:
    """A member with some workers.

    :param fails: says whether a handler fails.
    """

    def __init__(
        self, cluster: MemoryCluster, promises: Invariants, group: str, topic: str,
        in_order: bool, chance: random.Random, fails: Callable[[], bool],
    ) -> None:
        self.cluster = cluster
        self.client = cluster.client()
        self._promises = promises
        self._chance = chance
        self._fails = fails
        self._in_order = in_order
        #: How long a handler takes at most.
        self.handler_ms = chance.choice((20, 200, 1500, 4000))
        self._take_most = chance.choice((1, 1, 5))
        options: dict[str, Any] = {"start": "first", "order": "queue" if in_order else None}
        self.member: Member[Any] = build_consumer(self.client.core, group, topic, options)
        promises.watch(self.client)
        self.client.engine.tasks.on_failure = self._failed
        self._watch_retries()
        self.client.engine.tasks.spawn(self.member.start(), "start")
        self._waits: list[Task[None]] = []
        self._cancel_some_wait()
        for _ in range(chance.choice((1, 2, 4))):
            self.client.engine.tasks.spawn(self._work(), "worker")
        self._closing: Task[None] | None = None
        self._close_by_ms = 0.0
        cluster.settle()

    def _failed(self, task: Task[Any], error: Exception) -> None:
        if not isinstance(error, Closed):
            self._promises.failures.append(error)

    def _watch_retries(self) -> None:
        """A message that is sent back for sure counts as finished."""
        retries = self.member._parts.retries
        send_back = retries.send_back

        async def watched(message: ReceivedMessage[Any], level: int) -> bool:
            # A reply may be lost after the copy was stored: the copy comes, the message too.
            is_kept = await send_back(message, level)
            if is_kept:
                self._promises.finish(message)
            return is_kept

        retries.send_back = watched  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """Return its name for the steps."""
        return self.client.core.client_id

    # --- workers

    def _cancel_some_wait(self) -> None:
        """Cancel the wait of a worker from time to time, just before messages arrive."""
        arrived = self.member.delivery.arrived

        def watched(assigned: AssignedQueue[Any]) -> None:
            if self._waits and self._chance.random() < 0.2:
                self._waits[0].cancel()
            arrived(assigned)

        self.member.delivery.arrived = watched  # type: ignore[method-assign]

    async def _work(self) -> None:
        tasks = self.client.engine.tasks
        while True:
            batch = self.member.take(self._take_most)
            if batch is not None:
                if self.member.assigned_queues.get(batch.assigned.queue) is not batch.assigned:
                    raise PromiseBroken(f"{self.name} hands out {batch.messages} of a lost queue")
                await self._handle(batch)
                continue
            waiting = tasks.spawn(self.member.ready(), "wait for messages")
            self._waits.append(waiting)
            try:
                await waiting
            except Closed:
                return
            except Cancelled:
                if not waiting.is_done:
                    raise
                await tasks.sleep(1000)
            finally:
                self._waits.remove(waiting)

    async def _handle(self, batch: Batch[Any]) -> None:
        """Handle a batch: in order one message after the other, else all of it together."""
        if not self._in_order:
            await self._handle_some(batch.assigned, batch.messages)
            return
        for index, message in enumerate(batch.messages):
            if message.lost or self.member.is_closing:
                self.member.release(batch.assigned, batch.messages[index:])
                return
            if not await self._handle_some(batch.assigned, [message]):
                self.member.release(batch.assigned, batch.messages[index + 1:])
                return

    async def _handle_some(
        self, assigned: AssignedQueue[Any], messages: list[ReceivedMessage[Any]]
    ) -> bool:
        """Handle messages together; :returns: whether the first was finished."""
        for message in messages:
            self._promises.begin(self.client, message)
        failed: list[ReceivedMessage[Any]] = messages
        try:
            await self.client.engine.tasks.sleep(self._chance.random() * self.handler_ms)
            failed = [message for message in messages if self._fails()]
        finally:
            for message in messages:
                self._promises.end(self.client, message, message not in failed)
        finished = [message for message in messages if message not in failed]
        if finished:
            self.member.succeed(assigned, finished)
        if failed:
            self.member.fail(assigned, failed)
        return messages[0] not in failed

    # --- the end

    @property
    def is_closing(self) -> bool:
        """Whether it is leaving, or has left."""
        return self._closing is not None

    @property
    def is_closed(self) -> bool:
        """Whether it has left, and its client is closed."""
        return self._closing is not None and self._closing.is_done

    def close(self, timeout_ms: float | None = None) -> None:
        """Begin an orderly close."""
        if timeout_ms is None:
            timeout_ms = self._chance.choice((500, 10_000))
        wait_ms = timeout_ms
        # A process that is stopped begins to close when it goes on.
        begin_ms = max(self.cluster.now_ms, self.client.stopped_until_ms)
        self._close_by_ms = begin_ms + timeout_ms + _CLOSE_MS

        async def close() -> None:
            await self.member.close(wait_ms)
            await self.client.core.close()

        self._closing = self.client.engine.tasks.spawn(close(), "close")

    def kill(self) -> None:
        """End as a process that is killed."""
        self.client.kill()
        self._promises.gone(self.client)

    def check(self) -> None:
        """Check promises about this member alone, when nothing more happens at this moment."""
        now_ms = self.cluster.now_ms
        if now_ms < self.client.stopped_until_ms + _CLOSE_MS:
            return
        if self.is_closing:
            if now_ms > self._close_by_ms and not self.is_closed:
                raise PromiseBroken(f"{self.name} does not end to close")
        elif self.member.delivery.ready_queues and any(
                not each.is_done for each in self.member.delivery._waiting):
            raise PromiseBroken(f"{self.name} has messages, and its workers wait")

    def check_closed(self) -> None:
        """Check that a closed client keeps nothing but timers that will end."""
        assert self._closing is not None
        self._closing.result()
        counts = self.client.engine.debug_counts()
        if any(counts.values()):
            raise PromiseBroken(f"{self.name} is closed, and keeps {counts}")
