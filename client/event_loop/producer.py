"""The producer of an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.base.functions import call_fault
from twistmq.client.base.messages import (
    Message,
    MessageQueue,
    ReceivedMessage,
    SendResult,
    check_iterable,
    message_of,
)
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.producer.in_flight_limit import AwaitedInFlightLimit
from twistmq.client.event_loop.async_only import AsyncOnly
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.roles.parts import Parts, build_producer
from twistmq.client.roles.producer import BaseProducer
from twistmq.client.roles.waits import waits
from twistmq.client.shell.transaction import AsyncTransaction

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import MessageArguments

__all__ = ["LoopProducer"]

#: The loop's future of a SendResult.
SendFuture = TypeVar("SendFuture")
C = TypeVar("C", bound=LoopClient)
P = ParamSpec("P")
T = TypeVar("T")


class LoopProducer(AsyncOnly, BaseProducer, Generic[C, SendFuture]):
    """Sends messages."""

    def __init__(self, parts: Parts[C]) -> None:
        self.client = parts.client
        self._queries = parts.client._queries
        self._owns_client = parts.is_own
        self._sender = build_producer(self.client._core, parts.options, awaits=True)
        checks = self._sender.checks
        if checks is not None and call_fault(checks.on_check, is_awaited=False) is not None:
            checks.decide = self._decide
        options = self._sender.options
        self._room = AwaitedInFlightLimit(
            options.in_flight_max, options.in_flight_bytes_max, self.client._core.tasks)
        self.client._shell.rooms[self._room] = options.group
        self._is_started = self._is_closed = False

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Join the group, in the running loop; otherwise the first send joins it.

        :raises WrongLoop: when the client runs in another loop.
        :raises ForkedError: in a child of the process that made the client.
        """
        if not self._is_started:
            self.client._shell.check_process()
            self.client._shell.check_loop()
            self._is_started = True
            self.client._core.add(self._sender)
            self.client._shell.driver.run_soon()

    async def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.client._shell.call(function(*args, **kwargs))

    async def send_soon(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> SendFuture:
        """Send a message; waits only for room among the messages in flight.

        The call itself is awaited in all event loops, because its result is also awaitable.

        :returns: a future of the loop for the result, or for the errors of :meth:`send`.
        :raises Full: when there is no room within the producer's time-out.
        """
        ready = self._prepare(message_of(topic, body, message, queue))
        size = ready.size
        if not self._room.fits(size):
            await self._wait_for_room(size)
        future: SendFuture
        future, end = self.client._shell.new_future()
        self._room.take(size)

        def done(outcome: SendResult | Exception) -> None:
            self._room.give(size)
            end(outcome)

        self.client._core.tasks.call_soon(self._sender.begin_soon, ready, done, queue)
        self.client._shell.driver.run_soon()
        return future

    async def _wait_for_room(self, size: int) -> None:
        tasks = self.client._core.tasks
        deadline_ms = tasks.clock.monotonic_ms() + self._sender.options.timeout_ms
        # Another message may take the room before this coroutine runs again.
        while not self._room.fits(size):
            await self.client._shell.call(self._room.until_fits(size, deadline_ms))

    @waits
    async def send_many(self, messages: Iterable[Message]) -> list[SendResult]:
        """Send messages in one request each, with many requests in flight at once.

        :returns: the result of each message, in order.
        :raises: the first error, as :meth:`send`, after all requests have ended.
        """
        check_iterable(messages)
        futures = [await self.send_soon(message) for message in messages]
        return await self.client._shell.results(futures)

    def transaction(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> AsyncTransaction:
        """A message that is delivered when the block of this context manager ends.

        See ``twistmq.client.shell.transaction``.

        :raises OptionError: when the message cannot be sent, or the option ``on_check`` is not set.
        """
        ready = self._prepare_half(message_of(topic, body, message, queue))
        return AsyncTransaction(self._sender, ready, queue, self.client._shell.call)

    @waits
    async def flush(self) -> None:
        """Wait until all messages of :meth:`send_soon` have ended.

        Each of them ends within the producer's time-out. To wait less, cancel the call, for example
        by ``asyncio.timeout``.
        """
        self.client._core.tasks.call_soon(self._sender.flush_batches)
        self.client._shell.wake()
        while self._room.count:
            await self.client._shell.call(self._room.until_empty())

    @waits
    async def close(self) -> None:
        """Wait for the messages in flight and leave the group; a second call does nothing.

        The close continues when the wait is cancelled. In a child of ``fork`` it does nothing,
        because everything belongs to the parent.
        """
        if self._is_closed or self.client._shell.is_abandoned:
            return
        self._is_closed = True
        await self.client._shell.run_detached(self._close())

    async def _close(self) -> None:
        if not self.client._core.is_closed:
            await self.flush()
        if self._owns_client:
            await self.client.close()
        elif self._is_started and not self.client._core.is_closed:
            await self.client._shell.call(self._sender.leave())

    def _decide(self, message: ReceivedMessage[Any]) -> Future[Any]:
        """Run ``on_check``, a coroutine function, in the loop."""
        assert self._sender.checks is not None
        on_check = self._sender.checks.on_check
        decided: Future[Any] = Future()

        async def decide() -> None:
            try:
                decided.set_result(await on_check(message))
            except Exception as error:
                decided.set_error(error)
            self.client._shell.wake()

        self.client._shell.spawn(decide())
        return decided

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the producer is closed")
        self.start()
