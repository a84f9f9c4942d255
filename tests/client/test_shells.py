"""The three shells with a running broker send and consume messages."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from twistmq.broker.testing import running_broker
from twistmq.client import (
    Client,
    Consumer,
    Dead,
    ForkedError,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    RemotingConnectError,
    Retry,
    SendFailed,
    aio,
    tx,
)
from twistmq.client.base.codecs import json_of
from twistmq.client.base.interceptors import Interceptor
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.record import records_of


class SentCodes(Interceptor):
    """Remembers the codes of the sends that were requested."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def before_request(self, address: str, code: int, body: bytes) -> None:
        """See ``Interceptor``."""
        if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            self.codes.append(code)


class ShellCase(TestCase):
    """A broker on its own thread, and topics of each test."""

    timeout = 60

    def setUp(self) -> None:
        """Start the broker."""
        # On a busy machine, this process may stand still for longer than a send waits by default.
        running = running_broker({"waitTimeMillsInSendQueue": "20000"})
        self.broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        self.where = self.broker.namesrv_address

    def in_thread(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run a blocking test beside the reactor."""
        return deferToThread(function)


class BlockingTests(ShellCase):
    """The blocking shell."""

    def test_messages_are_sent_and_iterated(self) -> Deferred[Any]:
        """If the loop is left, the next member of the group gets the last message again."""
        def run() -> None:
            with Producer(self.where, group="p") as producer:
                results = [producer.send("T", b"%d" % number, tags="a", keys=["k"])
                           for number in range(20)]
                self.assertEqual(len({result.id for result in results}), 20)
                waiting = [producer.send_soon("T", b"%d" % number) for number in range(20, 40)]
                producer.flush()
                self.assertTrue(all(each.result().safe for each in waiting))
                producer.send_batch([Message(topic="T", body=b"%d" % each) for each in (40, 41)])
                producer.send_oneway("T", b"42")
                seen: list[int] = []
                with Consumer(client=producer.client, group="g", topics="T",
                              start="first") as consumer:
                    # A message that is missing fails the test, and does not hang it.
                    patience = threading.Timer(30, consumer.stop)
                    patience.start()
                    for message in consumer:
                        seen.append(int(message.body))
                        if len(seen) == 43:
                            break
                    patience.cancel()
                self.assertEqual(sorted(seen), list(range(43)))
                with Consumer(client=producer.client, group="g", topics="T",
                              start="first") as consumer:
                    for message in consumer:
                        self.assertEqual(int(message.body), seen[-1])
                        break

        return self.in_thread(run)

    def test_messages_of_send_soon_are_batched_and_each_knows_its_place(self) -> Deferred[Any]:
        """The results have the offsets of the stored messages."""
        def run() -> None:
            sends = SentCodes()
            with Producer(self.where, auto_batch=True, interceptors=[sends]) as producer:
                waiting = [producer.send_soon("T", b"%d" % number) for number in range(500)]
                producer.flush()
                for number, each in enumerate(waiting):
                    result = each.result()
                    found = producer.client.pull(result.queue, result.offset, max_count=1)
                    [record] = records_of(found.body)
                    self.assertEqual(record.body, b"%d" % number)
                    self.assertEqual(record.properties_map()["UNIQ_KEY"], result.id)
            self.assertGreater(sends.codes.count(RequestCode.SEND_BATCH_MESSAGE), 0)
            self.assertLess(len(sends.codes), 50)

        return self.in_thread(run)

    def test_a_handler_decides_what_becomes_of_a_message(self) -> Deferred[Any]:
        """Retry, Dead and an error are tested; an ordered queue is suspended."""
        def run() -> None:
            with Producer(self.where) as producer:
                for number in range(30):
                    producer.send("T", b"%d" % number, sharding_key="one")
                seen: list[int] = []
                failed = threading.Event()

                def handle(message: ReceivedMessage[Any]) -> None:
                    number = int(message.body)
                    if number == 7 and not failed.is_set():
                        failed.set()
                        raise ValueError("once")
                    seen.append(number)
                    if number == 29:
                        consumer.stop()

                with Consumer(client=producer.client, group="g", topics="T", start="first",
                              order="queue", suspend_s=0.05) as consumer:
                    consumer.run(handle, workers=4)
                self.assertEqual(seen, list(range(30)))

        return self.in_thread(run)

    def test_a_failed_message_is_delivered_again_and_a_dead_one_is_not(self) -> Deferred[Any]:
        """The second attempt comes through the retry topic."""
        def run() -> None:
            with Producer(self.where) as producer:
                producer.send("T", b"again")
                producer.send("T", b"dead")
                attempts: list[tuple[bytes, int]] = []

                def handle(message: ReceivedMessage[Any]) -> None:
                    attempts.append((message.body, message.attempt))
                    if message.body == b"dead":
                        raise Dead
                    if message.attempt == 1:
                        raise Retry(1)
                    self.assertEqual(message.topic, "T")
                    consumer.stop()

                with Consumer(client=producer.client, group="g", topics="T",
                              start="first") as consumer:
                    consumer.run(handle, workers=2)
                self.assertEqual(sorted(attempts), [(b"again", 1), (b"again", 2), (b"dead", 1)])

        return self.in_thread(run)

    def test_a_batch_handler_says_how_many_it_processed(self) -> Deferred[Any]:
        """All messages are handled once."""
        def run() -> None:
            with Producer(self.where) as producer:
                producer.send_many([Message(topic="T", body=b"%d" % each) for each in range(100)])
                seen: list[int] = []

                def handle(messages: list[ReceivedMessage[Any]]) -> None:
                    seen.extend(int(message.body) for message in messages)
                    if len(seen) >= 100:
                        consumer.stop()

                with Consumer(client=producer.client, group="g", topics="T",
                              start="first") as consumer:
                    consumer.run_batches(handle, size=16, workers=3)
                self.assertEqual(sorted(seen), list(range(100)))

        return self.in_thread(run)

    def test_values_are_encoded_and_decoded(self) -> Deferred[Any]:
        """A long body is compressed; one without a value is skipped on request."""
        def run() -> None:
            pages = json_of(dict[str, str])
            with Producer(self.where, encode=pages.encode) as producer:
                producer.send("T", {"text": "x" * 10_000})
                with Producer(client=producer.client, group="raw") as other:
                    other.send("T", b"no JSON")
                producer.send("T", {"text": "end"})
                seen = []
                with Consumer(client=producer.client, group="g", topics="T", start="first",
                              decode=pages, undecodable="skip") as consumer:
                    for message in consumer:
                        seen.append(len(message.value["text"]))
                        if len(seen) == 2:
                            break
                self.assertEqual(sorted(seen), [3, 10_000])

        return self.in_thread(run)

    def test_a_listener_may_ask_the_consumer_that_calls_it(self) -> Deferred[Any]:
        """It runs on the client's thread, which does not wait for itself."""
        def run() -> None:
            with Producer(self.where) as producer:
                for topic in ("T", "U"):
                    producer.send(topic, b"1")
                consumers: list[Consumer[bytes]] = []
                has_both = threading.Event()

                def note(_: list[MessageQueue]) -> None:
                    for consumer in consumers:
                        consumer.resume()
                        if {queue.topic for queue in consumer.assigned()} == {"T", "U"}:
                            has_both.set()

                with Consumer(client=producer.client, group="g", topics="T",
                              on_assigned=note) as consumer:
                    consumers.append(consumer)
                    consumer.subscribe("U")
                    self.assertTrue(has_both.wait(30))

        return self.in_thread(run)

    def test_a_broker_that_is_gone_fails_a_send_within_its_time(self) -> Deferred[Any]:
        """No attempt was sent, so nothing can be stored."""
        def run() -> None:
            with Producer("127.0.0.1:9", timeout_s=1.0, retries=0) as producer:
                error = self.assertRaises(SendFailed, producer.send, "T", b"1")
                self.assertFalse(error.maybe_stored)
                self.assertRaises(RemotingConnectError, producer.client.topics)

        return self.in_thread(run)

    def test_a_child_of_a_fork_cannot_use_the_consumers_of_its_parent(self) -> Deferred[Any]:
        """Calls that only post work to the client's thread raise the error as well."""
        def run() -> None:
            with Producer(self.where) as producer:
                for number in range(5):
                    producer.send("T", b"%d" % number)
            with Consumer(self.where, group="forked", topics="T", start="first") as consumer:
                messages = iter(consumer)
                next(messages)
                child = os.fork()
                if not child:
                    wrong = 0
                    for call in (lambda: next(messages), consumer.commit, consumer.stop):
                        try:
                            call()
                            wrong += 1
                        except ForkedError:
                            pass
                        except BaseException:
                            wrong += 10
                    os._exit(wrong)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
                next(messages)

        return self.in_thread(run)

    def test_a_child_of_a_fork_cannot_use_the_clients_of_its_parent(self) -> Deferred[Any]:
        """It gets an error, and the parent's connections remain."""
        def run() -> None:
            with Client(self.where) as client:
                client.topics()
                child = os.fork()
                if not child:
                    try:
                        client.topics()
                    except ForkedError:
                        os._exit(0)
                    except BaseException:
                        os._exit(2)
                    os._exit(1)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
                client.topics()

        return self.in_thread(run)


class AioTests(ShellCase):
    """The shell for asyncio."""

    def test_messages_are_sent_and_consumed(self) -> Deferred[Any]:
        """An iteration, a coroutine handler, and a function on threads are used."""
        async def main() -> None:
            async with aio.Producer(self.where, group="p") as producer:
                await producer.send("T", b"0", keys=["k"])
                waiting = [await producer.send_soon("T", b"%d" % each) for each in range(1, 300)]
                await producer.flush()
                self.assertTrue(all(each.result().safe for each in waiting))
                seen = []
                async with aio.Consumer(client=producer.client, group="g", topics="T",
                                        start="first") as consumer:
                    async for message in consumer:
                        seen.append(int(message.body))
                        if len(seen) == 300:
                            break
                self.assertEqual(sorted(seen), list(range(300)))
                for plain in (False, True):
                    await self.handle(producer.client, plain)

        return self.in_thread(lambda: asyncio.run(main()))

    async def handle(self, client: aio.Client, plain: bool) -> None:
        """Consume all messages with a handler of some kind."""
        seen: list[int] = []
        consumer: aio.Consumer[bytes] = aio.Consumer(
            client=client, group=f"h{plain}", topics="T", start="first")

        def note(message: ReceivedMessage[bytes]) -> None:
            seen.append(int(message.body))
            if len(seen) == 300 and not plain:
                consumer.stop()

        async def handler(message: ReceivedMessage[bytes]) -> None:
            await asyncio.sleep(0)
            note(message)

        async with consumer:
            running = asyncio.ensure_future(consumer.run(note if plain else handler))
            while len(seen) < 300:
                await asyncio.sleep(0.01)
            consumer.stop()
            await running
        self.assertEqual(sorted(seen), list(range(300)))

    def test_cancelling_an_iteration_leaves_the_consumer_usable(self) -> Deferred[Any]:
        """The next iteration reads the later message."""
        async def main() -> None:
            async with aio.Producer(self.where) as producer, aio.Consumer(
                    client=producer.client, group="g", topics="T", start="first") as consumer:
                async def first() -> bytes:
                    async for message in consumer:
                        return message.body
                    raise AssertionError("it ended")

                waiting = asyncio.ensure_future(first())
                await asyncio.sleep(0.05)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                await producer.send("T", b"late")
                self.assertEqual(await first(), b"late")

        return self.in_thread(lambda: asyncio.run(main()))


class TwistedTests(ShellCase):
    """The shell for Twisted."""

    def test_messages_are_sent_and_consumed_by_a_service(self) -> Deferred[Any]:
        """The service joins, handles messages, and leaves."""
        async def main() -> None:
            async with tx.Producer(self.where, group="p", reactor=reactor) as producer:
                await producer.send("T", b"0")
                waiting = [await producer.send_soon("T", b"%d" % each) for each in range(1, 100)]
                await producer.flush()
                for each in waiting:
                    self.assertTrue((await each).safe)
                seen: list[int] = []
                done: Deferred[None] = Deferred()

                def handle(message: ReceivedMessage[Any]) -> None:
                    seen.append(int(message.body))
                    if len(seen) == 100:
                        done.callback(None)

                service = tx.ConsumerService(
                    tx.Consumer(client=producer.client, group="g", topics="T", start="first"),
                    handle)
                service.startService()
                await done
                await service.stopService()
                self.assertEqual(sorted(seen), list(range(100)))

        return Deferred.fromCoroutine(main())
