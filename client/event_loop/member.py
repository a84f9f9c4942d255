"""The methods that all kinds of event loop consumers share as members of a group."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.base.messages import MessageQueue
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.subscriptions import Sql, subscription
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.waits import waits
from twistmq.client.shell.roles import Parts

__all__ = ["LoopMember"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
C = TypeVar("C", bound=LoopClient)

#: How long calls may continue without a turn of the loop, ms.
TURN_MS: Final = 5


class LoopMember(Generic[C, T]):
    """A consumer.

    :param member: the core of the consumer.
    """

    def __init__(self, parts: Parts[C], member: Member[T]) -> None:
        self.client = parts.client
        self._owns_client = parts.is_own
        self.member = member
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
            await self.client.shell.call(self.member.start(), to_its_end=True)

    async def _call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Join, and run a coroutine of the core."""
        try:
            await self.start()
        except BaseException:
            coroutine.close()
            raise
        return await self.client.shell.call(coroutine)

    def _at_once(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a function of the core without a turn of the loop; the core runs soon.

        :returns: None when it was not called: the consumer has not joined yet or is closed, or the
            loop needs a turn, for example because the program keeps the loop busy between its
            calls.
        """
        tasks = self.member.tasks
        if not self._is_started or self.client.core.is_closed or (
                tasks.clock.monotonic_ms() - tasks.now_ms > TURN_MS):
            return None
        result = function(*args, **kwargs)
        self.client.shell.wake()
        return result

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function of the core, and let the core run soon."""
        function(*arguments)
        self.client.shell.wake()

    def __repr__(self) -> str:
        return f"<{self.member!r}{', closed' if self._is_closed else ''}>"

    def pause(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Stop pulling some queues, or all; messages that were already read are still delivered."""
        self._post(self.member.set_paused, queues, True)

    def resume(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Undo :meth:`pause`."""
        self._post(self.member.set_paused, queues, False)

    def assigned(self) -> list[MessageQueue]:
        """The queues that are currently assigned to this member."""
        return self.member.assigned()

    @property
    def damaged_count(self) -> int:
        """The number of damaged messages that were left out, see the option ``damaged``."""
        return self.member.damaged_count

    @waits
    async def commit(self) -> None:
        """Commit the offsets now; otherwise they are committed every five seconds."""
        await self._call(self.member.commit())

    def subscribe(self, topic: str, expression: str | Sql | None = None) -> None:
        """Read one more topic, or change its expression.

        :raises OptionError: when queues are assigned.
        """
        name = self.client.core.namespace.topic(topic)
        self._post(self.member.subscribe, subscription(name, expression))

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        self._post(self.member.unsubscribe, self.client.core.namespace.topic(topic))

    @waits
    async def close(self) -> None:
        """Leave the group; a second call does nothing."""
        await self._leave(self.member.close(0))

    async def _leave(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Leave the group by a coroutine of the core, and close the client if it is not shared.

        This continues when the wait is cancelled, because a member that had only begun to leave
        would keep queues that it does not read.
        """
        if self._is_closed:
            coroutine.close()
            return
        self._is_closed = True
        await self.client.shell.beside(self._finish_leaving(coroutine))

    async def _finish_leaving(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self._is_started and not self.client.core.is_closed:
            await self.client.shell.call(coroutine)
        else:
            coroutine.close()
        if self._owns_client:
            await self.client.close()
