"""The consumer of an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.assigned_queues import Batch
from twistmq.client.core.consumer.handler_calls import (
    TAKE,
    HandlerCalls,
    Steps,
    await_steps,
    check_run,
)
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.core.consumer.turns import Turn
from twistmq.client.event_loop.async_only import AsyncOnlyLoop
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.member import LoopMember
from twistmq.client.roles.consumer import BaseConsumer
from twistmq.client.roles.parts import Parts
from twistmq.client.roles.waits import waits
from twistmq.client.shell.options import milliseconds

__all__ = ["LoopConsumer"]

T = TypeVar("T")
C = TypeVar("C", bound=LoopClient)


class LoopConsumer(AsyncOnlyLoop, LoopMember[C, T], BaseConsumer[T]):
    """A member of a consumer group."""

    def __init__(self, parts: Parts[C], group: str, topics: Topics | None) -> None:
        super().__init__(parts, group, topics)
        self._handling = HandlerCalls(
            self._member, parts.options.get("undecodable", "retry"), self._post,
            acknowledges=parts.options.get("auto_acknowledge", True))
        #: The time-out of a close that a handler requested; the end of the run carries it out.
        self._close_later: float | None = None

    # --- messages

    async def _take(self, max_count: int) -> Batch[T] | None:
        """Wait for messages and take some from one queue; None when the consumer stops."""
        batches: list[Batch[T]] = []
        is_wanted = True

        async def take() -> None:
            while is_wanted and not self._handling.is_stopped:
                batch = self._member.take(max_count)
                if batch is not None:
                    batches.append(batch)
                    return
                try:
                    await self._member.ready()
                except Closed:
                    return

        if self._handling.is_stopped:
            return None
        await self.start()
        try:
            await self.client._shell.call(take())
        except BaseException:
            # The wait was cancelled, perhaps just after messages were taken.
            is_wanted = False
            for batch in batches:
                self._post(self._member.release, batch.assigned, batch.messages)
            raise
        return batches[0] if batches else None

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage[T]]:
        """Iterate over messages; asking for the next message acknowledges the previous one.

        A loop that is left early, by ``break``, an error or a cancellation, has not acknowledged
        its last message, unless the program called ``acknowledge``. That message is delivered
        again. The same holds when the consumer is closed inside the loop.
        """
        await self.start()
        handling = self._handling
        while (batch := await self._take(TAKE)) is not None:
            handling.take(batch)
            remaining = list(batch.messages)
            turn = Turn(self._member, partial(self._give_back, remaining))
            turn.begin()
            try:
                while remaining:
                    message = remaining[0]
                    if message.lost:
                        self._post(handling.release, [message])
                    elif handling.is_decodable(batch.assigned, message):
                        if handling.acknowledges:
                            yield message
                            if not remaining:
                                # The consumer was closed inside the loop.
                                return
                            self._post(handling.succeed, [message])
                        else:
                            del remaining[0]
                            yield message
                            continue
                    del remaining[0]
            finally:
                turn.end()
                self._give_back(remaining)

    def _give_back(self, remaining: list[ReceivedMessage[T]]) -> None:
        """Return messages to the waiting ones, because their iteration ends."""
        if remaining:
            self._post(self._handling.release, list(remaining))
            remaining.clear()

    @waits
    async def run(
        self, handler: Callable[[ReceivedMessage[T]], Any], *, workers: int = 20
    ) -> None:
        """Pass each message to a handler until :meth:`stop`, or until one cannot be decoded.

        :param handler: a message is processed when its call succeeds, and not processed when the
            call fails. It may be a coroutine function. asyncio runs plain functions on threads;
            Twisted calls them in the reactor, and accepts Deferreds.
        :param workers: how many messages are handled at once.
        """
        await self._work(self._handling.one_by_one, handler, workers, self._handling.size)

    @waits
    async def run_batches(
        self, handler: Callable[[list[ReceivedMessage[T]]], Any], *, size: int = 32,
        workers: int = 20,
    ) -> None:
        """Pass lists of messages of one queue to a handler until :meth:`stop`.

        :param handler: as for :meth:`run`. Its result is how many of the first messages it
            processed, or None for all of them.
        """
        await self._work(self._handling.as_list, handler, workers, size)

    async def _work(
        self, steps_of: Callable[[Batch[T]], Steps], handler: Callable[[Any], Any],
        workers: int, size: int,
    ) -> None:
        """Run workers until the consumer stops."""
        check_run(handler, workers, size, is_awaited=True)
        await self.start()
        call = self.client._core.interceptors.wrap_awaited(
            self._member.options.group, self.client._shell.wrap_handler(handler))
        is_wanted = True

        async def worker() -> None:
            turn = Turn(self._member)
            turn.begin()
            try:
                while is_wanted and (batch := await self._take(size)) is not None:
                    await await_steps(steps_of(batch), call)
            finally:
                turn.end()

        try:
            await self.client._shell.gather([worker() for _ in range(workers)])
        finally:
            is_wanted = False
            if self._close_later is not None:
                await self.close(self._close_later)

    # --- control

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the consumer is closed")

    @waits
    async def close(self, timeout_s: float = 10.0) -> None:
        """Stop reading, wait for handlers, commit and leave; a second call does nothing.

        When a handler of this consumer calls it, it returns at once, and the consumer closes when
        the running handlers have ended. When the loop of an iteration calls it, the consumer
        closes, and the message of the loop is delivered again. In a child of ``fork`` it does
        nothing, because everything belongs to the parent.
        """
        timeout_ms = milliseconds(timeout_s)
        if self.client._shell.is_abandoned:
            return
        turns = Turn.running(self._member)
        if any(turn.give_back is None for turn in turns):
            self._close_later = timeout_s
            self.stop()
            return
        self._handling.is_stopped = True
        for turn in turns:
            if turn.give_back is not None:
                turn.give_back()
        self._post(self._handling.release_all)
        await self._leave(self._member.close(timeout_ms))
