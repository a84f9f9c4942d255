"""The blocking producer.

    with Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send("orders", b"paid", tags="eu")

It may be used by many threads.
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
    ReceivedMessage,
    SendResult,
    message_of,
)
from twistmq.client.blocking.client import Client, closing_on_error
from twistmq.client.blocking.futures import RunningFuture
from twistmq.client.blocking.thread_room import ThreadRoom
from twistmq.client.core.producer.outgoing import Outgoing
from twistmq.client.core.producer.recalls import recall
from twistmq.client.core.producer.replies import prepare_request, request
from twistmq.client.core.producer.transactions import prepare_half
from twistmq.client.shell.options import PRODUCER, NameServers, milliseconds
from twistmq.client.shell.roles import build_producer, parts_of
from twistmq.client.shell.transaction import BlockingTransaction

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.blocking.batching import ThreadBatching
    from twistmq.client.shell.arguments import MessageArguments, ProducerArguments

__all__ = ["Producer"]

#: How long after its time-out a send may end at a close, seconds: threads are busy then.
_LATE_S: Final = 5.0


class Producer:
    """Sends messages; the blocking one.

    :param name_servers: see ``NameServers`` of ``twistmq.client.shell.options``.
    :param client: a :class:`Client` to share, in place of name servers.
    :param options: see the page of options. A producer without a client to share takes those of
        a client too.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None,
        **options: Unpack[ProducerArguments]
    ) -> None:
        parts = parts_of(name_servers, client, Client, PRODUCER, options)
        self.client = parts.client
        self._owns_client = parts.is_own
        with closing_on_error(parts):
            self.sender = build_producer(self.client.core, parts.options)
        self._room = ThreadRoom(self.sender.options.in_flight_max,
                                self.sender.options.in_flight_bytes_max,
                                self.sender.options.group, self.client.loop.is_own_thread)
        self._batching: ThreadBatching | None = None
        if self.sender.options.auto_batch:
            # Few producers need it.
            from twistmq.client.blocking.batching import ThreadBatching

            self._batching = self.sender.batching = ThreadBatching(
                self.sender, self._room, self.client.loop.post)
        self._is_closed = False
        self.client.loop.run_there(lambda: self.client.core.add(self.sender))
        self.client.loop.at_end.add(self._room.tell_lost)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.sender!r}{', closed' if self._is_closed else ''}>"

    @property
    def group(self) -> str:
        """The producer group."""
        return self.sender.options.group

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that a topic can be sent to."""
        return self.client.write_queues(topic)

    def send(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Unpack[MessageArguments],
    ) -> SendResult:
        """Send a message and wait until it is stored; :class:`Message` has the parameters.

        :raises SendFailed: when all attempts failed.
        :raises RequestRefused: when the broker refuses it for good.
        :raises OptionError: when it cannot be sent to any broker.
        """
        timeout_ms = milliseconds(timeout_s, self.sender.options.timeout_ms)
        ready = self._prepare(message_of(topic, body, message))
        return self.client.run(lambda: self.sender.send(
            ready, queue, timeout_ms=timeout_ms))

    def send_soon(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> ThreadFuture[SendResult]:
        """Send a message and do not wait, but for room among the messages under way.

        :returns: a future of the result, or of the errors of :meth:`send`.
        :raises Full: when there is no room within the producer's time-out.
        """
        batching = self._batching
        if batching is None:
            return self.send_ready(self.sender.prepare(message_of(topic, body, message)), queue)
        self._check_open()
        if type(body) is bytes and type(topic) is str and not message and queue is None:
            waiting = batching.add_plain(topic, body)
            if waiting is not None:
                return waiting
        whole = message_of(topic, body, message)
        ready = self.sender.prepare(whole)
        return batching.add(whole, ready, queue) or self.send_ready(ready, queue)

    def send_batch_soon(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> ThreadFuture[SendResult]:
        """As :meth:`send_batch`, without waiting, as :meth:`send_soon` does not."""
        self._check_open()
        return self.send_ready(self.sender.prepare_batch(messages), queue)

    def send_ready(
        self, ready: Outgoing, queue: MessageQueue | None = None
    ) -> ThreadFuture[SendResult]:
        """As :meth:`send_soon`, for a message or a batch that is checked and encoded."""
        self._check_open()
        size = ready.size
        self._room.take(size, self.sender.options.timeout_ms / 1000)
        future = _Sent(self._room, size)
        self.client.loop.post(self.sender.begin, ready, future, queue)
        return future

    def send_many(self, messages: Iterable[Message]) -> list[SendResult]:
        """Send messages, each as a request of its own, many under way at once.

        :returns: the result of each, in order.
        :raises: as :meth:`send`, for the first that failed, when all have ended.
        """
        waiting = [self.send_soon(message) for message in messages]
        errors = [future.exception() for future in waiting]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in waiting]

    def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic as one request: all are stored, or none."""
        self._check_open()
        ready = self.sender.prepare_batch(messages)
        return self.client.run(lambda: self.sender.send(ready, queue))

    def send_oneway(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> None:
        """Send a message without an answer: whether it is stored is not known.

        :raises NoRoute: when no broker takes the topic.
        """
        ready = self._prepare(message_of(topic, body, message))
        self.client.run(lambda: self.sender.send_oneway(ready, queue))

    def request(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Unpack[MessageArguments],
    ) -> ReceivedMessage[Any]:
        """Send a message whose consumer replies, see ``reply`` of consumers, and wait for that.

        :param timeout_s: until the reply is there; None: the producer's.
        :returns: the reply; its ``body`` is what the consumer gave.
        :raises RequestTimeout: when there is no reply in time.
        :raises SendFailed, RequestRefused, OptionError: as :meth:`send`.
        """
        self._check_open()
        timeout_ms = milliseconds(timeout_s, self.sender.options.timeout_ms)
        ready = prepare_request(self.sender, message_of(topic, body, message), timeout_ms)
        return self.client.run(lambda: request(self.sender, ready, queue, timeout_ms))

    def recall(self, result: SendResult) -> None:
        """Take a message back that is to be delivered later, by the result of its send.

        :raises OptionError: when the broker gave it no handle.
        :raises RequestRefused: when the broker refuses it: it is too late, for example.
        """
        self._check_open()
        self.client.run(lambda: recall(self.sender, result))

    def transaction(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> BlockingTransaction:
        """A message that is delivered once the block of this context manager ends.

        See ``twistmq.client.shell.transaction``.

        :raises OptionError: when it cannot be sent, or the option ``on_check`` is not set.
        """
        self._check_open()
        ready = prepare_half(self.sender, message_of(topic, body, message))
        return BlockingTransaction(self.sender, ready, queue, self.client.run)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all messages of :meth:`send_soon` have ended.

        In a signal handler that interrupted a :meth:`send_soon`, the message of that call is not
        waited for.

        :raises TimeoutError: when they do not in time.
        :raises RuntimeError: in a function that the client's own thread calls, such as the
            call-back of a future, and in a signal handler that interrupted the filling of a batch.
        """
        self._check_wait()
        self.client.loop.post(self.sender.flush_batches)
        self._room.wait_empty(timeout_s, self._interrupted())

    def close(self) -> None:
        """Wait for the messages under way, leave the group; a second call does nothing.

        Messages of :meth:`send_soon` that failed are logged, unless the program looked at their
        futures.

        :raises RuntimeError: in a function that the client's own thread calls, such as the
            call-back of a future, and in a signal handler that interrupted the filling of a batch.
        """
        if not self.client.core.is_closed:
            self._check_wait()
        self._is_closed = True
        try:
            if self.sender in self.client.core.members:
                self._wait_for_all()
        finally:
            self.client.loop.at_end.discard(self._room.tell_lost)
            self._room.tell_lost()
            if self._owns_client:
                self.client.close()
            elif self.sender in self.client.core.members:
                # Another thread may close the client first.
                with suppress(Closed):
                    self.client.run(self.sender.leave)

    def _check_wait(self) -> None:
        """:raises RuntimeError: where messages cannot be waited for."""
        self.client.loop.check_thread()
        if self._batching is not None and self._batching.is_interrupted:
            raise RuntimeError(
                "this signal handler interrupted a send_soon that fills a batch, so it cannot wait "
                "for the batch: set a flag in the handler, and wait after the send_soon")

    def _interrupted(self) -> int:
        """How many sends of this thread the signal handlers that run now have interrupted.

        Their messages may have room and are not under way yet.
        """
        code = Producer.send_ready.__code__
        frame: FrameType | None = sys._getframe()
        count = 0
        while frame is not None:
            count += frame.f_code is code and frame.f_locals.get("self") is self
            frame = frame.f_back
        return count

    def _wait_for_all(self) -> None:
        """Wait for the messages under way, as long as one of them can end.

        A signal that comes between the steps of a send may leave its room taken for ever, so that
        no end of the wait is certain. All attempts of a send share one time-out.
        """
        bound_s = self.sender.options.timeout_ms / 1000 + _LATE_S
        # The second time is for sends of other threads that waited for room.
        for _ in range(2):
            self.client.loop.run_there(self.sender.flush_batches)
            with suppress(TimeoutError):
                self._room.wait_empty(bound_s, self._interrupted())
                break

    def _prepare(self, message: Message) -> Outgoing:
        self._check_open()
        return self.sender.prepare(message)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the producer is closed")
        self.client.loop.check_process()


class _Sent(RunningFuture[SendResult]):
    """The result of a message under way, which has room until it ends."""

    def __init__(self, room: ThreadRoom, size: int) -> None:
        self._room = room
        self._size = size

    def __call__(self, outcome: SendResult | Exception) -> None:
        """The send has ended: give the room back, and finish."""
        self._room.give(self._size)
        if isinstance(outcome, Exception):
            self._room.failed(self, 1, outcome)
            self.set_exception(client_error(outcome))
        else:
            self.set_result(outcome)
