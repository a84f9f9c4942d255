"""Consumers that end in unusual moments: with lost queues, or behind their client."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from twisted.internet.defer import Deferred

from tests.client.test_shells import ShellCase
from tests.interop.servers import wait_until
from twistmq.client import Client, Closed, Consumer, Producer, PullConsumer, aio


class LostTests(ShellCase):
    """Messages that an iteration took, and whose queue went to another member meanwhile."""

    def fill(self) -> None:
        """Twenty messages in each of four queues."""
        with Producer(self.where) as producer:
            for number in range(80):
                producer.send("T", b"%d" % number)

    def test_a_blocking_iteration_gives_them_back(self) -> Deferred[Any]:
        """The close does not wait for handlers that there are not."""
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
                    wait_until("nothing runs but the last", lambda: first.member.running <= 64)
                    begin = time.monotonic()
                    found.close()
                    first.close()
                    self.assertLess(time.monotonic() - begin, 5)
                    self.assertEqual(first.member.running, 0)

        return self.in_thread(run)

    def test_an_iteration_that_is_interrupted_gives_back_what_it_was_given(self) -> Deferred[Any]:
        """The Ctrl-C comes when the messages were handed out, and before the program has them."""
        def run() -> None:
            self.fill()
            with Consumer(self.where, group="g", topics="T", start="first") as consumer:
                call = consumer.client.run

                def interrupted(make: Any) -> None:
                    call(make)
                    raise KeyboardInterrupt

                self.patch(consumer.client, "run", interrupted)
                self.assertRaises(KeyboardInterrupt, next, iter(consumer))
                self.patch(consumer.client, "run", call)
                begin = time.monotonic()
                consumer.close()
                self.assertLess(time.monotonic() - begin, 5)
                self.assertEqual(consumer.member.running, 0)

        return self.in_thread(run)

    def test_an_iteration_of_asyncio_gives_them_back(self) -> Deferred[Any]:
        """The same."""
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
                    self.assertLess(time.monotonic() - begin, 5)
                    self.assertEqual(first.member.running, 0)

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
                consumer = (PullConsumer(client, group=kind, topics="T", start="first")
                            if kind == "poll" else
                            Consumer(client, group=kind, topics="T", start="first"))

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


class CallTests(ShellCase):
    """Calls whose arguments fail on the client's thread."""

    def test_the_error_reaches_the_caller(self) -> Deferred[Any]:
        """No call waits for ever."""
        def run() -> None:
            with PullConsumer(self.where, group="g", topics="T") as consumer:
                wrong: Any = None
                self.assertRaises(TypeError, consumer.poll, 10, wrong)
                self.assertRaises(AttributeError, consumer.seek_to_time, wrong, 5)
                self.assertIsInstance(consumer.poll(10, 0.01), list)

        return self.in_thread(run)
