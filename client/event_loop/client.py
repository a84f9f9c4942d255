"""The client of an event loop: it answers questions about topics, queues and offsets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from twistmq.client.event_loop.async_only import AsyncOnly
from twistmq.client.event_loop.shell import Shell
from twistmq.client.roles.client import BaseClient
from twistmq.client.roles.waits import waits

__all__ = ["LoopClient"]

P = ParamSpec("P")
T = TypeVar("T")


class LoopClient(AsyncOnly, BaseClient):
    """A client of a cluster. Producers and consumers that are given the same client share it."""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell.core)
        self._shell = shell

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @waits
    async def close(self) -> None:
        """Leave all groups and close all connections; a second call does nothing."""
        await self._shell.close()

    async def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._shell.call(function(*args, **kwargs))
