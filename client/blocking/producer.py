"""The blocking producer.

    with Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send("orders", b"paid", tags="eu")

A producer may be used by many threads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from twistmq.client.base.errors import Closed, client_error
from twistmq.client.base.messages import (
    Message,
    MessageQueue,
    SendResult,
    check_iterable,
    message_of,
)
from twistmq.client.blocking.client import Client, closing_on_error
from twistmq.client.blocking.futures import RunningFuture
from twistmq.client.blocking.thread_in_flight_limit import ThreadInFlightLimit
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.roles.parts import build_producer, parts_of
from twistmq.client.roles.producer import BaseProducer
from twistmq.client.roles.waits import ForThreads
from twistmq.client.shell.options import PRODUCER, NameServers, lists_options, milliseconds
from twistmq.client.shell.transaction import BlockingTransaction

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.blocking.thread_batcher import ThreadBatcher
    from twistmq.client.shell.arguments import MessageArguments, ProducerArguments

__all__ = ["Producer"]

#: How long after its time-out a send may end during a close, seconds, because threads are busy.
_LATE_S: Final = 5.0


@lists_options(PRODUCER)
class Producer(ForThreads, BaseProducer):
    """Sends messages and blocks until they are stored.

    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None,
        **options: Unpack[ProducerArguments]
    ) -> None:
        parts = parts_of(name_servers, client, Client, PRODUCER, options)
        self.client = parts.client
        self._run = self.client._run
        self._queries = self.client._queries
        self._owns_client = parts.is_own
        with closing_on_error(parts):
            self._sender = build_producer(self.client._core, parts.options)
        self._room = ThreadInFlightLimit(self._sender.options.in_flight_max,
                                self._sender.options.in_flight_bytes_max,
                                self._sender.options.group, self.client._loop.is_own_thread)
        self._batching: ThreadBatcher | None = None
        if self._sender.options.auto_batch:
            # Few producers need this module.
            from twistmq.client.blocking.thread_batcher import ThreadBatcher

            self._batching = self._sender.batching = ThreadBatcher(
                self._sender, self._room, self.client._loop.post)
        self._is_closed = False
        self.client._loop.call_in_loop(lambda: self.client._core.add(self._sender))
        self.client._loop.at_end.add(self._program_ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send_soon(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> ThreadFuture[SendResult]:
        """Send a message; waits only for room among the messages in flight.

        :returns: a future of the result, or of the errors of :meth:`send`.
        :raises Full: when there is no room within the producer's time-out.
        """
        batching = self._batching
        if batching is None:
            return self._send_ready(
                self._sender.prepare(message_of(topic, body, message, queue)), queue)
        self._check_open()
        if type(body) is bytes and type(topic) is str and not message and queue is None:
            waiting = batching.add_plain(topic, body)
            if waiting is not None:
                return waiting
        whole = message_of(topic, body, message, queue)
        ready = self._sender.prepare(whole)
        return batching.add(whole, ready, queue) or self._send_ready(ready, queue)

    def send_batch_soon(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> ThreadFuture[SendResult]:
        """Send a batch as :meth:`send_batch` does, without waiting for the result."""
        self._check_open()
        return self._send_ready(self._sender.prepare_batch(messages), queue)

    def _send_ready(
        self, ready: OutgoingMessage, queue: MessageQueue | None = None
    ) -> ThreadFuture[SendResult]:
        """Send a message or batch that is checked and encoded, as :meth:`send_soon` does."""
        self._check_open()
        size = ready.size
        self._room.take(size, self._sender.options.timeout_ms / 1000)
        future = _Sent(self._room, size)
        self.client._loop.post(self._sender.begin, ready, future, queue)
        return future

    def _program_ended(self) -> None:
        """Log what is lost, because the end of the program has waited for all messages.

        Functions of ``atexit`` that were registered before the client was imported run later than
        the client's own. No other end follows, so each of their messages is waited for at once.
        """
        self._room.tell_lost()
        self._batching = None
        self._send_ready = self._send_last  # type: ignore[method-assign]

    def _send_last(
        self, ready: OutgoingMessage, queue: MessageQueue | None = None
    ) -> ThreadFuture[SendResult]:
        self.client._loop.check_program()
        future = Producer._send_ready(self, ready, queue)
        if not self.client._loop.is_own_thread():
            try:
                self._room.wait_empty(self._sender.options.timeout_ms / 1000 + _LATE_S)
            except TimeoutError:
                # The program must end, so there is no wait for another message.
                self._is_closed = True
            self._room.tell_lost()
        return future

    def send_many(self, messages: Iterable[Message]) -> list[SendResult]:
        """Send messages in one request each, with many requests in flight at once.

        :returns: the result of each message, in order.
        :raises: the first error, as :meth:`send`, after all requests have ended.
        """
        check_iterable(messages)
        waiting = [self.send_soon(message) for message in messages]
        errors = [future.exception() for future in waiting]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in waiting]

    def transaction(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> BlockingTransaction:
        """A message that is delivered when the block of this context manager ends.

        See ``twistmq.client.shell.transaction``.

        :raises OptionError: when the message cannot be sent, or the option ``on_check`` is not set.
        """
        ready = self._prepare_half(message_of(topic, body, message, queue))
        return BlockingTransaction(self._sender, ready, queue, self.client._run)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all messages of :meth:`send_soon` have ended.

        When a signal handler that interrupted a :meth:`send_soon` calls it, the message of that
        call is not waited for.

        :raises TimeoutError: when they have not ended in time.
        :raises RuntimeError: on the client's own thread, for example in the call-back of a future,
            and in a signal handler that interrupted the filling of a batch.
        """
        if timeout_s is not None:
            milliseconds(timeout_s)
        self._check_wait()
        self.client._loop.post(self._sender.flush_batches)
        self._room.wait_empty(timeout_s, self._interrupted())

    def close(self) -> None:
        """Wait for the messages in flight and leave the group; a second call does nothing.

        Failed messages of :meth:`send_soon` are logged, unless the program looked at their futures.
        In a child of ``fork`` it does nothing, because everything belongs to the parent.

        :raises RuntimeError: on the client's own thread, for example in the call-back of a future,
            and in a signal handler that interrupted the filling of a batch.
        """
        if self.client._loop.is_over:
            return
        if not self.client._core.is_closed:
            self._check_wait()
        self._is_closed = True
        try:
            if self._sender in self.client._core.members:
                self._wait_for_all()
        finally:
            self.client._loop.at_end.discard(self._program_ended)
            self._room.tell_lost()
            if self._owns_client:
                self.client.close()
            elif self._sender in self.client._core.members:
                # Another thread may close the client first.
                with suppress(Closed):
                    self.client._run(self._sender.leave)

    def _check_wait(self) -> None:
        """:raises RuntimeError: where the caller must not wait for messages."""
        self.client._loop.check_thread()
        if self._batching is not None and self._batching.is_interrupted:
            raise RuntimeError(
                "this signal handler interrupted a send_soon that fills a batch, so it cannot wait "
                "for the batch: set a flag in the handler, and wait after the send_soon")

    def _interrupted(self) -> int:
        """How many sends of this thread are interrupted by the signal handlers that run now.

        Their messages may already have taken room without being in flight.
        """
        code = Producer._send_ready.__code__
        frame: FrameType | None = sys._getframe()
        count = 0
        while frame is not None:
            count += frame.f_code is code and frame.f_locals.get("self") is self
            frame = frame.f_back
        return count

    def _wait_for_all(self) -> None:
        """Wait for the messages in flight, as long as one of them can still end.

        A signal that arrives between the steps of a send may leave its room taken forever, so the
        wait might never end without a limit. All attempts of a send share one time-out.
        """
        bound_s = self._sender.options.timeout_ms / 1000 + _LATE_S
        # The second pass is for sends of other threads that waited for room.
        for _ in range(2):
            self.client._loop.call_in_loop(self._sender.flush_batches)
            with suppress(TimeoutError):
                self._room.wait_empty(bound_s, self._interrupted())
                break

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the producer is closed")
        self.client._loop.check_process()


class _Sent(RunningFuture[SendResult]):
    """The result of a message in flight, which occupies room until it ends."""

    def __init__(self, room: ThreadInFlightLimit, size: int) -> None:
        self._room = room
        self._size = size

    def __call__(self, outcome: SendResult | Exception) -> None:
        """Give the room back and finish the future, because the send has ended."""
        self._room.give(self._size)
        if isinstance(outcome, Exception):
            self._room.failed(self, 1, outcome)
            self.set_exception(client_error(outcome))
        else:
            self.set_result(outcome)
