"""Members of consumer groups in a simulation that poll or pop, beside ``SimulatedMember``."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Any, Final

from tests.client.invariants import Invariants, PromiseBroken
from tests.plugins.dledger.client_records import PopInvariants
from tests.plugins.dledger.group_cluster import GroupCluster
from twistmq.client.base.errors import Closed
from twistmq.client.core.connection.tasks import Task
from twistmq.client.roles.parts import build_pop_consumer, build_pull_consumer
from twistmq.protocol.errors import BrokerError

__all__ = ["INVISIBLE_MS", "PolledMember", "PoppingMember"]

#: How long popped messages are invisible, ms.
INVISIBLE_MS: Final = 10_000
#: An acknowledgement counts if the broker accepted it at least this long before the message becomes
#: visible again, ms.
_MARGIN_MS: Final = 1000
_HANDLER_MS: Final = (5, 100, 800)
_CLOSE_MS: Final = 40_000


class LoopingMember:
    """A member whose program is a loop."""

    def __init__(self, cluster: GroupCluster, failures: list[Exception], chance: random.Random
                 ) -> None:
        self.cluster = cluster
        self.client = cluster.client()
        self._failures = failures
        self._chance = chance
        self.handler_ms = chance.choice(_HANDLER_MS)
        self._closing: Task[None] | None = None
        self._close_by_ms = 0.0
        self.client.engine.tasks.on_failure = self._failed

    def _begin(self) -> None:
        self.client.engine.tasks.spawn(self._start(), "start")
        self.client.engine.tasks.spawn(self._work(), "program")
        self.cluster.settle()

    def _failed(self, task: Task[Any], error: Exception) -> None:
        if not isinstance(error, Closed):
            self._failures.append(error)

    @abstractmethod
    async def _start(self) -> None:
        """Join the group."""

    @abstractmethod
    async def _work(self) -> None:
        """Run the program."""

    @abstractmethod
    async def _leave(self) -> None:
        """Leave the group."""

    @property
    def name(self) -> str:
        """Return its name for the steps."""
        return self.client.core.client_id

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
        async def close() -> None:
            await self._leave()
            await self.client.core.close()

        self._close_by_ms = self.cluster.now_ms + _CLOSE_MS
        self._closing = self.client.engine.tasks.spawn(close(), "close")

    def kill(self) -> None:
        """End as a process that is killed."""
        self.client.kill()

    def check(self) -> None:
        """Check that a close ends."""
        if self.is_closing and not self.is_closed and self.cluster.now_ms > self._close_by_ms:
            raise PromiseBroken(f"{self.name} does not end to close")


class PolledMember(LoopingMember):
    """A member that is polled; each poll acknowledges the messages of the one before."""

    def __init__(self, cluster: GroupCluster, promises: Invariants, group: str, topic: str,
                 chance: random.Random) -> None:
        super().__init__(cluster, promises.failures, chance)
        self._promises = promises
        self._pull = build_pull_consumer(self.client.core, group, topic, {"start": "first"})
        promises.watch(self.client)
        self._begin()

    async def _start(self) -> None:
        await self._pull.member.start()

    async def _work(self) -> None:
        poller, tasks = self._pull.poller, self.client.engine.tasks
        while True:
            with poller.polls.begin() as poll:
                batches = await poller.poll(poll, 8, 3000)
            messages = [message for batch in batches for message in batch.messages]
            for message in messages:
                self._promises.begin(self.client, message)
            is_done = False
            try:
                await tasks.sleep(self._chance.random() * self.handler_ms)
                is_done = True
            finally:
                for message in messages:
                    self._promises.end(self.client, message, is_done)

    async def _leave(self) -> None:
        await self._pull.leave()

    def kill(self) -> None:
        """End as a process that is killed."""
        super().kill()
        self._promises.gone(self.client)


class PoppingMember(LoopingMember):
    """A member that pops, and acknowledges most messages."""

    def __init__(self, cluster: GroupCluster, promises: PopInvariants, group: str, topic: str,
                 chance: random.Random) -> None:
        super().__init__(cluster, promises.failures, chance)
        self._promises = promises
        self._pop = build_pop_consumer(self.client.core, group, topic, {
            "start": "first", "invisible_s": INVISIBLE_MS / 1000})
        self._begin()

    async def _start(self) -> None:
        await self._pop.member.start()

    async def _work(self) -> None:
        receiver, tasks = self._pop.receiver, self.client.engine.tasks
        while True:
            batches = await receiver.receive(8, None, 3000)
            messages = [message for batch in batches for message in batch.messages]
            for message in messages:
                self._promises.begin(message)
            await tasks.sleep(self._chance.random() * self.handler_ms)
            for message in messages:
                if self._chance.random() < 0.1:
                    # The program forgets it, so it is received again.
                    continue
                try:
                    await receiver.acknowledge([message])
                except Closed:
                    raise
                except BrokerError:
                    continue
                if message.expires_ms > tasks.now_ms + _MARGIN_MS:  # type: ignore[attr-defined]
                    self._promises.finish(message)

    async def _leave(self) -> None:
        await self._pop.member.close(10_000)
