"""The shell for Twisted. The reactor is an argument.

    async def main(reactor):
        async with tx.Producer("127.0.0.1:9876", group="shop", reactor=reactor) as producer:
            await producer.send("orders", b"paid")

    react(lambda reactor: Deferred.fromCoroutine(main(reactor)))

Every method that waits returns a ``Deferred``. :class:`ConsumerService` runs a consumer in an
application.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.wire.addresses import split_address
from twistmq.client.building import build_client
from twistmq.client.core.held import Batch, Held
from twistmq.client.core.queries import Queries
from twistmq.client.core.recalls import recall
from twistmq.client.core.replies import prepare_request, reply_to, request
from twistmq.client.core.subscriptions import Sql, Topics, subscription
from twistmq.client.core.tasks import Future
from twistmq.client.core.transactions import prepare_half
from twistmq.client.errors import Closed, Full, OptionError, Undecodable
from twistmq.client.handlers import failure_level
from twistmq.client.loop import SystemClock
from twistmq.client.messages import (
    Message,
    MessageQueue,
    PullResult,
    ReceivedMessage,
    SendResult,
    message_of,
)
from twistmq.client.options import CONSUMER, PRODUCER, PULL_CONSUMER, Where
from twistmq.client.pull_async import AsyncPullConsumer
from twistmq.client.roles import (
    build_consumer,
    build_producer,
    build_pull_consumer,
    split_arguments,
)
from twistmq.client.streams import Driver
from twistmq.client.tls import TlsPipe
from twistmq.client.transaction import AsyncTransaction

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.arguments import (
        ClientArguments,
        ConsumerArguments,
        ProducerArguments,
        PullArguments,
    )

__all__ = ["Client", "Consumer", "ConsumerService", "Producer", "PullConsumer"]

T = TypeVar("T")

#: How many messages a worker takes at once in order.
_TAKE: Final = 64


class _Stream(Protocol):
    """One connection, perhaps with TLS."""

    def __init__(self, driver: Driver, number: int, pipe: TlsPipe | None) -> None:
        self._driver = driver
        self._number = number
        self._pipe = pipe

    def connectionMade(self) -> None:
        """See ``Protocol``."""
        if self._pipe is None:
            self._opened()
        else:
            self._write(self._pipe.begin())

    def _opened(self) -> None:
        assert self.transport is not None
        here: Any = self.transport.getHost()
        self._driver.connected(self._number, self, f"{here.host}:{here.port}")

    def dataReceived(self, data: bytes) -> None:
        """See ``Protocol``."""
        if self._pipe is None:
            self._driver.received(self._number, data)
            return
        was_open = self._pipe.is_open
        try:
            plain, answer = self._pipe.received(data)
        except ssl.SSLError as error:
            self._driver.lost(self._number, str(error))
            self.abort()
            return
        self._write(answer)
        if self._pipe.is_open and not was_open:
            self._opened()
        if plain:
            self._driver.received(self._number, plain)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See ``Protocol``."""
        self._driver.lost(self._number, reason.getErrorMessage())

    def _write(self, data: bytes) -> None:
        assert self.transport is not None
        if data:
            self.transport.write(data)

    def write(self, data: bytes) -> None:
        """See ``Stream``."""
        self._write(data if self._pipe is None else self._pipe.sent(data))

    def unsent_bytes(self) -> int:
        """See ``Stream``. A Twisted transport does not tell; a producer's own bounds hold."""
        return 0

    def abort(self) -> None:
        """See ``Stream``."""
        if self.transport is not None:
            self.transport.loseConnection()


class _Loop:
    """A reactor, as a driver needs it."""

    def __init__(self, reactor: Any, tls: ssl.SSLContext | None) -> None:
        self.reactor = reactor
        self._tls = tls
        self.driver: Driver | None = None
        self._connecting: dict[int, Deferred[Any]] = {}

    def connect(self, number: int, address: str, timeout_s: float) -> None:
        """See ``EventLoop``."""
        driver = self.driver
        assert driver is not None
        try:
            host, port = split_address(address)
        except ValueError as error:
            driver.lost(number, str(error))
            return
        endpoint = HostnameEndpoint(self.reactor, host, port, timeout=timeout_s)
        pipe = None if self._tls is None else TlsPipe(self._tls, host)
        factory = Factory.forProtocol(lambda: _Stream(driver, number, pipe))
        factory.noisy = False
        connecting = endpoint.connect(factory)
        self._connecting[number] = connecting

        def failed(failure: Failure) -> None:
            driver.lost(number, failure.getErrorMessage() or "it takes too long")

        def ended(result: object) -> object:
            self._connecting.pop(number, None)
            return result

        connecting.addBoth(ended)
        connecting.addErrback(failed)

    def cancel_connect(self, number: int) -> None:
        """See ``EventLoop``."""
        connecting = self._connecting.pop(number, None)
        if connecting is not None:
            connecting.cancel()

    def later(self, delay_s: float, function: Callable[[], object]) -> Callable[[], object]:
        """See ``EventLoop``."""
        call = self.reactor.callLater(delay_s, function)

        def cancel() -> None:
            if call.active():
                call.cancel()

        return cancel

    def soon(self, function: Callable[[], object]) -> None:
        """See ``EventLoop``."""
        self.reactor.callLater(0, function)

    def in_thread(
        self, function: Callable[[], object],
        then: Callable[[Any, BaseException | None], object],
    ) -> None:
        """See ``EventLoop``."""
        working = deferToThreadPool(self.reactor, self.reactor.getThreadPool(), function)
        working.addCallbacks(lambda result: then(result, None),
                             lambda failure: then(None, failure.value))


class _Shell:
    """Runs coroutines of the core in a reactor."""

    def __init__(self, where: Where, reactor: Any, given: dict[str, Any]) -> None:
        built = build_client(where, SystemClock(), given)
        self.core = built.core
        loop = _Loop(reactor, built.tls)
        self.reactor = reactor
        self.driver = loop.driver = Driver(self.core.engine, loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Run a coroutine of the core; cancelling the Deferred cancels it."""
        def cancel(_: Deferred[T]) -> None:
            task.cancel()
            self.driver.run_soon()

        result: Deferred[T] = Deferred(cancel)

        def done(outcome: Future[T]) -> None:
            if result.called:
                return
            if outcome.error is None:
                result.callback(outcome.result())
            elif isinstance(outcome.error, Exception):
                result.errback(outcome.error)
            else:
                result.errback(Closed("the client is closed"))

        task = self.driver.spawn(coroutine, done)
        return result

    async def close(self) -> None:
        """Leave all groups and close the connections."""
        if not self.core.is_closed:
            await self.call(self.core.close())
        self.driver.stop()


class Client:
    """A client of a cluster, shared by the producers and consumers that are given it.

    :param where: the name servers, see ``Where`` of ``twistmq.client.options``.
    :param options: see the page of options.
    """

    def __init__(
        self, where: Where = None, *, reactor: Any, **options: Unpack[ClientArguments]
    ) -> None:
        self.shell = _Shell(where, reactor, dict(options))
        self.core = self.shell.core
        self.queries = Queries(self.core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """The id under which brokers know the client."""
        return self.core.client_id

    def close(self) -> Deferred[None]:
        """Leave all groups and close all connections; a second call does nothing."""
        return Deferred.fromCoroutine(self.shell.close())

    def topics(self) -> Deferred[list[str]]:
        """The names of all topics, in order."""
        return self.shell.call(self.queries.topics())

    def read_queues(self, topic: str, *, again: bool = False) -> Deferred[list[MessageQueue]]:
        """The queues that a topic can be read from, in order."""
        return self.shell.call(self.queries.read_queues(topic, again=again))

    def write_queues(self, topic: str, *, again: bool = False) -> Deferred[list[MessageQueue]]:
        """The queues that a topic can be sent to, in order."""
        return self.shell.call(self.queries.write_queues(topic, again=again))

    def min_offset(self, queue: MessageQueue) -> Deferred[int]:
        """The first offset that can be read."""
        return self.shell.call(self.queries.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> Deferred[int]:
        """The offset that the next message will have."""
        return self.shell.call(self.queries.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> Deferred[int]:
        """The first message stored at that Unix ms or later; the queue's end without one."""
        return self.shell.call(self.queries.search_offset(queue, timestamp_ms))

    def group_offset(self, group: str, queue: MessageQueue) -> Deferred[int | None]:
        """The first offset that a group has not consumed; None when it never had the queue."""
        return self.shell.call(self.queries.group_offset(group, queue))

    def commit_group_offset(
        self, group: str, queue: MessageQueue, offset: int
    ) -> Deferred[None]:
        """Set how far a group has come: the first offset that it has not consumed."""
        return self.shell.call(self.queries.commit_group_offset(group, queue, offset))

    def pull(
        self, queue: MessageQueue, offset: int, *, group: str = "twistmq_client",
        max_count: int = 32, expression: str = "*", expression_type: str = "TAG",
        hold_ms: int = 0,
    ) -> Deferred[PullResult]:
        """Pull messages of one queue; ``hold_ms``: how long the broker may wait for one."""
        return self.shell.call(self.queries.pull(
            queue, offset, group=group, max_count=max_count, expression=expression,
            expression_type=expression_type, hold_ms=hold_ms))


class Producer:
    """Sends messages.

    :param where: the name servers, or a :class:`Client` to share.
    :param reactor: the reactor; not needed with a client.
    :param options: see the page of options.
    """

    def __init__(
        self, where: Where | Client = None, *, reactor: Any = None,
        **options: Unpack[ProducerArguments],
    ) -> None:
        mine, others = split_arguments([row.name for row in PRODUCER], options)
        self._owns_client = not isinstance(where, Client)
        self.client = where if isinstance(where, Client) else Client(
            where, reactor=_required(reactor), **cast("ClientArguments", others))
        self.sender = build_producer(self.client.core, mine, options.get("timeout_s", 3.0))
        checks = self.sender.checks
        if checks is not None and inspect.iscoroutinefunction(checks.on_check):
            checks.decide = self._decide
        self.client.core.add(self.sender)
        self.client.shell.driver.run_soon()
        self._is_closed = False
        self._count = self._bytes = 0
        #: Deferreds of those that wait for room or for the end, with what they wait for.
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def group(self) -> str:
        """The producer group."""
        return self.sender.options.group

    def queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """The queues that a topic can be sent to."""
        return self.client.write_queues(topic)

    def send(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Any,
    ) -> Deferred[SendResult]:
        """Send a message and wait until it is stored; :class:`Message` has the parameters.

        :raises SendFailed: when all attempts failed.
        :raises RequestRefused: when the broker refuses it for good.
        :raises OptionError: when it cannot be sent to any broker.
        """
        self._check_open()
        ready = self.sender.prepare(message_of(topic, body, message))
        return self.client.shell.call(self.sender.send(
            ready, queue, timeout_ms=None if timeout_s is None else timeout_s * 1000))

    async def send_soon(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Any,
    ) -> Deferred[SendResult]:
        """Send a message; wait only for room among the messages under way.

        :returns: a Deferred of the result, or of the errors of :meth:`send`.
        :raises Full: when there is no room within the producer's time-out.
        """
        self._check_open()
        ready = self.sender.prepare(message_of(topic, body, message))
        if not self._fits(ready.size):
            await self._wait_for_room(ready.size)
        self._count += 1
        self._bytes += ready.size
        result: Deferred[SendResult] = Deferred()
        size = ready.size

        def done(outcome: SendResult | Exception) -> None:
            self._count -= 1
            self._bytes -= size
            self._notify()
            if isinstance(outcome, Exception):
                result.errback(outcome)
            else:
                result.callback(outcome)

        self.client.core.tasks.soon(self.sender.begin_soon, ready, done, queue)
        self.client.shell.driver.run_soon()
        return result

    def _fits(self, size: int) -> bool:
        options = self.sender.options
        return not self._count or (self._count < options.in_flight_max
                                   and self._bytes + size <= options.in_flight_bytes_max)

    async def _wait_for_room(self, size: int) -> None:
        waiting: Deferred[None] = Deferred()
        waiting.addTimeout(self.sender.options.timeout_ms / 1000, self.client.shell.reactor)
        self._waiting.append((lambda: self._fits(size), waiting))
        try:
            await waiting
        except Exception:
            raise Full(f"{self._count} messages with {self._bytes} bytes are under way, and not "
                       "one ended in time") from None

    def _notify(self) -> None:
        for entry in [entry for entry in self._waiting if entry[1].called or entry[0]()]:
            self._waiting.remove(entry)
            if not entry[1].called:
                entry[1].callback(None)

    async def send_many(self, messages: Sequence[Message]) -> list[SendResult]:
        """Send messages, each as a request of its own, many under way at once."""
        waiting = [await self.send_soon(message) for message in messages]
        outcomes = await DeferredList(waiting, consumeErrors=True)
        for is_success, outcome in outcomes:
            if not is_success:
                cast(Failure, outcome).raiseException()
        return [outcome for _, outcome in outcomes]

    def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> Deferred[SendResult]:
        """Send messages of one topic as one request: all are stored, or none."""
        self._check_open()
        ready = self.sender.prepare_batch(messages)
        return self.client.shell.call(self.sender.send(ready, queue))

    def send_oneway(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Any,
    ) -> Deferred[None]:
        """Send a message without an answer: whether it is stored is not known."""
        self._check_open()
        ready = self.sender.prepare(message_of(topic, body, message))
        return self.client.shell.call(self.sender.send_oneway(ready, queue))

    def request(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Any,
    ) -> Deferred[ReceivedMessage[Any]]:
        """Send a message whose consumer replies, see ``reply`` of consumers, and wait for that.

        :param timeout_s: until the reply is there; None: the producer's.
        :returns: the reply; its ``body`` is what the consumer gave.
        :raises RequestTimeout: when there is no reply in time.
        :raises SendFailed, RequestRefused, OptionError: as :meth:`send`.
        """
        self._check_open()
        timeout_ms = (self.sender.options.timeout_ms if timeout_s is None else timeout_s * 1000)
        ready = prepare_request(self.sender, message_of(topic, body, message), timeout_ms)
        return self.client.shell.call(request(self.sender, ready, queue, timeout_ms))

    def recall(self, result: SendResult) -> Deferred[None]:
        """Take a message back that is to be delivered later, by the result of its send.

        :raises OptionError: when the broker gave it no handle.
        :raises RequestRefused: when the broker refuses it: it is too late, for example.
        """
        self._check_open()
        return self.client.shell.call(recall(self.sender, result))

    def transaction(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Any,
    ) -> AsyncTransaction:
        """A message that is delivered once the block of this context manager ends.

        See ``twistmq.client.transaction``.

        :raises OptionError: when it cannot be sent, or the option ``on_check`` is not set.
        """
        self._check_open()
        ready = prepare_half(self.sender, message_of(topic, body, message))
        return AsyncTransaction(self.sender, ready, queue, self.client.shell.call)

    async def flush(self) -> None:
        """Wait until all messages of :meth:`send_soon` have ended."""
        self.client.core.tasks.soon(self.sender.flush_batches)
        self.client.shell.driver.run_soon()
        if self._count:
            waiting: Deferred[None] = Deferred()
            self._waiting.append((lambda: not self._count, waiting))
            await waiting

    async def close(self) -> None:
        """Wait for the messages under way, leave the group; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await self.flush()
        if self._owns_client:
            await self.client.close()
        elif not self.client.core.is_closed:
            await self.client.shell.call(self.sender.leave())

    def _decide(self, message: ReceivedMessage[Any]) -> Future[Any]:
        """Run ``on_check``, a coroutine function, in the reactor."""
        assert self.sender.checks is not None
        on_check = self.sender.checks.on_check
        decided: Future[Any] = Future()

        async def decide() -> None:
            try:
                decided.set_result(await on_check(message))
            except Exception as error:
                decided.set_error(error)
            self.client.shell.driver.run_soon()

        Deferred.fromCoroutine(decide())
        return decided

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the producer is closed")


class Consumer(Generic[T]):
    """A member of a consumer group.

    :param where: the name servers, or a :class:`Client` to share.
    :param group: the consumer group.
    :param topics: what it reads: "orders", ["orders", "audits"], or expressions by topic.
    :param reactor: the reactor; not needed with a client.
    :param options: see the page of options.
    """

    log = Logger()

    def __init__(
        self, where: Where | Client = None, *, group: str, topics: Topics, reactor: Any = None,
        **options: Unpack[ConsumerArguments],
    ) -> None:
        mine, others = split_arguments([row.name for row in CONSUMER], options)
        self._owns_client = not isinstance(where, Client)
        self.client = where if isinstance(where, Client) else Client(
            where, reactor=_required(reactor), **cast("ClientArguments", others))
        self.member = build_consumer(self.client.core, group, topics, mine)
        self._undecodable = mine.get("undecodable", "retry")
        self._is_started = self._is_closed = self._is_stopped = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group."""
        if self._is_closed:
            raise Closed("the consumer is closed")
        if not self._is_started:
            self._is_started = True
            await self.client.shell.call(self.member.start())

    async def _take(self, most: int) -> Batch[T] | None:
        """Wait for messages and take some of one queue; None when the consumer stops."""
        taken: list[Batch[T]] = []

        async def take() -> None:
            while not taken and not self._is_stopped:
                batch = self.member.take(most)
                if batch is not None:
                    taken.append(batch)
                    return
                try:
                    await self.member.ready()
                except Closed:
                    return

        if self._is_stopped:
            return None
        await self.start()
        try:
            await self.client.shell.call(take())
        except BaseException:
            # Cancelled at the moment at which it had some.
            for batch in taken:
                self.member.release(batch.held, batch.messages)
            raise
        return taken[0] if taken else None

    def _succeed(self, held: Held[T], messages: list[ReceivedMessage[T]]) -> None:
        self.member.succeed(held, messages)
        self.client.shell.driver.run_soon()

    def _fail(self, held: Held[T], messages: list[ReceivedMessage[T]], level: int = 0) -> None:
        self.member.fail(held, messages, level)
        self.client.shell.driver.run_soon()

    def _is_decodable(self, held: Held[T], message: ReceivedMessage[T]) -> bool:
        """Whether a message has a value; one without is treated as the option says."""
        try:
            _ = message.value
        except Undecodable as error:
            if self._undecodable == "raise":
                raise
            self.log.warn("{error}", error=str(error))
            if self._undecodable == "skip":
                self._succeed(held, [message])
            else:
                self._fail(held, [message])
            return False
        return True

    async def run(
        self, handler: Callable[[ReceivedMessage[T]], Any], *, workers: int = 20
    ) -> None:
        """Give each message to a handler until :meth:`stop`.

        :param handler: may return a Deferred or a coroutine. When it ends well it has processed
            the message; when it fails it has not.
        :param workers: how many messages are handled at once.
        """
        in_order = self.member.options.in_order

        async def work(batch: Batch[T]) -> None:
            for index, message in enumerate(batch.messages):
                if self._is_stopped or message.lost:
                    self.member.release(batch.held, batch.messages[index:])
                    return
                if not self._is_decodable(batch.held, message):
                    continue
                try:
                    await maybeDeferred(handler, message)
                except Exception as error:
                    self._fail(batch.held, [message], failure_level(message, error))
                    if in_order:
                        self.member.release(batch.held, batch.messages[index + 1:])
                        return
                else:
                    self._succeed(batch.held, [message])

        await self._work(work, workers, _TAKE if in_order else 1)

    async def run_batches(
        self, handler: Callable[[list[ReceivedMessage[T]]], Any], *, size: int = 32,
        workers: int = 20,
    ) -> None:
        """Give lists of messages of one queue to a handler until :meth:`stop`.

        :param handler: its result is how many of the first messages it processed; None: all.
        """
        async def work(batch: Batch[T]) -> None:
            ready = [each for each in batch.messages if self._is_decodable(batch.held, each)]
            if not ready:
                return
            try:
                done = await maybeDeferred(handler, ready)
            except Exception as error:
                self._fail(batch.held, ready, failure_level(ready[0], error))
                return
            count = len(ready) if done is None else max(0, min(done, len(ready)))
            if count:
                self._succeed(batch.held, ready[:count])
            if count < len(ready):
                self._fail(batch.held, ready[count:])

        await self._work(work, workers, size)

    async def _work(
        self, work: Callable[[Batch[T]], Coroutine[Any, Any, None]], workers: int, size: int
    ) -> None:
        """Run workers until the consumer stops, or one fails."""
        await self.start()

        async def worker() -> None:
            while (batch := await self._take(size)) is not None:
                await work(batch)

        running = [Deferred.fromCoroutine(worker()) for _ in range(workers)]
        try:
            outcomes = await DeferredList(running, fireOnOneErrback=False, consumeErrors=True)
        except BaseException:
            for each in running:
                each.cancel()
            raise
        for is_success, outcome in outcomes:
            if not is_success:
                cast(Failure, outcome).raiseException()

    def pause(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Pull nothing more, of some queues or of all; what was read is still handed out."""
        self.member.set_paused(queues, True)

    def resume(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Undo :meth:`pause`."""
        self.member.set_paused(queues, False)

    def assigned(self) -> list[MessageQueue]:
        """The queues of this member now."""
        return self.member.assigned()

    def commit(self) -> Deferred[None]:
        """Commit now how far the group has come; else it happens each five seconds."""
        return self.client.shell.call(self.member.commit())

    def subscribe(self, topic: str, expression: str | Sql | None = None) -> None:
        """Read one more topic, or change its expression."""
        self.member.subscribe(subscription(self.client.core.namespace.topic(topic), expression))
        self.client.shell.driver.run_soon()

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self.member.unsubscribe(self.client.core.namespace.topic(topic))
        self.client.shell.driver.run_soon()

    def reply(self, message: ReceivedMessage[T], body: bytes) -> Deferred[SendResult]:
        """Reply to a message that a producer sent by ``request``.

        It is a method of consumers in all three styles. The message counts as processed as any
        other does.

        :raises OptionError: when the message is not a request.
        :raises RequestRefused: when the producer does not take the reply: it is gone, for example.
        :raises SendFailed: when no broker answers.
        """
        return self.client.shell.call(reply_to(self.member.sender, message, body))

    def stop(self) -> None:
        """End ``run`` after the messages that are being handled."""
        self._is_stopped = True
        self.member.wake_all()
        self.client.shell.driver.run_soon()

    async def close(self, timeout_s: float = 10.0) -> None:
        """Stop reading, wait for handlers, commit and leave; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = self._is_stopped = True
        if self._is_started and not self.client.core.is_closed:
            await self.client.shell.call(self.member.close(timeout_s * 1000))
        if self._owns_client:
            await self.client.close()


class PullConsumer(AsyncPullConsumer[T]):
    """A member of a consumer group that is polled, by one task at a time.

    :param where: the name servers, or a :class:`Client` to share.
    :param group: the consumer group.
    :param topics: what it reads; None: see ``subscribe`` and ``assign``.
    :param reactor: the reactor; not needed with a client.
    :param options: see the page of options.
    """

    def __init__(
        self, where: Where | Client = None, *, group: str, topics: Topics | None = None,
        reactor: Any = None, **options: Unpack[PullArguments],
    ) -> None:
        mine, others = split_arguments([row.name for row in PULL_CONSUMER], options)
        self.client = where if isinstance(where, Client) else Client(
            where, reactor=_required(reactor), **cast("ClientArguments", others))
        super().__init__(self.client, not isinstance(where, Client),
                         build_pull_consumer(self.client.core, group, topics, mine))


class ConsumerService(Service):
    """Runs a consumer while a Twisted application runs.

    :param handler: see :meth:`Consumer.run`.
    """

    log = Logger()

    def __init__(
        self, consumer: Consumer[Any], handler: Callable[[ReceivedMessage[Any]], Any], *,
        workers: int = 20,
    ) -> None:
        self.consumer = consumer
        self._handler = handler
        self._workers = workers
        self._running: Deferred[None] | None = None

    def startService(self) -> None:
        """Join the group and handle messages."""
        super().startService()  # type: ignore[no-untyped-call]
        self._running = Deferred.fromCoroutine(
            self.consumer.run(self._handler, workers=self._workers))
        self._running.addErrback(
            lambda failure: self.log.failure("the consumer of group {group} ended", failure,
                                             group=self.consumer.member.options.group))

    def stopService(self) -> Deferred[None]:
        """Stop, wait for handlers, commit and leave; fires when all is done."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self.consumer.stop()
        await self.consumer.close()
        if self._running is not None:
            await self._running


def _required(reactor: Any) -> Any:
    if reactor is None:
        raise OptionError("give the reactor, or a client that has one")
    return reactor
