"""The three styles of the client, so that one test can run in each of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

import twistmq.client
from twistmq.client import aio, tx

__all__ = ["STYLES", "Style", "in_each_style"]


class Style:
    """A style of the client.

    A test is a coroutine function. In the style for threads it runs on a thread of its own, where
    its calls block.
    """

    def __init__(self, name: str, module: ModuleType) -> None:
        self.name = name
        self.module: Any = module
        #: What each object is made with in addition to its options.
        self.more: dict[str, Any] = {"reactor": reactor} if module is tx else {}

    async def got(self, value: Any) -> Any:
        """Return the value of a call, awaited if necessary."""
        return await value if inspect.isawaitable(value) else value

    async def result(self, future: Any) -> Any:
        """Return the result of a future that ``send_soon`` gave."""
        return future.result(20) if self.module is twistmq.client else await future

    @asynccontextmanager
    async def opened(self, thing: Any) -> AsyncIterator[Any]:
        """Enter a client, a producer or a consumer by ``with`` or ``async with``."""
        if hasattr(thing, "__aenter__"):
            async with thing:
                yield thing
        else:
            with thing:
                yield thing

    def run(self, main: Callable[[Style], Coroutine[Any, Any, None]]) -> Deferred[Any]:
        """Run a test."""
        if self.module is tx:
            return Deferred.fromCoroutine(main(self))
        return deferToThread(lambda: asyncio.run(main(self)))  # type: ignore[arg-type]


STYLES: Final = (Style("threads", twistmq.client), Style("asyncio", aio), Style("twisted", tx))


def in_each_style(main: Callable[[Style], Coroutine[Any, Any, None]]) -> Deferred[Any]:
    """Run a test in the three styles, one after the other."""
    async def run() -> None:
        for style in STYLES:
            await _named(style, style.run(main))

    return Deferred.fromCoroutine(run())


async def _named(style: Style, running: Awaitable[Any]) -> None:
    """Wait for a test, and note at an error in which style it was raised."""
    try:
        await running
    except BaseException as error:
        error.add_note(f"in the style {style.name}")
        raise
