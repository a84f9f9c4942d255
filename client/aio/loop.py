"""Provides the connections, timers and futures of an asyncio loop to the client's core."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, cast

from twistmq.client.base.errors import WrongLoop
from twistmq.client.event_loop.driver import Driver, EventLoop
from twistmq.client.event_loop.shell import Shell
from twistmq.client.shell.options import NameServers
from twistmq.protocol.addresses import split_address

__all__ = ["AsyncioShell"]


class StreamProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, driver: Driver, number: int) -> None:
        self._driver = driver
        self._number = number
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast(asyncio.Transport, transport)
        host, port = transport.get_extra_info("sockname")[:2]
        self._driver.connected(self._number, self, f"{host}:{port}")

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._driver.received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._driver.lost(self._number, str(exc) if exc else "the server closed it")

    def write(self, data: bytes) -> None:
        """See ``Stream``."""
        assert self._transport is not None
        self._transport.write(data)

    def unsent_bytes(self) -> int:
        """See ``Stream``."""
        assert self._transport is not None
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """See ``Stream``."""
        if self._transport is None:
            return
        if self.unsent_bytes():
            # A close would wait for a server that does not read.
            self._transport.abort()
        else:
            self._transport.close()

    def kill(self) -> None:
        """See ``Stream``."""
        if self._transport is not None:
            self._transport.abort()


class Loop:
    """An asyncio loop in the form that a driver needs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None) -> None:
        self.loop = loop
        self._tls = tls
        self.driver: Driver | None = None
        self._connecting: dict[int, asyncio.Task[None]] = {}
        #: An asynchronous generator that the loop closes when it ends.
        self._end: AsyncGenerator[None, None] | None = None

    def connect(self, number: int, address: str) -> None:
        """See ``EventLoop``."""
        task = self._connecting[number] = self.loop.create_task(self._connect(number, address))
        task.add_done_callback(lambda _: self._connect_ended(number))

    def _connect_ended(self, number: int) -> None:
        """Report a task that the driver did not cancel; asyncio.run cancels all at its end."""
        task = self._connecting.pop(number, None)
        if task is not None and task.cancelled() and self.driver is not None:
            self.driver.lost(number, "the program cancelled it")

    async def _connect(self, number: int, address: str) -> None:
        driver = self.driver
        assert driver is not None
        try:
            host, port = split_address(address)
            await self.loop.create_connection(
                lambda: StreamProtocol(driver, number), host, port, ssl=self._tls,
                server_hostname=host if self._tls else None)
        except (OSError, ValueError) as error:
            driver.lost(number, str(error))

    def cancel_connect(self, number: int) -> None:
        """See ``EventLoop``."""
        task = self._connecting.pop(number, None)
        if task is not None:
            task.cancel()

    def call_later(self, delay_s: float, function: Callable[[], object]) -> Callable[[], object]:
        """See ``EventLoop``."""
        return self.loop.call_later(delay_s, function).cancel

    def call_soon(self, function: Callable[[], object]) -> None:
        """See ``EventLoop``."""
        self.loop.call_soon(function)

    def in_thread(
        self, function: Callable[[], object],
        then: Callable[[Any, BaseException | None], object],
    ) -> None:
        """See ``EventLoop``."""
        def done(future: asyncio.Future[object]) -> None:
            if not future.cancelled():
                error = future.exception()
                then(None if error else future.result(), error)

        try:
            self.loop.run_in_executor(None, function).add_done_callback(done)
        except RuntimeError:
            # The interpreter is shutting down and refuses new threads.
            self.loop.call_soon(_call_and_tell, function, then)

    def at_end(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], object]:
        """See ``EventLoop``; a loop that ends regularly closes its asynchronous generators."""
        is_over = False

        async def wait() -> AsyncGenerator[None, None]:
            try:
                yield
            finally:
                if not is_over:
                    await finish()

        waiting = self._end = wait()
        with suppress(StopIteration):
            # The generator starts; it does not wait for anything before its ``yield``.
            waiting.__anext__().send(None)

        def forget() -> None:
            nonlocal is_over
            is_over = True
            # The loop may be closing the generator at this moment.
            with suppress(StopIteration, RuntimeError):
                waiting.aclose().send(None)

        return forget

    def from_thread(self, function: Callable[[], object]) -> bool:
        """See ``EventLoop``."""
        if self.loop.is_running():
            self.loop.call_soon_threadsafe(function)
            return True
        return False


def _call_and_tell(
    function: Callable[[], object], then: Callable[[Any, BaseException | None], object]
) -> None:
    try:
        result = function()
    except Exception as error:
        then(None, error)
    else:
        then(result, None)


class AsyncioShell(Shell):
    """Runs coroutines of the core in the loop in which the first call runs."""

    def __init__(self, name_servers: NameServers, arguments: dict[str, Any]) -> None:
        super().__init__(name_servers, arguments)
        #: The running tasks; a loop itself holds no strong references to tasks.
        self._spawned: set[asyncio.Task[None]] = set()
        #: The loop in which the client runs; None: it has not started.
        self._own_loop: asyncio.AbstractEventLoop | None = None

    def make_loop(self, tls: ssl.SSLContext | None) -> EventLoop:
        """See ``Shell``."""
        self._own_loop = asyncio.get_running_loop()
        return Loop(self._own_loop, tls)

    def check_loop(self) -> None:
        """See ``Shell``."""
        self._running_loop()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; :raises WrongLoop: when the client runs in another loop."""
        loop = asyncio.get_running_loop()
        own = self._own_loop
        if own is not None and own is not loop:
            raise WrongLoop(
                f"{self.core!r} belongs to another event loop, which "
                f"{'is closed' if own.is_closed() else 'is not the running one'}: make a new one "
                "in this loop")
        return loop

    def new_future(
        self, cancel: Callable[[], object] | None = None
    ) -> tuple[asyncio.Future[Any], Callable[[Any], None]]:
        """See ``Shell``."""
        future: asyncio.Future[Any] = self._running_loop().create_future()

        def end(outcome: Any) -> None:
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        if cancel is not None:
            future.add_done_callback(lambda _: cancel() if future.cancelled() else None)
        return future, end

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """See ``Shell``."""
        task = asyncio.ensure_future(coroutine)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
        """See ``Shell``."""
        tasks = [asyncio.ensure_future(each) for each in coroutines]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def results(self, futures: Sequence[Any]) -> list[Any]:
        """See ``Shell``."""
        await asyncio.gather(*futures, return_exceptions=True)
        return [future.result() for future in futures]

    def wrap_handler(self, handler: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """See ``Shell``; a plain function runs on a thread."""
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
                getattr(handler, "__call__", None)):  # noqa: B004
            return handler

        async def call(argument: Any) -> Any:
            result = await asyncio.to_thread(handler, argument)
            return await result if inspect.isawaitable(result) else result

        return call
