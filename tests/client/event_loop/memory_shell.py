"""Programs of an event loop in a cluster in memory, which the core's scheduler runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import copy_context
from typing import Any, NoReturn, TypeVar, cast
from weakref import WeakKeyDictionary

from twistmq.client.core.connection.tasks import Future, Task
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.consumer import LoopConsumer
from twistmq.client.event_loop.driver import Driver
from twistmq.client.event_loop.shell import Shell
from twistmq.client.roles.parts import parts_of
from twistmq.client.shell.options import CONSUMER
from twistmq.client.testing import MemoryClient

__all__ = ["InContext", "MemoryShell", "consumer_of"]

T = TypeVar("T")


class InContext(Coroutine[Any, Any, T]):
    """A coroutine of a program in its own context, as event loops run their tasks."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._context = copy_context()

    def send(self, value: Any) -> Any:
        """See ``Coroutine``."""
        return self._context.run(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """See ``Coroutine``."""
        return self._context.run(self._coroutine.throw, *error)

    def close(self) -> None:
        """See ``Coroutine``."""
        self._context.run(self._coroutine.close)

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()


class Promise:
    """A future of the loop; the program may be cancelled while it waits for it."""

    def __init__(self, cancel: Callable[[], object] | None) -> None:
        self.future: Future[Any] = Future()
        self._cancel = cancel

    def __await__(self) -> Generator[Future[Any], None, Any]:
        future = self.future
        try:
            if not future.is_done:
                yield future
        except BaseException:
            if self._cancel is not None and not future.is_done:
                self._cancel()
            raise
        return future.result()


class _Driver:
    """The cluster runs the engine, so nothing is scheduled."""

    def __init__(self, client: MemoryClient) -> None:
        self._tasks = client.engine.tasks

    def spawn(
        self, coroutine: Coroutine[Any, Any, T], then: Callable[[Future[T]], object]
    ) -> Task[T]:
        task = self._tasks.spawn(coroutine, "call")
        task.when_done(then)
        return task

    def run_soon(self) -> None:
        """Do nothing, because the cluster runs it."""

    def stop(self) -> None:
        """Do nothing, because there is no socket."""

    def when_closed(self, then: Callable[[], object]) -> None:
        """Return at once, because there is no socket."""
        then()


class MemoryShell(Shell):
    """A shell that runs on the loop of the cluster.

    ``ends`` counts the waits of programs that ended with a result; ``on_end`` is called at each of
    them, before the program runs again.
    """

    def __init__(self, client: MemoryClient) -> None:
        self.core = client.core
        self.client = client
        self._watch = None
        self.rooms = WeakKeyDictionary()
        self._forget_end = lambda: None
        self._driver = cast(Driver, _Driver(client))
        self.ends = 0
        self.on_end: Callable[[int], object] = lambda _: None

    def make_loop(self, tls: object) -> NoReturn:
        """See ``Shell``."""
        raise AssertionError("there is no other loop")

    def new_future(
        self, cancel: Callable[[], object] | None = None
    ) -> tuple[Any, Callable[[Any], None]]:
        """See ``Shell``."""
        promise = Promise(cancel)

        def end(outcome: Any) -> None:
            if promise.future.is_done:
                return
            if isinstance(outcome, Exception):
                promise.future.set_error(outcome)
            else:
                promise.future.set_result(outcome)
            self.ends += 1
            self.on_end(self.ends)

        return promise, end

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """See ``Shell``."""
        self.core.tasks.spawn(InContext(coroutine), "program")

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
        """See ``Shell``."""
        await self.core.tasks.all_of([self.core.tasks.spawn(InContext(each), "program")
                                      for each in coroutines])

    async def results(self, futures: Sequence[Any]) -> list[Any]:
        """See ``Shell``."""
        return [await each for each in futures]

    def wrap_handler(self, handler: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """See ``Shell``."""
        async def call(argument: Any) -> Any:
            return handler(argument)

        return call

    def sleep(self, milliseconds: float) -> Awaitable[None]:
        """Wait in the program itself."""
        async def sleep() -> None:
            await self.core.tasks.sleep(milliseconds)

        return self.call(sleep())


def consumer_of(shell: MemoryShell, **options: Any) -> LoopConsumer[LoopClient, bytes]:
    """Return a consumer of group ``g`` and topic ``T``."""
    parts = parts_of(None, LoopClient(shell), LoopClient, CONSUMER, options)
    return LoopConsumer(parts, "g", "T")
