"""Requests with replies, and recalls, of the three shells with a running broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from twistmq.broker.testing import running_broker
from twistmq.client import (
    Consumer,
    OptionError,
    Producer,
    ReceivedMessage,
    RequestRefused,
    RequestTimeout,
    aio,
    tx,
)


class ReplyTests(TestCase):
    """A broker on its own thread."""

    timeout = 60

    def setUp(self) -> None:
        """Start the broker."""
        running = running_broker({"recallMessageEnable": "true"})
        self.where = running.__enter__().namesrv_address
        self.addCleanup(running.__exit__, None, None, None)

    def in_thread(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run a blocking test beside the reactor."""
        return deferToThread(function)

    def test_fifty_requests_at_a_time_get_their_own_replies(self) -> Deferred[Any]:
        """Producer and consumer are clients of their own."""
        def run() -> None:
            with Producer(self.where) as producer, ThreadPoolExecutor(51) as pool, Consumer(
                    self.where, group="g", topics="T", start="first") as consumer:
                def answer(message: ReceivedMessage[Any]) -> None:
                    self.assertTrue(consumer.reply(message, b"re: " + message.body).safe)

                running = pool.submit(consumer.run, answer, workers=8)
                numbers = [b"%d" % number for number in range(50)]
                found = pool.map(lambda body: producer.request("T", body, timeout_s=20).body,
                                 numbers)
                self.assertEqual(list(found), [b"re: " + number for number in numbers])
                consumer.stop()
                running.result()

        return self.in_thread(run)

    def test_a_request_ends_in_time_and_its_late_reply_changes_nothing(self) -> Deferred[Any]:
        """The same producer then gets the reply to its next request."""
        def run() -> None:
            with Producer(self.where, timeout_s=30) as producer:
                begin = time.monotonic()
                self.assertRaises(RequestTimeout, producer.request, "T", b"first", timeout_s=2)
                self.assertLess(time.monotonic() - begin, 15)
                producer.send("T", b"no request")
                refused: list[Exception] = []
                was_refused = threading.Event()

                def answer(message: ReceivedMessage[Any]) -> None:
                    try:
                        consumer.reply(message, b"re: " + message.body)
                    except OptionError as error:
                        refused.append(error)
                        was_refused.set()

                with ThreadPoolExecutor(1) as pool, Consumer(
                        client=producer.client, group="g", topics="T", start="first") as consumer:
                    running = pool.submit(consumer.run, answer, workers=1)
                    self.assertEqual(producer.request("T", b"second", timeout_s=20).body,
                                     b"re: second")
                    self.assertTrue(was_refused.wait(20))
                    consumer.stop()
                    running.result()
                self.assertEqual(len(refused), 1)

        return self.in_thread(run)

    def test_asyncio_requests_and_replies(self) -> Deferred[Any]:
        """Both are in one loop; a long reply is compressed."""
        async def main() -> None:
            async with aio.Producer(self.where) as producer, aio.Consumer(
                    client=producer.client, group="g", topics="T", start="first") as consumer:
                async def answer(message: ReceivedMessage[Any]) -> None:
                    await consumer.reply(message, message.body * 5000)

                running = asyncio.ensure_future(consumer.run(answer))
                found = await asyncio.gather(
                    *[producer.request("T", b"%d" % number, timeout_s=20)
                      for number in range(9)])
                self.assertEqual([each.body for each in found],
                                 [b"%d" % number * 5000 for number in range(9)])
                consumer.stop()
                await running

        return self.in_thread(lambda: asyncio.run(main()))

    def test_twisted_requests_and_replies(self) -> Deferred[Any]:
        """Both are in one reactor."""
        async def main() -> None:
            async with tx.Producer(self.where, reactor=reactor) as producer:
                consumer = tx.Consumer(client=producer.client, group="g", topics="T", start="first")
                running = consumer.run(
                    lambda message: consumer.reply(message, b"re: " + message.body))
                found = await gatherResults(
                    [producer.request("T", b"%d" % number, timeout_s=20) for number in range(9)])
                self.assertEqual([each.body for each in found],
                                 [b"re: %d" % number for number in range(9)])
                consumer.stop()
                await running
                await consumer.close()

        return Deferred.fromCoroutine(main())

    def test_timed_messages_are_taken_back(self) -> Deferred[Any]:
        """Each shell does it; a second recall changes nothing, and an ordinary
        message is refused.
        """
        async def recall(producer: Any) -> None:
            result = await producer.send("T", b"recalled", delay_s=2)
            await producer.recall(result)
            await producer.recall(result)
            plain = await producer.send("Plain", b"plain")
            with self.assertRaises(OptionError):
                await producer.recall(plain)

        async def with_aio() -> None:
            async with aio.Producer(self.where) as producer:
                await recall(producer)

        async def with_tx() -> None:
            async with tx.Producer(self.where, reactor=reactor) as producer:
                await recall(producer)

        def run() -> None:
            asyncio.run(with_aio())
            with Producer(self.where) as producer:
                recalled = producer.send("T", b"recalled", delay_s=2)
                producer.recall(recalled)
                producer.recall(recalled)
                producer.send("T", b"timed", delay_s=2.5)
                plain = producer.send("T", b"plain")
                self.assertRaises(OptionError, producer.recall, plain)
                found: list[bytes] = []
                with Consumer(client=producer.client, group="g", topics="T",
                              start="first") as consumer:
                    for message in consumer:
                        found.append(message.body)
                        if len(found) == 2:
                            break
                self.assertEqual(found, [b"plain", b"timed"])

        return Deferred.fromCoroutine(with_tx()).addCallback(lambda _: self.in_thread(run))

    def test_a_broker_that_is_set_up_without_it_gives_no_handle(self) -> Deferred[Any]:
        """The error comes before a request, or from the broker."""
        running = running_broker({"recallMessageEnable": "false"})
        where = running.__enter__().namesrv_address
        self.addCleanup(running.__exit__, None, None, None)

        def run() -> None:
            with Producer(where) as producer:
                result = producer.send("T", b"timed", delay_s=60)
                self.assertRaises((OptionError, RequestRefused), producer.recall, result)

        return self.in_thread(run)
