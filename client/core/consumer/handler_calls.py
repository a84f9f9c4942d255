"""Calls of handlers: which messages a handler gets, and how the outcome of each call is handled.

The generators of :class:`HandlerCalls` yield the arguments of the calls. A shell calls the handler,
on a thread or by awaiting it, and sends its result or throws its error into the generator, which
runs on the handler's thread. The shell also provides the function that passes results to the
engine.

Messages that a worker has taken when the consumer stops are handed back, unless a later message of
their queue was passed to a handler before. The group commits one offset per queue, so a message
that is handed back makes the group repeat all finished messages after it.

Source: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Final, Generic, TypeVar

from twistmq.client.base.errors import AlreadyHandled, NotAssigned, OptionError, Undecodable
from twistmq.client.base.functions import call_fault
from twistmq.client.base.handlers import NoResult, failure_level
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch
from twistmq.client.core.consumer.member import Member

__all__ = ["TAKE", "HandlerCalls", "Steps", "await_steps", "check_run", "run_steps"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The number of messages that are taken at once when they are handled one after the other.
TAKE: Final = 64

#: The end of the error for a handler whose call does nothing.
_AWAITING: Final = ("; a consumer of twistmq.client.aio or twistmq.client.tx takes coroutine "
                    "functions")

#: Yields the argument of each call of a handler, and receives the result of the call.
Steps = Generator[Any, Any, None]


class HandlerCalls(Generic[T]):
    """Passes the messages of a member to handlers.

    :param undecodable: the option: "retry", "skip" or "raise".
    :param post: calls a function of the member with arguments, in the engine.
    :param acknowledges: whether requesting the next message of an iteration acknowledges the
        previous one.
    :param lock: is held while a worker decides whether it begins a message; None: all workers run
        on one thread.
    """

    def __init__(
        self, member: Member[T], undecodable: str, post: Callable[..., object], *,
        acknowledges: bool = True, lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._member = member
        self._undecodable = undecodable
        self._post = post
        self.acknowledges = acknowledges
        #: Whether the consumer stops. Handlers then get only messages that precede a message that a
        #: handler has already received.
        self.is_stopped = False
        self._lock: AbstractContextManager[object] = nullcontext() if lock is None else lock
        #: The messages that iterations took and that have no result yet, by ``id``. Only the engine
        #: accesses the dict, so that each message gets exactly one result, from the first of: the
        #: next step of the iteration, :meth:`acknowledge`, or the end of the iteration.
        self._pending: dict[int, tuple[AssignedQueue[T], ReceivedMessage[T]]] = {}

    # --- the messages of iterations; all of these methods are called in the engine

    def take(self, batch: Batch[T]) -> None:
        """Record a batch that an iteration took."""
        for message in batch.messages:
            self._pending[id(message)] = (batch.assigned, message)

    def succeed(self, messages: Iterable[ReceivedMessage[T]]) -> None:
        """Mark messages as successful, because their iterations requested the next messages."""
        for assigned, each in self._without_result(messages):
            self._member.succeed(assigned, each)

    def release(self, messages: Iterable[ReceivedMessage[T]]) -> None:
        """Let messages without a result wait again, because their iterations have ended."""
        for assigned, each in self._without_result(messages):
            self._member.release(assigned, each)

    def release_all(self) -> None:
        """Release messages that the program did not acknowledge, because the consumer closes.

        If iterations acknowledge automatically, the close waits for their loops instead.
        """
        if not self.acknowledges:
            self.release([message for _, message in self._pending.values()])

    def succeed_taken(
        self, messages: Sequence[ReceivedMessage[T]]
    ) -> list[ReceivedMessage[T]]:
        """Mark messages of iterations as processed; :returns: all other messages."""
        others = [message for message in messages if id(message) not in self._pending]
        self.succeed(messages)
        return others

    def acknowledge(self, messages: Sequence[ReceivedMessage[T]]) -> None:
        """Acknowledge messages of iterations that the program has processed.

        :raises AlreadyHandled: when a message is unknown or has its result already.
        :raises NotAssigned: when its queue belongs to another member now. In both cases, all other
            messages are acknowledged.
        """
        fault: NotAssigned | None = None
        for message in messages:
            if id(message) not in self._pending:
                fault = AlreadyHandled(
                    f"{message!r} does not wait for an acknowledgement: it has its result already, "
                    "or no iteration of this consumer returned it")
            elif message.lost:
                fault = NotAssigned(f"{message!r}: its queue no longer belongs to this consumer, "
                                    "so the message will be delivered again")
        self.succeed(message for message in messages if not message.lost)
        if fault is not None:
            raise fault

    def _without_result(
        self, messages: Iterable[ReceivedMessage[T]]
    ) -> list[tuple[AssignedQueue[T], list[ReceivedMessage[T]]]]:
        """Take out the messages without a result; adjacent messages of a queue stay together."""
        batches: list[tuple[AssignedQueue[T], list[ReceivedMessage[T]]]] = []
        for message in messages:
            pair = self._pending.pop(id(message), None)
            if pair is None:
                continue
            if batches and batches[-1][0] is pair[0]:
                batches[-1][1].append(message)
            else:
                batches.append((pair[0], [message]))
        return batches

    # --- handlers

    def is_decodable(self, assigned: AssignedQueue[T], message: ReceivedMessage[T]) -> bool:
        """Whether a handler gets a message: it has a value, or is delivered as damaged.

        A message without a value is treated as the option specifies.

        :raises Undecodable: when the option is "raise".
        """
        try:
            _ = message.value
        except Undecodable as error:
            if message.damage:
                return True
            if self._undecodable == "raise":
                raise
            log.warning("%s", error)
            end = self._member.succeed if self._undecodable == "skip" else self._member.fail
            self._post(self._end, end, assigned, message)
            return False
        return True

    def _end(
        self, end: Callable[..., object], assigned: AssignedQueue[T], message: ReceivedMessage[T]
    ) -> None:
        self._pending.pop(id(message), None)
        end(assigned, [message])

    def _may_begin(self, assigned: AssignedQueue[T], first_offset: int, last_offset: int) -> bool:
        """Note that a handler gets messages of a queue; :returns: False because of a stop.

        Workers take the messages of a queue in order, but the system may suspend a thread between
        the take and the call of its handler. Another worker may handle later messages and stop the
        consumer in this time. The earlier messages are then handled as well.
        """
        with self._lock:
            if self.is_stopped and first_offset > assigned.begun_offset:
                return False
            if last_offset > assigned.begun_offset:
                assigned.begun_offset = last_offset
            return True

    @property
    def size(self) -> int:
        """The number of messages of a queue that a worker takes at once, for :meth:`one_by_one`."""
        return TAKE if self._member.options.in_order else 1

    def one_by_one(self, batch: Batch[T]) -> Steps:
        """Call the handler for each message; a call without an error has processed its message."""
        assigned, remaining = batch.assigned, list(batch.messages)
        member, post = self._member, self._post
        try:
            while remaining and not remaining[0].lost:
                message = remaining[0]
                if not self._may_begin(assigned, message.offset, message.offset):
                    break
                if self.is_decodable(assigned, message):
                    try:
                        yield message
                    except Exception as error:
                        del remaining[0]
                        post(member.fail, assigned, [message], failure_level(message, error))
                        if member.options.in_order:
                            break
                        continue
                    post(member.succeed, assigned, [message])
                del remaining[0]
        finally:
            # Also when the worker is cancelled: the remaining messages are delivered again.
            if remaining:
                post(member.release, assigned, remaining)

    def as_list(self, batch: Batch[T]) -> Steps:
        """Call the handler once with all messages; it returns how many it processed, or None."""
        assigned = batch.assigned
        remaining = list(batch.messages)
        try:
            ready = [each for each in batch.messages if self._is_kept(assigned, each, remaining)]
            if (not ready or any(each.lost for each in ready)
                    or not self._may_begin(assigned, ready[0].offset, ready[-1].offset)):
                return
            try:
                done = _count_of((yield ready), len(ready))
            except Exception as error:
                remaining.clear()
                self._post(self._member.fail, assigned, ready, failure_level(ready[0], error))
                return
            remaining.clear()
            if done:
                self._post(self._member.succeed, assigned, ready[:done])
            if done < len(ready):
                self._post(self._member.fail, assigned, ready[done:])
        finally:
            if remaining:
                self._post(self._member.release, assigned, remaining)

    def _is_kept(
        self, assigned: AssignedQueue[T], message: ReceivedMessage[T],
        remaining: list[ReceivedMessage[T]],
    ) -> bool:
        if self.is_decodable(assigned, message):
            return True
        remaining.remove(message)
        return False


def _count_of(result: Any, count: int) -> int:
    """Return how many of ``count`` messages a handler of lists processed.

    :param result: the handler's result; None stands for all messages.
    :raises NoResult: when the result is not a number.
    """
    try:
        return count if result is None else max(0, min(int(result), count))
    except (TypeError, ValueError):
        raise NoResult(f"the handler returned a {type(result).__name__}, which is not a number of "
                       "messages") from None


def check_run(handler: object, workers: int, size: int, *, is_awaited: bool) -> None:
    """Check the arguments of a run before it begins.

    :param is_awaited: whether the shell awaits the handler's result.
    :raises OptionError: when calling the handler would do nothing, or there are no workers.
    """
    if not callable(handler):
        raise OptionError(f"the handler is {handler!r}: give a function of a message")
    fault = call_fault(handler, is_awaited=is_awaited)
    if fault is not None:
        raise OptionError(f"the handler {handler!r} {fault}{_AWAITING}")
    for name, value in (("workers", workers), ("size", size)):
        if type(value) is not int or value < 1:
            raise OptionError(f"{name} is {value!r}: give a whole number of at least 1")


def _check_result(result: object) -> None:
    """:raises NoResult: when the result is an awaitable, so that the handler is not done yet."""
    if hasattr(result, "__await__"):
        if isinstance(result, Coroutine):
            result.close()
        raise NoResult("the handler returned an awaitable, which a blocking consumer does not "
                       "await: use a consumer of twistmq.client.aio or twistmq.client.tx")


def run_steps(steps: Steps, handler: Callable[[Any], object]) -> None:
    """Call a handler with each argument that the steps yield."""
    with closing(steps):
        try:
            argument = next(steps)
            while True:
                try:
                    result = handler(argument)
                    if result is not None:
                        _check_result(result)
                except Exception as error:
                    argument = steps.throw(error)
                else:
                    argument = steps.send(result)
        except StopIteration:
            return


async def await_steps(steps: Steps, handler: Callable[[Any], Awaitable[object]]) -> None:
    """Await a handler with each argument that the steps yield."""
    with closing(steps):
        try:
            argument = next(steps)
            while True:
                try:
                    result = await handler(argument)
                except Exception as error:
                    argument = steps.throw(error)
                else:
                    argument = steps.send(result)
        except StopIteration:
            return
