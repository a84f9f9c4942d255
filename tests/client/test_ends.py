"""Consumers that end at unusual moments: with lost queues, or after their client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

import twistmq.client.blocking.producer
from tests.client.test_shells import ShellCase
from tests.interop.servers import wait_until
from twistmq.client import Client, Closed, Consumer, OptionError, Producer, PullConsumer, aio
from twistmq.client.core.connection.tasks import Future

#: A close that waits for handlers which do not run takes ten seconds.
AT_ONCE_S = 8


class LostTests(ShellCase):
    """An iteration took messages whose queue was then assigned to another member."""

    def fill(self) -> None:
        """Send twenty messages to each of four queues."""
        with Producer(self.where) as producer:
            for number in range(80):
                producer.send("T", b"%d" % number)

    def test_a_blocking_iteration_gives_them_back(self) -> Deferred[Any]:
        """The close does not wait for handlers that do not exist."""
        def run() -> None:
            self.fill()
            with Consumer(self.where, group="g", topics="T", start="first") as first:
                found = iter(first)
                taken = [next(found)]
                while len({each.queue for each in taken}) < 4:
                    taken.append(next(found))
                with Consumer(self.where, group="g", topics="T", start="first"):
                    wait_until("two queues are lost", lambda: len(first.assigned()) == 2)
                    for _ in range(3):
                        with Producer(self.where) as producer:
                            producer.send("T", b"more", queue=first.assigned()[0])
                        next(found)
                    wait_until("nothing runs but the last",
                               lambda: first._member.delivery.running <= 64)
                    begin = time.monotonic()
                    found.close()
                    first.close()
                    self.assertLess(time.monotonic() - begin, AT_ONCE_S)
                    self.assertEqual(first._member.delivery.running, 0)

        return self.in_thread(run)

    def test_an_iteration_that_is_interrupted_gives_back_what_it_was_given(self) -> Deferred[Any]:
        """Ctrl-C comes when the messages are handed out, and before the program has them."""
        def run() -> None:
            self.fill()
            with Consumer(self.where, group="g", topics="T", start="first") as consumer:
                call = consumer.client._run

                def interrupted(make: Any) -> None:
                    call(make)
                    raise KeyboardInterrupt

                self.patch(consumer.client, "_run", interrupted)
                self.assertRaises(KeyboardInterrupt, next, iter(consumer))
                self.patch(consumer.client, "_run", call)
                begin = time.monotonic()
                consumer.close()
                self.assertLess(time.monotonic() - begin, AT_ONCE_S)
                self.assertEqual(consumer._member.delivery.running, 0)

        return self.in_thread(run)

    def test_an_iteration_of_asyncio_gives_them_back(self) -> Deferred[Any]:
        """The behaviour is the same."""
        async def consume() -> None:
            async with aio.Consumer(self.where, group="g", topics="T", start="first") as first:
                found = aiter(first)
                taken = [await anext(found)]
                while len({each.queue for each in taken}) < 4:
                    taken.append(await anext(found))
                async with aio.Consumer(self.where, group="g", topics="T", start="first") as other:
                    await other.start()
                    while len(first.assigned()) > 2:
                        await asyncio.sleep(0.01)
                    async with aio.Producer(self.where) as producer:
                        for _ in range(3):
                            await producer.send("T", b"more", queue=first.assigned()[0])
                            await anext(found)
                    begin = time.monotonic()
                    await found.aclose()
                    await first.close()
                    self.assertLess(time.monotonic() - begin, AT_ONCE_S)
                    self.assertEqual(first._member.delivery.running, 0)

        def run() -> None:
            self.fill()
            asyncio.run(consume())

        return self.in_thread(run)


class ClosedClientTests(ShellCase):
    """A client that is shared, and closed before its consumers."""

    def test_what_waits_ends_with_an_error(self) -> Deferred[Any]:
        """A run, an iteration and a poll; the error is one that programs can catch."""
        def run() -> None:
            with Producer(self.where) as producer:
                producer.send("T", b"x")
            for kind in ("run", "iteration", "poll"):
                client = Client(self.where)
                errors: list[BaseException] = []
                handled = threading.Event()
                consumer = (PullConsumer(client=client, group=kind, topics="T", start="first")
                            if kind == "poll" else
                            Consumer(client=client, group=kind, topics="T", start="first"))

                def work(consumer: Any = consumer, kind: str = kind,
                         handled: threading.Event = handled,
                         errors: list[BaseException] = errors) -> None:
                    try:
                        if kind == "run":
                            consumer.run(lambda message: handled.set())
                        elif kind == "iteration":
                            for _ in consumer:
                                handled.set()
                        else:
                            while True:
                                consumer.poll(10, 30.0)
                                handled.set()
                    except BaseException as error:
                        errors.append(error)

                thread = threading.Thread(target=work)
                thread.start()
                self.assertTrue(handled.wait(20), kind)
                client.close()
                thread.join(20)
                self.assertFalse(thread.is_alive(), kind)
                self.assertEqual([(type(each), str(each)) for each in errors],
                                 [(Closed, "the client is closed")], kind)
                consumer.close()

        return self.in_thread(run)


class InterruptedTests(ShellCase):
    """Ctrl-C, and two threads, during a close."""

    def test_a_second_close_does_what_an_interrupted_one_could_not(self) -> Deferred[Any]:
        """The first close has already closed a client of its own."""
        def interrupted(make: Any) -> None:
            raise KeyboardInterrupt

        def run() -> None:
            with Client(self.where) as client:
                for shared in (client, None):
                    consumer: Consumer[bytes] = Consumer(
                        None if shared else self.where, client=shared, group="g", topics="T")
                    call = consumer.client._run
                    self.patch(consumer.client, "_run", interrupted)
                    self.assertRaises(KeyboardInterrupt, consumer.close)
                    self.patch(consumer.client, "_run", call)
                    core = consumer.client._core
                    self.assertEqual(core.is_closed, shared is None)
                    consumer.close()
                    self.assertEqual((core.members, core.is_closed), ([], shared is None))

        return self.in_thread(run)

    def test_two_threads_may_close_at_once(self) -> Deferred[Any]:
        """Both calls return when the client is closed."""
        def run() -> None:
            for kind in ("client", "producer"):
                producer = Producer(self.where)
                producer.send("T", b"x")
                self.close_twice(producer.client,
                                 producer.close if kind == "producer" else producer.client.close)

        return self.in_thread(run)

    def close_twice(self, client: Client, close: Callable[[], None]) -> None:
        """Close, and again while the first close waits for the core."""
        core = client._core
        may_end: Future[None] = Future()
        begun: list[None] = []
        flushed: list[None] = []
        errors: list[BaseException] = []
        close_core = core.close

        async def flush() -> None:
            flushed.append(None)
            if len(flushed) == 1:
                await may_end

        async def counted() -> None:
            begun.append(None)
            await close_core()

        def work() -> None:
            try:
                close()
            except BaseException as error:
                errors.append(error)

        core.before_close.append(flush)
        self.patch(core, "close", counted)
        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        threads[0].start()
        wait_until("the first one waits", lambda: flushed)
        threads[1].start()
        wait_until("the second one has begun", lambda: len(begun) == 2)
        client._loop.call_in_loop(lambda: may_end.set_result(None))
        for thread in threads:
            thread.join(20)
        self.assertEqual([thread.is_alive() for thread in threads], [False, False])
        self.assertEqual((errors, len(flushed), core.is_closed), ([], 1, True))

    def test_a_send_that_is_interrupted_does_not_hold_up_the_close(self) -> Deferred[Any]:
        """Its room is in use, and no message in flight could free it."""
        def interrupted(function: Any, *arguments: Any) -> None:
            raise KeyboardInterrupt

        def run() -> None:
            self.patch(twistmq.client.blocking.producer, "_LATE_S", 0.1)
            producer = Producer(self.where, timeout_s=0.5)
            loop = producer.client._loop
            post = loop.post
            self.patch(loop, "post", interrupted)
            self.assertRaises(KeyboardInterrupt, producer.send_soon, "T", b"x")
            self.patch(loop, "post", post)
            closing = threading.Thread(target=producer.close, daemon=True)
            closing.start()
            closing.join(20)
            self.assertFalse(closing.is_alive())
            self.assertTrue(producer.client._core.is_closed)

        return self.in_thread(run)


class CallTests(ShellCase):
    """Calls whose arguments fail on the client's thread."""

    def test_the_error_reaches_the_caller(self) -> Deferred[Any]:
        """No call waits for ever."""
        def run() -> None:
            with PullConsumer(self.where, group="g", topics="T") as consumer:
                wrong: Any = None
                self.assertRaises(OptionError, consumer.poll, 10, wrong)
                self.assertRaises(OptionError, consumer.seek_to_time, wrong, 5)
                self.assertRaises(OptionError, consumer.client.read_queues, wrong)
                self.assertIsInstance(consumer.poll(10, 0.01), list)

        return self.in_thread(run)
