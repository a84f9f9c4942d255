"""The consumer of an event loop that is polled."""

from __future__ import annotations

from typing import TypeVar

from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.member import LoopMember
from twistmq.client.roles.pull_consumer import BasePullConsumer
from twistmq.client.roles.waits import waits

__all__ = ["LoopPullConsumer"]

T = TypeVar("T")
C = TypeVar("C", bound=LoopClient)


class LoopPullConsumer(LoopMember[C, T], BasePullConsumer[T]):
    """The coroutine version of :class:`twistmq.client.blocking.pull_consumer.PullConsumer`."""

    @waits
    async def close(self) -> None:
        """Commit the acknowledged offsets and leave the group; a second call does nothing."""
        await self._leave(self._pull.leave())
