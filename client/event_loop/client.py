"""The client of an event loop: it answers questions about topics, queues and offsets."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from twistmq.client.base.messages import MessageQueue, PullResult
from twistmq.client.core.consumer.queries import Queries
from twistmq.client.event_loop.shell import Shell
from twistmq.client.event_loop.waits import waits

__all__ = ["LoopClient"]


class LoopClient:
    """A client of a cluster. Producers and consumers that are given the same client share it."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.core = shell.core
        self.queries = Queries(self.core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self.core)

    @property
    def client_id(self) -> str:
        """The id under which brokers know the client."""
        return self.core.client_id

    @waits
    async def close(self) -> None:
        """Leave all groups and close all connections; a second call does nothing."""
        await self.shell.close()

    @waits
    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return await self.shell.call(self.queries.topics())

    @waits
    async def read_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """The queues from which a topic can be read, sorted."""
        return await self.shell.call(self.queries.read_queues(topic, again=again))

    @waits
    async def write_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """The queues to which a topic can be sent, sorted."""
        return await self.shell.call(self.queries.write_queues(topic, again=again))

    @waits
    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can be read."""
        return await self.shell.call(self.queries.min_offset(queue))

    @waits
    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self.shell.call(self.queries.max_offset(queue))

    @waits
    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at that time (Unix ms) or later, or the end of the queue."""
        return await self.shell.call(self.queries.search_offset(queue, timestamp_ms))

    @waits
    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The first offset that a group has not yet consumed; None when it never had the queue."""
        return await self.shell.call(self.queries.group_offset(group, queue))

    @waits
    async def commit_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a group: the first offset that the group has not yet consumed."""
        await self.shell.call(self.queries.commit_group_offset(group, queue, offset))

    @waits
    async def pull(
        self, queue: MessageQueue, offset: int, *, group: str = "twistmq_client",
        max_count: int = 32, expression: str = "*", expression_type: str = "TAG",
        hold_ms: int = 0,
    ) -> PullResult:
        """Pull messages of one queue; the broker may hold the request for ``hold_ms``."""
        return await self.shell.call(self.queries.pull(
            queue, offset, group=group, max_count=max_count, expression=expression,
            expression_type=expression_type, hold_ms=hold_ms))
