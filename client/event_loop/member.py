"""The consumer of an event loop as a member of a group: how it joins, calls its core and leaves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.event_loop.async_only import AsyncOnly
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.roles.member import BaseMember
from twistmq.client.roles.parts import Parts
from twistmq.client.roles.waits import waits

__all__ = ["LoopMember"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
C = TypeVar("C", bound=LoopClient)

#: How long calls may continue without a turn of the loop, ms.
TURN_MS: Final = 5


class LoopMember(AsyncOnly, BaseMember[T], Generic[C, T]):
    """A consumer.

    :param topics: the topics to read; None: the consumer subscribes later.
    """

    def __init__(self, parts: Parts[C], group: str, topics: Topics | None) -> None:
        self.client = parts.client
        self._core = parts.client._core
        self._owns_client = parts.is_own
        self._member = self._build(parts.client._core, group, topics, parts.options)
        self._is_started = self._is_closed = False

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # The block was not entered, so its exit does not run either.
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @waits
    async def start(self) -> None:
        """Join the group, in the running loop; joining continues when the wait is cancelled."""
        if self._is_closed:
            raise Closed("the consumer is closed")
        if not self._is_started:
            self._is_started = True
            await self.client._shell.call(self._member.start(), to_its_end=True)

    async def _call(
        self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        await self.start()
        return await self.client._shell.call(function(*args, **kwargs))

    def _call_inline(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a function of the core without a turn of the loop; the core runs soon.

        :returns: None when it was not called: the consumer has not joined yet or is closed, or the
            loop needs a turn, for example because the program keeps the loop busy between its
            calls.
        """
        tasks = self._member.tasks
        if not self._is_started or self.client._core.is_closed or (
                tasks.clock.monotonic_ms() - tasks.now_ms > TURN_MS):
            return None
        result = function(*args, **kwargs)
        self.client._shell.wake()
        return result

    def _apply(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        self.client._shell.wake()
        return result

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        if self.client._shell.is_elsewhere:
            # A handler of asyncio that is a plain function runs on a thread.
            self.client._shell.call_from_thread(lambda: self._post(function, *arguments))
            return
        function(*arguments)
        self.client._shell.wake()

    @waits
    async def close(self) -> None:
        """Leave the group; a second call does nothing."""
        await self._leave(self._member.close(0))

    async def _leave(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Leave the group by a coroutine of the core, and close the client if it is not shared.

        This continues when the wait is cancelled, because a member that had only begun to leave
        would keep queues that it does not read. A forked child does nothing.
        """
        if self._is_closed or self.client._shell.is_abandoned:
            coroutine.close()
            return
        self._is_closed = True
        await self.client._shell.run_detached(self._finish_leaving(coroutine))

    async def _finish_leaving(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self._is_started and not self.client._core.is_closed:
            await self.client._shell.call(coroutine)
        else:
            coroutine.close()
        if self._owns_client:
            await self.client.close()
