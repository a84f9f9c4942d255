"""The producer of an event loop."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.base.messages import (
    Message,
    MessageQueue,
    ReceivedMessage,
    SendResult,
    message_of,
)
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.producer.outgoing import Outgoing
from twistmq.client.core.producer.recalls import recall
from twistmq.client.core.producer.replies import prepare_request, request
from twistmq.client.core.producer.room import AwaitedRoom
from twistmq.client.core.producer.transactions import prepare_half
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.waits import waits
from twistmq.client.shell.options import milliseconds
from twistmq.client.shell.roles import Parts, build_producer
from twistmq.client.shell.transaction import AsyncTransaction

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import MessageArguments

__all__ = ["LoopProducer"]

#: The loop's future of a SendResult.
F = TypeVar("F")
C = TypeVar("C", bound=LoopClient)


class LoopProducer(Generic[C, F]):
    """Sends messages."""

    def __init__(self, parts: Parts[C]) -> None:
        self.client = parts.client
        self._owns_client = parts.is_own
        self.sender = build_producer(self.client.core, parts.options)
        checks = self.sender.checks
        if checks is not None and inspect.iscoroutinefunction(checks.on_check):
            checks.decide = self._decide
        options = self.sender.options
        self._room = AwaitedRoom(
            options.in_flight_max, options.in_flight_bytes_max, self.client.core.tasks)
        self.client.shell.rooms[options.group] = self._room
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
        """Join the group, in the running loop; otherwise the first send joins it."""
        if not self._is_started:
            self._is_started = True
            self.client.core.add(self.sender)
            self.client.shell.driver.run_soon()

    def __repr__(self) -> str:
        return f"<{self.sender!r}{', closed' if self._is_closed else ''}>"

    @property
    def group(self) -> str:
        """The producer group."""
        return self.sender.options.group

    @waits
    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which a topic can be sent."""
        return await self.client.write_queues(topic)

    @waits
    async def send(
        self, /, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Unpack[MessageArguments],
    ) -> SendResult:
        """Send a message and wait until it is stored; :class:`Message` has the parameters.

        If the wait is cancelled, the message stays under way and may be stored.

        :raises SendFailed: when all attempts failed.
        :raises RequestRefused: when the broker refuses the message permanently.
        :raises OptionError: when the message cannot be sent to any broker.
        """
        timeout_ms = milliseconds(timeout_s, self.sender.options.timeout_ms)
        ready = self._prepare(message_of(topic, body, message))
        return await self.client.shell.call(self.sender.send(
            ready, queue, timeout_ms=timeout_ms))

    async def send_soon(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> F:
        """Send a message; waits only for room among the messages under way.

        The call itself is awaited in all event loops, because its result is also awaitable.

        :returns: a future of the loop for the result, or for the errors of :meth:`send`.
        :raises Full: when there is no room within the producer's time-out.
        """
        ready = self._prepare(message_of(topic, body, message))
        size = ready.size
        if not self._room.fits(size):
            await self._wait_for_room(size)
        self._room.take(size)
        future: F
        future, end = self.client.shell.promise()

        def done(outcome: SendResult | Exception) -> None:
            self._room.give(size)
            end(outcome)

        self.client.core.tasks.soon(self.sender.begin_soon, ready, done, queue)
        self.client.shell.driver.run_soon()
        return future

    async def _wait_for_room(self, size: int) -> None:
        tasks = self.client.core.tasks
        deadline_ms = tasks.clock.monotonic_ms() + self.sender.options.timeout_ms
        # Another message may take the room before this coroutine runs again.
        while not self._room.fits(size):
            await self.client.shell.call(self._room.until_fits(size, deadline_ms))

    @waits
    async def send_many(self, messages: Sequence[Message]) -> list[SendResult]:
        """Send messages in one request each, with many requests under way at once."""
        futures = [await self.send_soon(message) for message in messages]
        return await self.client.shell.results(futures)

    @waits
    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic in one request: either all are stored, or none."""
        self._check_open()
        ready = self.sender.prepare_batch(messages)
        return await self.client.shell.call(self.sender.send(ready, queue))

    @waits
    async def send_oneway(
        self, /, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> None:
        """Send a message without a response: the program does not learn whether it is stored."""
        ready = self._prepare(message_of(topic, body, message))
        await self.client.shell.call(self.sender.send_oneway(ready, queue))

    @waits
    async def request(
        self, /, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Unpack[MessageArguments],
    ) -> ReceivedMessage[Any]:
        """Send a message and wait for its consumer's reply, see ``reply`` of consumers.

        :param timeout_s: how long to wait for the reply; None: the producer's time-out.
        :returns: the reply; its ``body`` is the one that the consumer gave.
        :raises RequestTimeout: when the reply does not arrive in time.
        :raises SendFailed, RequestRefused, OptionError: as :meth:`send`.
        """
        self._check_open()
        timeout_ms = milliseconds(timeout_s, self.sender.options.timeout_ms)
        ready = prepare_request(self.sender, message_of(topic, body, message), timeout_ms)
        return await self.client.shell.call(request(self.sender, ready, queue, timeout_ms))

    @waits
    async def recall(self, result: SendResult) -> None:
        """Cancel a message with a delayed delivery, given the result of its send.

        :raises OptionError: when the broker returned no recall handle for it.
        :raises RequestRefused: when the broker refuses the recall, for example because it is too
            late.
        """
        self._check_open()
        await self.client.shell.call(recall(self.sender, result))

    def transaction(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> AsyncTransaction:
        """A message that is delivered when the block of this context manager ends.

        See ``twistmq.client.shell.transaction``.

        :raises OptionError: when the message cannot be sent, or the option ``on_check`` is not set.
        """
        self._check_open()
        ready = prepare_half(self.sender, message_of(topic, body, message))
        return AsyncTransaction(self.sender, ready, queue, self.client.shell.call)

    @waits
    async def flush(self) -> None:
        """Wait until all messages of :meth:`send_soon` have ended."""
        self.client.core.tasks.soon(self.sender.flush_batches)
        self.client.shell.wake()
        while self._room.count:
            await self.client.shell.call(self._room.until_empty())

    @waits
    async def close(self) -> None:
        """Wait for the messages under way and leave the group; a second call does nothing.

        The close continues when the wait is cancelled.
        """
        if self._is_closed:
            return
        self._is_closed = True
        await self.client.shell.beside(self._close())

    async def _close(self) -> None:
        if not self.client.core.is_closed:
            await self.flush()
        if self._owns_client:
            await self.client.close()
        elif self._is_started and not self.client.core.is_closed:
            await self.client.shell.call(self.sender.leave())

    def _decide(self, message: ReceivedMessage[Any]) -> Future[Any]:
        """Run ``on_check``, a coroutine function, in the loop."""
        assert self.sender.checks is not None
        on_check = self.sender.checks.on_check
        decided: Future[Any] = Future()

        async def decide() -> None:
            try:
                decided.set_result(await on_check(message))
            except Exception as error:
                decided.set_error(error)
            self.client.shell.wake()

        self.client.shell.spawn(decide())
        return decided

    def _prepare(self, message: Message) -> Outgoing:
        self._check_open()
        return self.sender.prepare(message)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the producer is closed")
        self.start()
