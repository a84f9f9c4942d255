"""The blocking consumer as a member of a group: how it joins, calls its core and leaves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.blocking.client import Client, closing_on_error
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.roles.member import BaseMember
from twistmq.client.roles.parts import Parts
from twistmq.client.roles.waits import ForThreads

__all__ = ["BlockingMember"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class BlockingMember(ForThreads, BaseMember[T]):
    """A consumer, which is a member of its group from its construction on."""

    def _join(self, parts: Parts[Client], group: str, topics: Topics | None) -> None:
        """Join the group.

        :param topics: the topics to read; None: the consumer subscribes later.
        """
        self.client = parts.client
        self._core = parts.client._core
        self._owns_client = parts.is_own
        self._is_closed = False
        with closing_on_error(parts):
            self._member = self._build(self.client._core, group, topics, parts.options)
            self.client._run(self._member.start)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine function of the core; :raises Closed: when the consumer is closed."""
        self._check_open()
        return self.client._run(make)

    def _apply(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return self.client._loop.call_in_loop(lambda: function(*args, **kwargs))

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        self.client._loop.post(function, *arguments)

    def close(self) -> None:
        """Leave the group; a second call does nothing.

        In a child of ``fork`` it does nothing, because everything belongs to the parent.

        :raises RuntimeError: when it is called on the client's own thread.
        """
        self._leave(lambda: self._member.close(0))

    def _check_thread(self) -> None:
        """:raises RuntimeError: on the client's own thread, which cannot wait for itself."""
        if not self.client._core.is_closed:
            self.client._loop.check_thread()

    def _leave(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Leave the group by a coroutine of the core, and close the client if it is not shared.

        A second call waits for the work that an interrupted call began, and then completes it. A
        forked child does nothing.
        """
        if self.client._loop.is_over:
            return
        self._check_thread()
        self._is_closed = True
        try:
            if not (self.client._core.is_closed or self._member.has_left):
                # Another thread may close the client first.
                with suppress(Closed):
                    self.client._run(make)
        finally:
            if self._owns_client:
                self.client.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the consumer is closed")
