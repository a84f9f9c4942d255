"""The shells of asyncio and Twisted, which share their methods; each test runs in both."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import ModuleType
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twistmq.broker.testing import running_broker
from twistmq.client import (
    Closed,
    Message,
    OptionError,
    ReceivedMessage,
    RemotingConnectError,
    Undecodable,
    aio,
    tx,
)


class Loop:
    """An event loop, and the client for it.

    :param module: ``aio`` or ``tx``.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        #: What a client of this loop is made with beside its options.
        self.more: dict[str, Any] = {} if module is aio else {"reactor": reactor}

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine; :returns: a future of the loop, which can be cancelled."""
        if self.module is aio:
            return asyncio.ensure_future(coroutine)
        return Deferred.fromCoroutine(coroutine)

    def sleep(self, seconds: float) -> Awaitable[object]:
        """Wait in the loop."""
        if self.module is aio:
            return asyncio.sleep(seconds)
        return deferLater(reactor, seconds)  # type: ignore[arg-type]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition."""
        while not is_so():
            await self.sleep(0.01)

    def run(self, main: Callable[[Loop], Coroutine[Any, Any, None]]) -> Deferred[Any]:
        """Run a test in the loop."""
        if self.module is aio:
            return deferToThread(lambda: asyncio.run(main(self)))  # type: ignore[arg-type]
        return Deferred.fromCoroutine(main(self))


class MethodTests(SynchronousTestCase):
    """Methods without a running loop."""

    def test_a_method_that_waits_is_a_coroutine_function_or_returns_a_deferred(self) -> None:
        """``send_soon`` alone is a coroutine function in both, for its result is a Deferred."""
        for name in ("Client", "Producer", "Consumer", "PullConsumer", "PopConsumer"):
            for method, function in inspect.getmembers(getattr(aio, name), inspect.isfunction):
                theirs = getattr(getattr(tx, name), method)
                if getattr(function, "waits", False):
                    self.assertTrue(inspect.iscoroutinefunction(function), msg=method)
                    self.assertFalse(inspect.iscoroutinefunction(theirs), msg=method)
                elif inspect.iscoroutinefunction(function) and not method.startswith("_"):
                    self.assertEqual(method, "send_soon")

    def test_a_class_below_a_class_of_twisted_keeps_its_deferreds(self) -> None:
        """A method is wrapped once."""
        class Own(tx.Client):
            """A client class of a program."""

        self.assertIs(Own.topics, tx.Client.topics)

    def test_options_of_a_client_that_is_made_already_are_an_error(self) -> None:
        """They would have no effect; the time-out of a send belongs to the producer."""
        for module, more in ((aio, {}), (tx, {"reactor": reactor})):
            client = module.Client("127.0.0.1:9", **more)
            error = self.assertRaises(OptionError, module.Consumer, client=client, group="g",
                                      topics="T", retry_wait_s=1.0)
            self.assertIn("retry_wait_s", str(error))
            self.assertRaises(OptionError, module.Producer, client=client, no_option=1)


class LoopTests(TestCase):
    """A broker on its own thread."""

    timeout = 60

    def setUp(self) -> None:
        """Start the broker."""
        running = running_broker()
        self.where = running.__enter__().namesrv_address
        self.addCleanup(running.__exit__, None, None, None)

    def both(self, main: Callable[[Loop], Coroutine[Any, Any, None]]) -> Deferred[Any]:
        """Run a test in both loops, one after the other."""
        return Loop(aio).run(main).addCallback(lambda _: Loop(tx).run(main))

    def producer(self, loop: Loop, **options: Any) -> Any:
        """Return a producer with its own client."""
        return loop.module.Producer(self.where, **loop.more, **options)

    def topic(self, loop: Loop) -> str:
        """Return a topic for each loop."""
        return loop.module.__name__.rpartition(".")[2]

    def test_messages_wait_for_room_and_all_are_stored(self) -> Deferred[Any]:
        """The number in flight does not exceed the option."""
        async def main(loop: Loop) -> None:
            async with self.producer(loop, in_flight_max=2) as producer:
                topic, most, futures = self.topic(loop), 0, []
                for number in range(50):
                    futures.append(await producer.send_soon(topic, b"%d" % number))
                    most = max(most, producer._room.count)
                await producer.flush()
                self.assertEqual(most, 2)
                for future in futures:
                    self.assertTrue((await future).safe)
                many = [Message(topic=topic, body=b"%d" % each) for each in range(10)]
                self.assertEqual(len({each.id for each in await producer.send_many(many)}), 10)

        return self.both(main)

    def test_messages_are_iterated(self) -> Deferred[Any]:
        """When the loop is left, the last message is delivered again."""
        async def main(loop: Loop) -> None:
            async with self.producer(loop) as producer:
                topic = self.topic(loop)
                for number in range(5):
                    await producer.send(topic, b"%d" % number)
                seen = []
                for _ in range(2):
                    async with loop.module.Consumer(client=producer.client, group=f"i{topic}",
                                                    topics=topic, start="first") as consumer:
                        async for message in consumer:
                            seen.append(int(message.body))
                            if len(seen) >= 5:
                                break
                self.assertEqual(sorted(seen[:5]), list(range(5)))
                self.assertEqual(seen[5], seen[4])

        return self.both(main)

    def test_a_message_without_a_value_ends_the_run_when_the_option_says_so(self) -> Deferred[Any]:
        """The run raises the error of the message, and waiting workers end, too."""
        async def main(loop: Loop) -> None:
            async with self.producer(loop) as producer:
                topic = self.topic(loop)
                await producer.send(topic, b"no number")
                async with loop.module.Consumer(
                        client=producer.client, group=f"u{topic}", topics=topic, start="first",
                        decode=lambda message: int(message.body),
                        undecodable="raise") as consumer:
                    with self.assertRaises(Undecodable):
                        await consumer.run(lambda message: None, workers=3)
                    self.assertEqual(consumer._member.delivery.running, 0)

        return self.both(main)

    def test_a_run_that_is_cancelled_lets_its_messages_come_again(self) -> Deferred[Any]:
        """The handler is cancelled at its wait."""
        async def main(loop: Loop) -> None:
            topic, begun = self.topic(loop), []

            async def handler(message: ReceivedMessage[Any]) -> None:
                begun.append(message)
                await loop.sleep(60)

            async def run() -> None:
                await consumer.run(handler, workers=2)

            async with self.producer(loop) as producer:
                await producer.send(topic, b"1")
                async with loop.module.Consumer(client=producer.client, group=f"c{topic}",
                                                topics=topic, start="first") as consumer:
                    running = loop.begin(run())
                    await loop.until(lambda: bool(begun))
                    running.cancel()
                    with self.assertRaises((asyncio.CancelledError, CancelledError)):
                        await running
                    async for message in consumer:
                        self.assertEqual(message.body, b"1")
                        break

        return self.both(main)

    def test_a_closed_client_answers_nothing_more(self) -> Deferred[Any]:
        """Its producers raise an error as well, instead of waiting for ever."""
        async def main(loop: Loop) -> None:
            client = loop.module.Client(self.where, **loop.more)
            producer = loop.module.Producer(client=client)
            await producer.send(self.topic(loop), b"1")
            await client.close()
            await client.close()
            for call in (client.topics, lambda: producer.send("T", b"2")):
                with self.assertRaises(Closed):
                    await call()
            await producer.close()

        return self.both(main)

    def test_a_server_that_never_ends_the_handshake_of_tls_is_given_up(self) -> Deferred[Any]:
        """The connection is closed in time."""
        async def main(loop: Loop) -> None:
            server = socket.create_server(("127.0.0.1", 0))
            self.addCleanup(server.close)
            where = f"127.0.0.1:{server.getsockname()[1]}"
            begin_s = time.monotonic()
            client = loop.module.Client(
                where, connect_timeout_s=0.2, timeout_s=20.0, retries=0,
                tls=ssl.create_default_context(), **loop.more)
            try:
                with self.assertRaises(RemotingConnectError) as caught:
                    await client.topics()
                self.assertIn("it takes too long", str(caught.exception))
                self.assertLess(time.monotonic() - begin_s, 15)
                connection, _ = server.accept()
                with connection:
                    connection.setblocking(False)
                    data = b"."
                    while data:
                        try:
                            data = connection.recv(65536)
                        except BlockingIOError:
                            await loop.sleep(0.01)
                        except ConnectionResetError:
                            break
            finally:
                await client.close()

        return self.both(main)
