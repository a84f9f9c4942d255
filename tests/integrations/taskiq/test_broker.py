"""The broker for Taskiq, as it is used by programs that send and by Taskiq's receiver."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from typing import Any

from taskiq import BrokerMessage, TaskiqMessage
from taskiq.exceptions import SendTaskError
from taskiq.utils import maybe_awaitable

from tests.integrations.taskiq.case import TaskiqCase, until
from tests.interop.replica_times import Relay
from twistmq.client import ClientError, Interceptor, Producer
from twistmq.integrations.taskiq import TwistmqBroker
from twistmq.integrations.taskiq.testing import running_worker


def message(broker: TwistmqBroker, value: Any = 1, **labels: str) -> BrokerMessage:
    """Return a message of the task ``note``."""
    return broker.formatter.dumps(TaskiqMessage(
        task_id="17", task_name="note", labels=labels, args=[value], kwargs={}))


class BrokerTests(TaskiqCase):
    """Messages as a receiver gets them; adapted from the tests of Taskiq's own brokers."""

    def test_a_message_that_was_sent_is_received_by_one_of_two_listeners(self) -> None:
        """The acknowledgement finishes the message."""
        async def main() -> None:
            async with self.open_broker() as broker:
                self.noting(broker)
                sent = message(broker)
                first, second = (asyncio.create_task(self.take(broker)) for _ in range(2))
                await broker.kick(sent)
                done, waiting = await asyncio.wait(
                    (first, second), return_when=asyncio.FIRST_COMPLETED)
                self.assertEqual((len(done), len(waiting)), (1, 1))
                received = done.pop().result()
                self.assertEqual(received.data, sent.message)
                await maybe_awaitable(received.ack())
                waiting.pop().cancel()
                await broker.wait_all(60)

        self.run_async(main())

    def test_a_message_that_is_not_acknowledged_becomes_a_dead_letter(self) -> None:
        """The message is delivered again as often as the option permits."""
        async def main() -> None:
            for _ in range(2):
                async with self.open_broker(max_attempts=2) as broker:
                    self.noting(broker)
                    if not self.calls:
                        await broker.kick(message(broker))
                    self.calls.append((await self.take(broker)).data)
            async with self.open_broker(max_attempts=2) as broker:
                self.noting(broker)
                listening = asyncio.create_task(self.take(broker))
                await until("the dead letter", lambda: self.dead_letter_count() == 1)
                listening.cancel()

        self.run_async(main())
        self.assertEqual(len(self.calls), 2)

    def test_a_delayed_message_comes_at_its_time(self) -> None:
        """The message does not arrive earlier, and other messages arrive in the meantime."""
        async def main() -> None:
            async with self.open_broker() as broker:
                self.noting(broker)
                begin = time.time()
                await broker.kick(message(broker, "late", delay="1.2"))
                await broker.kick(message(broker, "soon"))
                for value in ("soon", "late"):
                    received = await self.take(broker)
                    self.assertIn(value.encode(), received.data)
                    await maybe_awaitable(received.ack())
                self.assertGreaterEqual(time.time(), begin + 1.2)

        self.run_async(main())

    def test_a_delay_beyond_the_limit_is_divided(self) -> None:
        """Each part has the keys, the tag and the trace of the task."""
        traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

        class Tracing(Interceptor):
            def before_send(self, topic: str, properties: dict[str, str]) -> None:
                properties.setdefault("traceparent", traceparent)

        async def main() -> None:
            async with self.open_broker(delay_max_s=1) as broker, \
                    self.open_broker(interceptors=[Tracing()], delay_max_s=1) as sender:
                self.noting(broker)
                begin = time.time()
                await sender.kick(message(sender, delay="3.6", message_tag="eu"))
                await maybe_awaitable((await self.take(broker)).ack())
                self.assertGreaterEqual(time.time(), begin + 3.6)

        self.run_async(main())
        sent = self.messages()
        self.assertGreaterEqual(len(sent), 2)
        for each in sent:
            self.assertEqual((each.keys, each.tags, each.properties["traceparent"]),
                             (["17"], "eu", traceparent))

    def test_a_limit_that_the_broker_does_not_have_is_an_error(self) -> None:
        """The error has Taskiq's own type, and its cause contains the reason of the broker."""
        async def main() -> None:
            async with self.open_broker(delay_max_s=30 * 86_400) as broker:
                late = self.noting(broker).kicker().with_labels(delay=20 * 86_400)
                with self.assertRaises(SendTaskError) as raised:
                    await late.kiq(1)
                self.assertIn("timer message illegal", str(raised.exception.__cause__))

        self.run_async(main())

    def test_many_are_sent_at_once(self) -> None:
        """The first of the sends creates the topic."""
        async def main() -> None:
            async with self.open_broker() as broker:
                self.noting(broker)
                await asyncio.gather(*(broker.kick(message(broker, n)) for n in range(50)))

        self.run_async(main())
        self.assertEqual(self.count(f"taskiq-{self.queue}"), 50)

    def test_messages_that_are_no_known_tasks_are_dead_letters(self) -> None:
        """Each of them has one log line without its body, and the queue continues to work."""
        async def main() -> None:
            async with self.open_broker() as broker:
                note = self.noting(broker)
                await broker.kick(BrokerMessage(
                    task_id="1", task_name="note", message=b"{secret", labels={}))
                await broker.kick(broker.formatter.dumps(TaskiqMessage(
                    task_id="2", task_name="unknown", labels={}, args=[], kwargs={})))
                await note.kiq("known")
                await self.run_worker(broker)

        with self.assertLogs("twistmq.integrations", logging.INFO) as logged:
            self.run_async(main())
        self.assertEqual((self.calls, self.dead_letter_count()), (["known"], 2))
        first, second = logged.output
        self.assertIn("dead letters: it is not a task: JSONDecodeError", first)
        self.assertNotIn("secret", first)
        self.assertIn("dead letters: the task 'unknown' is not known", second)

    def test_a_message_of_another_program_may_be_a_task(self) -> None:
        """Only the body counts."""
        async def main() -> None:
            async with self.open_broker() as broker:
                self.noting(broker)
                await broker.kick(message(broker, "first"))
                with Producer(self.server.namesrv_address) as producer:
                    producer.send(f"taskiq-{self.queue}", message(broker, "second").message)
                await self.run_worker(broker)

        self.run_async(main())
        self.assertEqual(self.calls, ["first", "second"])


class LabelTests(TaskiqCase):
    """Labels that determine how a message is sent."""

    def test_keys_and_a_tag_are_those_of_the_message(self) -> None:
        """The id of the task is a key as well."""
        async def main() -> None:
            async with self.open_broker() as broker:
                note = self.noting(broker, message_tag="eu")
                await note.kicker().with_task_id("t-1").with_labels(
                    message_keys="order-17 shop-3").kiq(1)

        self.run_async(main())
        sent, = self.messages()
        self.assertEqual((sent.keys, sent.tags), (["t-1", "order-17", "shop-3"], "eu"))

    def test_another_queue_has_its_own_workers(self) -> None:
        """A label names the queue."""
        other = f"{self.queue}-other"

        async def main() -> None:
            async with self.open_broker() as broker, self.open_broker(queue_name=other) as second:
                note = self.noting(broker)
                self.noting(second)
                await note.kicker().with_labels(queue_name=other).kiq("other")
                await note.kiq("own")
                await self.run_worker(second)
                self.assertEqual(self.calls, ["other"])
                await self.run_worker(broker)

        self.run_async(main())
        self.assertEqual(self.calls, ["other", "own"])

    def test_higher_priorities_begin_first(self) -> None:
        """This also holds among delayed messages; the topic has a queue for each priority."""
        async def main() -> None:
            async with self.open_broker(priorities=3) as broker:
                note = self.noting(broker)
                await note.kicker().with_labels(priority=2, delay=0.3).kiq("late 2")
                for priority in (0, 1, 2, 7):
                    await note.kicker().with_labels(priority=priority).kiq(priority)
                await note.kiq("none")
                due = time.time() + 0.3
                await until("the delayed one", lambda: time.time() > due and self.count(
                    f"taskiq-{self.queue}", 2) == 3)
                await self.run_worker(broker, max_async_tasks=1)

        self.run_async(main())
        self.assertEqual(self.calls, [2, 7, "late 2", 1, 0, "none"])

    def test_a_wrong_label_is_named(self) -> None:
        """Taskiq's error for a task that is not sent has this error as its cause."""
        async def main() -> None:
            async with self.open_broker() as broker:
                note = self.noting(broker)
                for name, value in (("delay", "soon"), ("delay", -1), ("delay", float("nan")),
                                    ("priority", "high"), ("priority", -1)):
                    with self.assertRaises(SendTaskError) as raised:
                        await note.kicker().with_labels(**{name: value}).kiq(1)
                    self.assertIn(f"label {name} is", str(raised.exception.__cause__))
                with self.assertRaises(SendTaskError) as raised:
                    await note.kicker().with_labels(message_tag="a||b").kiq(1)
                self.assertIn("tag 'a||b'", str(raised.exception.__cause__))

        self.run_async(main())


class ConnectionTests(TaskiqCase):
    """The moment at which the broker connects, its errors, and its end."""

    def test_no_server_answers(self) -> None:
        """A start does not connect; a send names the server; a worker logs it once and waits."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]

        async def main() -> None:
            broker = TwistmqBroker(f"127.0.0.1:{port}", timeout_s=0.2, connect_timeout_s=0.2,
                                   retries=0)
            note = self.noting(broker)
            await broker.startup()
            with self.assertRaises(SendTaskError) as raised:
                await note.kiq(1)
            self.assertIsInstance(raised.exception.__cause__, ClientError)
            self.assertIn(f"127.0.0.1:{port}", str(raised.exception.__cause__))
            listening = asyncio.create_task(self.take(broker))
            await until("the line", lambda: logged.output)
            await asyncio.sleep(1.5)
            listening.cancel()
            await broker.shutdown()

        with self.assertLogs("twistmq.integrations", logging.WARNING) as logged:
            self.run_async(main())
        line, = logged.output
        self.assertIn("queue default cannot be read, and will be tried again", line)
        self.assertIn(f"127.0.0.1:{port}", line)

    def test_a_name_server_is_away_for_a_while(self) -> None:
        """Tasks run meanwhile, each once; a new queue is an error that names the name server."""
        server = ("127.0.0.1", self.server.service.namesrv.port)

        async def main() -> None:
            with Relay(("127.0.0.1", 0), server) as relay:
                address = relay.address
                broker = TwistmqBroker(address, queue_name=self.queue, timeout_s=0.5,
                                       connect_timeout_s=0.5, retries=0)
                note = self.noting(broker)
                await broker.startup()
                worker = running_worker(broker)
                await worker.__aenter__()
                await note.kiq(1)
                await until("the first task", lambda: self.calls == [1])
            await note.kiq(2)
            await until("the second task", lambda: self.calls == [1, 2])
            with self.assertRaises(SendTaskError) as raised:
                await note.kicker().with_labels(queue_name=f"{self.queue}-new").kiq(3)
            self.assertIn(address, str(raised.exception.__cause__))
            with Relay(("127.0.0.1", int(address.rpartition(":")[2])), server):
                await note.kiq(4)
                await until("the last task", lambda: self.calls == [1, 2, 4])
                await worker.__aexit__(None, None, None)

        self.run_async(main())

    def test_a_task_that_is_too_large_is_refused(self) -> None:
        """The error contains the limit."""
        async def main() -> None:
            async with self.open_broker() as broker:
                with self.assertRaises(SendTaskError) as raised:
                    await self.noting(broker).kiq("x" * (5 << 20))
                self.assertIn("4194304", str(raised.exception.__cause__))

        self.run_async(main())

    def test_a_wrong_option_is_named(self) -> None:
        """An option of the broker is checked at once."""
        self.assertIn("prefetch is 0: give at least 1", str(
            self.assertRaises(ValueError, TwistmqBroker, prefetch=0)))

    def test_threads_end_with_the_broker_and_it_connects_again(self) -> None:
        """No thread remains, and a later send makes new connections."""
        before = set(threading.enumerate())

        async def main() -> None:
            broker = self.broker()
            note = self.noting(broker)
            for number in range(2):
                await broker.startup()
                await note.kiq(number)
                await maybe_awaitable((await self.take(broker)).ack())
                await broker.shutdown()

        self.run_async(main())
        ends = time.monotonic() + 60
        while (left := [each.name for each in set(threading.enumerate()) - before
                        if each.name.startswith("twistmq-")]) and time.monotonic() < ends:
            time.sleep(0.02)
        self.assertEqual(left, [])
