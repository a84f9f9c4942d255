"""The shell for asyncio.

    async with aio.Producer("127.0.0.1:9876", group="shop") as producer:
        await producer.send("orders", b"paid")
    async with aio.Consumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        async for message in consumer:
            await bill(message)

Objects belong to the loop that ``async with`` or :meth:`start` ran in. Sockets are asyncio's own.
A loop that is blocked for long stops heartbeats: then the brokers give the member's queues to
others after two minutes. The client warns after a second.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

from twistmq.broker.wire.addresses import split_address
from twistmq.client.building import build_client
from twistmq.client.core.held import Batch, Held
from twistmq.client.core.queries import Queries
from twistmq.client.core.recalls import recall
from twistmq.client.core.replies import prepare_request, reply_to, request
from twistmq.client.core.subscriptions import Sql, Topics, subscription
from twistmq.client.core.tasks import Future
from twistmq.client.core.transactions import prepare_half
from twistmq.client.errors import Closed, Full, Undecodable
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
from twistmq.client.transaction import AsyncTransaction

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.arguments import (
        ClientArguments,
        ConsumerArguments,
        ProducerArguments,
        PullArguments,
    )

__all__ = ["Client", "Consumer", "Producer", "PullConsumer"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The loop is looked at so often, and a delay of so many seconds is warned of, or is an error.
_WATCH_S: Final = 1.0
_BLOCKED_WARN_S: Final = 1.0
_BLOCKED_ERROR_S: Final = 60.0
#: How many messages an iterator takes at once.
_TAKE: Final = 64


class _Protocol(asyncio.Protocol):
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
        if self._transport is not None:
            self._transport.close()


class _Loop:
    """An asyncio loop, as a driver needs it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None) -> None:
        self.loop = loop
        self._tls = tls
        self.driver: Driver | None = None
        self._connecting: dict[int, asyncio.Task[None]] = {}

    def connect(self, number: int, address: str, timeout_s: float) -> None:
        """See ``EventLoop``."""
        self._connecting[number] = self.loop.create_task(
            self._connect(number, address, timeout_s))

    async def _connect(self, number: int, address: str, timeout_s: float) -> None:
        driver = self.driver
        assert driver is not None
        try:
            host, port = split_address(address)
            async with asyncio.timeout(timeout_s):
                await self.loop.create_connection(
                    lambda: _Protocol(driver, number), host, port, ssl=self._tls,
                    server_hostname=host if self._tls else None)
        except TimeoutError:
            driver.lost(number, "it takes too long")
        except (OSError, ValueError) as error:
            driver.lost(number, str(error))
        finally:
            self._connecting.pop(number, None)

    def cancel_connect(self, number: int) -> None:
        """See ``EventLoop``."""
        task = self._connecting.pop(number, None)
        if task is not None:
            task.cancel()

    def later(self, delay_s: float, function: Callable[[], object]) -> Callable[[], object]:
        """See ``EventLoop``."""
        return self.loop.call_later(delay_s, function).cancel

    def soon(self, function: Callable[[], object]) -> None:
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

        self.loop.run_in_executor(None, function).add_done_callback(done)


class _Shell:
    """Runs coroutines of the core in the running loop."""

    def __init__(self, where: Where, given: dict[str, Any]) -> None:
        built = build_client(where, SystemClock(), given)
        self.core = built.core
        self._tls = built.tls
        self._driver: Driver | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def driver(self) -> Driver:
        """The driver in the running loop; it is made by the first call."""
        if self._driver is None:
            loop = _Loop(asyncio.get_running_loop(), self._tls)
            self._driver = loop.driver = Driver(self.core.engine, loop)
            self._watch = loop.loop.create_task(self._watch_loop())
        return self._driver

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the core. Cancelling leaves a request under way as it is."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(outcome: Future[T]) -> None:
            if future.done():
                return
            if outcome.error is not None:
                future.set_exception(
                    outcome.error if isinstance(outcome.error, Exception)
                    else Closed("the client is closed"))
            else:
                future.set_result(outcome.result())

        task = self.driver.spawn(coroutine, done)
        try:
            return await future
        except asyncio.CancelledError:
            task.cancel()
            self.driver.run_soon()
            raise

    async def _watch_loop(self) -> None:
        """Warn when the loop was blocked."""
        loop = asyncio.get_running_loop()
        while True:
            begin = loop.time()
            await asyncio.sleep(_WATCH_S)
            late = loop.time() - begin - _WATCH_S
            if late > _BLOCKED_ERROR_S:
                log.error("the event loop was blocked for %.1f s: brokers may have given the "
                          "queues of this client to others", late)
            elif late > _BLOCKED_WARN_S:
                log.warning("the event loop was blocked for %.1f s", late)

    async def close(self) -> None:
        """Leave all groups and close the connections."""
        if not self.core.is_closed:
            if self._driver is not None:
                await self.call(self.core.close())
            self.core.is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._driver is not None:
            self._driver.stop()


class Client:
    """A client of a cluster, shared by the producers and consumers that are given it.

    :param where: the name servers, see ``Where`` of ``twistmq.client.options``.
    :param options: see the page of options.
    """

    def __init__(self, where: Where = None, **options: Unpack[ClientArguments]) -> None:
        self.shell = _Shell(where, dict(options))
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

    async def close(self) -> None:
        """Leave all groups and close all connections; a second call does nothing."""
        await self.shell.close()

    async def topics(self) -> list[str]:
        """The names of all topics, in order."""
        return await self.shell.call(self.queries.topics())

    async def read_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """The queues that a topic can be read from, in order."""
        return await self.shell.call(self.queries.read_queues(topic, again=again))

    async def write_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """The queues that a topic can be sent to, in order."""
        return await self.shell.call(self.queries.write_queues(topic, again=again))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can be read."""
        return await self.shell.call(self.queries.min_offset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return await self.shell.call(self.queries.max_offset(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at that Unix ms or later; the queue's end without one."""
        return await self.shell.call(self.queries.search_offset(queue, timestamp_ms))

    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The first offset that a group has not consumed; None when it never had the queue."""
        return await self.shell.call(self.queries.group_offset(group, queue))

    async def commit_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set how far a group has come: the first offset that it has not consumed."""
        await self.shell.call(self.queries.commit_group_offset(group, queue, offset))

    async def pull(
        self, queue: MessageQueue, offset: int, *, group: str = "twistmq_client",
        max_count: int = 32, expression: str = "*", expression_type: str = "TAG",
        hold_ms: int = 0,
    ) -> PullResult:
        """Pull messages of one queue; ``hold_ms``: how long the broker may wait for one."""
        return await self.shell.call(self.queries.pull(
            queue, offset, group=group, max_count=max_count, expression=expression,
            expression_type=expression_type, hold_ms=hold_ms))


class Producer:
    """Sends messages.

    :param where: the name servers, or a :class:`Client` to share.
    :param options: see the page of options.
    """

    def __init__(
        self, where: Where | Client = None, **options: Unpack[ProducerArguments]
    ) -> None:
        mine, others = split_arguments([row.name for row in PRODUCER], options)
        self._owns_client = not isinstance(where, Client)
        self.client = where if isinstance(where, Client) else Client(
            where, **cast("ClientArguments", others))
        self.sender = build_producer(self.client.core, mine, options.get("timeout_s", 3.0))
        checks = self.sender.checks
        if checks is not None and inspect.iscoroutinefunction(checks.on_check):
            checks.decide = self._decide
        self._is_closed = False
        self._count = self._bytes = 0
        self._changed = asyncio.Condition()
        self._deciding: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Join the group, in the running loop."""
        if self.sender not in self.client.core.members:
            self.client.core.add(self.sender)
            self.client.shell.driver.run_soon()

    @property
    def group(self) -> str:
        """The producer group."""
        return self.sender.options.group

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that a topic can be sent to."""
        return await self.client.write_queues(topic)

    async def send(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Any,
    ) -> SendResult:
        """Send a message and wait until it is stored; :class:`Message` has the parameters.

        Cancelling leaves the message under way: it may be stored.

        :raises SendFailed: when all attempts failed.
        :raises RequestRefused: when the broker refuses it for good.
        :raises OptionError: when it cannot be sent to any broker.
        """
        self._check_open()
        ready = self.sender.prepare(message_of(topic, body, message))
        return await self.client.shell.call(self.sender.send(
            ready, queue, timeout_ms=None if timeout_s is None else timeout_s * 1000))

    async def send_soon(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Any,
    ) -> asyncio.Future[SendResult]:
        """Send a message; wait only for room among the messages under way.

        :returns: a future of the result, or of the errors of :meth:`send`.
        :raises Full: when there is no room within the producer's time-out.
        """
        self._check_open()
        ready = self.sender.prepare(message_of(topic, body, message))
        if not self._fits(ready.size):
            await self._wait_for_room(ready.size)
        self._count += 1
        self._bytes += ready.size
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        size = ready.size

        def done(outcome: SendResult | Exception) -> None:
            self._count -= 1
            self._bytes -= size
            if self._waiting:
                self._notifying = asyncio.ensure_future(self._notify())
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.client.core.tasks.soon(self.sender.begin_soon, ready, done, queue)
        self.client.shell.driver.run_soon()
        return future

    #: How many wait for a change, and the task that tells them.
    _waiting = 0
    _notifying: asyncio.Future[None] | None = None

    def _fits(self, size: int) -> bool:
        options = self.sender.options
        return not self._count or (self._count < options.in_flight_max
                                   and self._bytes + size <= options.in_flight_bytes_max)

    async def _wait_for_room(self, size: int) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(self.sender.options.timeout_ms / 1000), self._changed:
                await self._changed.wait_for(lambda: self._fits(size))
        except TimeoutError:
            raise Full(f"{self._count} messages with {self._bytes} bytes are under way, and not "
                       "one ended in time") from None
        finally:
            self._waiting -= 1

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def send_many(self, messages: Sequence[Message]) -> list[SendResult]:
        """Send messages, each as a request of its own, many under way at once."""
        futures = [await self.send_soon(message) for message in messages]
        return list(await asyncio.gather(*futures))

    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic as one request: all are stored, or none."""
        self._check_open()
        ready = self.sender.prepare_batch(messages)
        return await self.client.shell.call(self.sender.send(ready, queue))

    async def send_oneway(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Any,
    ) -> None:
        """Send a message without an answer: whether it is stored is not known."""
        self._check_open()
        ready = self.sender.prepare(message_of(topic, body, message))
        await self.client.shell.call(self.sender.send_oneway(ready, queue))

    async def request(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Any,
    ) -> ReceivedMessage[Any]:
        """Send a message whose consumer replies, see ``reply`` of consumers, and wait for that.

        :param timeout_s: until the reply is there; None: the producer's.
        :returns: the reply; its ``body`` is what the consumer gave.
        :raises RequestTimeout: when there is no reply in time.
        :raises SendFailed, RequestRefused, OptionError: as :meth:`send`.
        """
        self._check_open()
        timeout_ms = (self.sender.options.timeout_ms if timeout_s is None else timeout_s * 1000)
        ready = prepare_request(self.sender, message_of(topic, body, message), timeout_ms)
        return await self.client.shell.call(request(self.sender, ready, queue, timeout_ms))

    async def recall(self, result: SendResult) -> None:
        """Take a message back that is to be delivered later, by the result of its send.

        :raises OptionError: when the broker gave it no handle.
        :raises RequestRefused: when the broker refuses it: it is too late, for example.
        """
        self._check_open()
        await self.client.shell.call(recall(self.sender, result))

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
        self._waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._count)
        finally:
            self._waiting -= 1

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
        """Run ``on_check``, a coroutine function, in the loop."""
        assert self.sender.checks is not None
        on_check = self.sender.checks.on_check
        decided: Future[Any] = Future()

        async def decide() -> None:
            try:
                decided.set_result(await on_check(message))
            except Exception as error:
                decided.set_error(error)
            self.client.shell.driver.run_soon()

        task = asyncio.ensure_future(decide())
        self._deciding.add(task)
        task.add_done_callback(self._deciding.discard)
        return decided

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the producer is closed")
        self.start()


class Consumer(Generic[T]):
    """A member of a consumer group.

    :param where: the name servers, or a :class:`Client` to share.
    :param group: the consumer group.
    :param topics: what it reads: "orders", ["orders", "audits"], or expressions by topic.
    :param options: see the page of options.
    """

    def __init__(
        self, where: Where | Client = None, *, group: str, topics: Topics,
        **options: Unpack[ConsumerArguments],
    ) -> None:
        mine, others = split_arguments([row.name for row in CONSUMER], options)
        self._owns_client = not isinstance(where, Client)
        self.client = where if isinstance(where, Client) else Client(
            where, **cast("ClientArguments", others))
        self.member = build_consumer(self.client.core, group, topics, mine)
        self._undecodable = mine.get("undecodable", "retry")
        self._is_started = self._is_closed = False
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group, in the running loop."""
        if self._is_closed:
            raise Closed("the consumer is closed")
        if not self._is_started:
            self._is_started = True
            await self.client.shell.call(self.member.start())

    async def _take(self, most: int) -> Batch[T] | None:
        """Wait for messages and take some of one queue; None when the consumer stops."""
        taken: list[Batch[T]] = []

        async def take() -> None:
            while not taken and not self._stopped.is_set():
                batch = self.member.take(most)
                if batch is not None:
                    taken.append(batch)
                    return
                try:
                    await self.member.ready()
                except Closed:
                    return

        if self._stopped.is_set():
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

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage[T]]:
        """Messages, one after the other; the next one acknowledges the one before.

        Leaving the loop, by ``break``, an error or a cancellation, lets the last one come again.
        """
        await self.start()
        while (batch := await self._take(_TAKE)) is not None:
            left = list(batch.messages)
            try:
                while left:
                    message = left[0]
                    if not message.lost and self._is_decodable(batch.held, message):
                        yield message
                        self._succeed(batch.held, [message])
                    del left[0]
            finally:
                if left:
                    self.member.release(batch.held, left)
                    self.client.shell.driver.run_soon()

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
            log.warning("%s", error)
            if self._undecodable == "skip":
                self._succeed(held, [message])
            else:
                self._fail(held, [message])
            return False
        return True

    async def run(
        self, handler: Callable[[ReceivedMessage[T]], Awaitable[object] | object], *,
        workers: int = 20,
    ) -> None:
        """Give each message to a handler until :meth:`stop`.

        :param handler: a coroutine function, or a plain function, which runs on a thread. One
            that returns has processed the message; one that raises has not.
        :param workers: how many messages are handled at once.
        """
        call = _caller(handler)
        in_order = self.member.options.in_order

        async def work(batch: Batch[T]) -> None:
            for index, message in enumerate(batch.messages):
                if self._stopped.is_set() or message.lost:
                    self.member.release(batch.held, batch.messages[index:])
                    return
                if not self._is_decodable(batch.held, message):
                    continue
                try:
                    await call(message)
                except Exception as error:
                    self._fail(batch.held, [message], failure_level(message, error))
                    if in_order:
                        self.member.release(batch.held, batch.messages[index + 1:])
                        return
                else:
                    self._succeed(batch.held, [message])

        await self._work(work, workers, _TAKE if in_order else 1)

    async def run_batches(
        self,
        handler: Callable[[list[ReceivedMessage[T]]], Awaitable[int | None] | int | None], *,
        size: int = 32, workers: int = 20,
    ) -> None:
        """Give lists of messages of one queue to a handler until :meth:`stop`.

        :param handler: returns how many of the first messages it processed; None: all.
        """
        call = _caller(handler)

        async def work(batch: Batch[T]) -> None:
            ready = [each for each in batch.messages if self._is_decodable(batch.held, each)]
            if not ready:
                return
            try:
                done = await call(ready)
            except Exception as error:
                self._fail(batch.held, ready, failure_level(ready[0], error))
                return
            count = len(ready) if done is None else max(0, min(cast(int, done), len(ready)))
            if count:
                self._succeed(batch.held, ready[:count])
            if count < len(ready):
                self._fail(batch.held, ready[count:])

        await self._work(work, workers, size)

    async def _work(
        self, work: Callable[[Batch[T]], Awaitable[None]], workers: int, size: int
    ) -> None:
        """Run workers until the consumer stops."""
        await self.start()

        async def worker() -> None:
            while (batch := await self._take(size)) is not None:
                await work(batch)

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(worker())

    def pause(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Pull nothing more, of some queues or of all; what was read is still handed out."""
        self.member.set_paused(queues, True)

    def resume(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Undo :meth:`pause`."""
        self.member.set_paused(queues, False)

    def assigned(self) -> list[MessageQueue]:
        """The queues of this member now."""
        return self.member.assigned()

    async def commit(self) -> None:
        """Commit now how far the group has come; else it happens each five seconds."""
        await self.client.shell.call(self.member.commit())

    def subscribe(self, topic: str, expression: str | Sql | None = None) -> None:
        """Read one more topic, or change its expression."""
        self.member.subscribe(subscription(self.client.core.namespace.topic(topic), expression))
        self.client.shell.driver.run_soon()

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self.member.unsubscribe(self.client.core.namespace.topic(topic))
        self.client.shell.driver.run_soon()

    async def reply(self, message: ReceivedMessage[T], body: bytes) -> SendResult:
        """Reply to a message that a producer sent by ``request``.

        It is a method of consumers in all three styles. The message counts as processed as any
        other does.

        :raises OptionError: when the message is not a request.
        :raises RequestRefused: when the producer does not take the reply: it is gone, for example.
        :raises SendFailed: when no broker answers.
        """
        return await self.client.shell.call(reply_to(self.member.sender, message, body))

    def stop(self) -> None:
        """End ``run`` and the iteration after the messages that are being handled."""
        self._stopped.set()
        self.member.wake_all()
        if self._is_started:
            self.client.shell.driver.run_soon()

    async def close(self, timeout_s: float = 10.0) -> None:
        """Stop reading, wait for handlers, commit and leave; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stopped.set()
        if self._is_started and not self.client.core.is_closed:
            await self.client.shell.call(self.member.close(timeout_s * 1000))
        if self._owns_client:
            await self.client.close()


class PullConsumer(AsyncPullConsumer[T]):
    """A member of a consumer group that is polled, by one task at a time.

    :param where: the name servers, or a :class:`Client` to share.
    :param group: the consumer group.
    :param topics: what it reads; None: see ``subscribe`` and ``assign``.
    :param options: see the page of options.
    """

    def __init__(
        self, where: Where | Client = None, *, group: str, topics: Topics | None = None,
        **options: Unpack[PullArguments],
    ) -> None:
        mine, others = split_arguments([row.name for row in PULL_CONSUMER], options)
        self.client = where if isinstance(where, Client) else Client(
            where, **cast("ClientArguments", others))
        super().__init__(self.client, not isinstance(where, Client),
                         build_pull_consumer(self.client.core, group, topics, mine))


def _caller(handler: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    """A handler as a coroutine function; a plain function runs on a thread."""
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)):  # noqa: B004
        return handler

    async def call(argument: Any) -> Any:
        return await asyncio.to_thread(handler, argument)

    return call
