"""Invalid arguments: each raises an error that names the permitted values."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.client.core.box import NAMESRV, Box, route, routes
from twistmq.broker.testing import running_broker
from twistmq.client import (
    Client,
    Consumer,
    Denied,
    Message,
    MessageQueue,
    OptionError,
    PopConsumer,
    Producer,
    PullConsumer,
    ReceivedMessage,
    Retry,
    SendResult,
    WrongLoop,
    aio,
    sql,
)
from twistmq.client.base.messages import message_of
from twistmq.client.core.consumer.handler_calls import check_run, run_steps
from twistmq.client.core.producer.recalls import recall
from twistmq.client.roles.parts import build_producer
from twistmq.client.shell.lookup import name_servers_of
from twistmq.client.shell.offset_file import OffsetFile
from twistmq.client.testing import RecordingProducer
from twistmq.protocol.codes import ResponseCode

#: Options of a send, and the word of the error that names the wrong one.
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    ("property 'a' is 1", {"properties": {"a": 1}}),
    ("property 1 is 'a'", {"properties": {1: "a"}}),
    ("property 'TAGS' is 1", {"tags": 1}),
    ("property 'TAGS' is ['a']", {"tags": ["a"]}),
    ("keys are [1]", {"keys": [1]}),
    ("keys are 1", {"keys": 1}),
    ("is 5", {"sharding_key": 5}),
    ("delay_s is -5", {"delay_s": -5}),
    ("did you mean delay_s? there are ", {"delay": 5}),
    ("did you mean tags?", {"tag": "eu"}),
    ("did you mean properties?", {"headers": {}}),
    ("did you mean sharding_key?", {"shardingkey": "a"}),
    ("there is no argument of a message colour; there are ", {"colour": 1}),
    ("delay_level is '3'", {"delay_level": "3"}),
    ("deliver_at is 'tomorrow'", {"deliver_at": "tomorrow"}),
    ("queue is 3", {"queue": 3}),
    ("sharding_key is 'k': give one of them",
     {"queue": MessageQueue("t", "b", 0), "sharding_key": "k"}),
]


class MessageTests(SynchronousTestCase):
    """The parts of a message."""

    def setUp(self) -> None:
        """Create a producer that sends nothing."""
        self.producer = RecordingProducer()

    def test_wrong_options_of_a_message_are_named(self) -> None:
        """The error has the value, and nothing is sent."""
        for text, options in MESSAGES:
            error = self.assertRaises(OptionError, self.producer.send, "t", b"x", **options)
            self.assertIn(text, str(error))
        self.assertEqual(self.producer.messages, [])

    def test_a_send_suggests_what_was_meant(self) -> None:
        """A queue and a key that chooses one contradict each other."""
        error = self.assertRaises(OptionError, self.producer.send, "t", b"x", key="o-17")
        self.assertIn("did you mean keys? there are ", str(error))
        message = Message("t", b"x", sharding_key="k")
        error = self.assertRaises(OptionError, self.producer.send, message,
                                  queue=MessageQueue("t", "b", 0))
        self.assertIn("sharding_key is 'k'", str(error))

    def test_a_transaction_has_no_time_out_of_its_own(self) -> None:
        """The error does not suggest the same name."""
        producer = RecordingProducer(on_check=lambda message: None)
        error = self.assertRaises(OptionError, producer.transaction, "t", b"x", timeout_s=3)
        self.assertIn("argument of a message timeout_s; there are delay_level", str(error))

    def test_a_topic_is_a_text(self) -> None:
        """This includes the topics of messages and batches."""
        for topic in (None, b"t", ["t"]):
            error = self.assertRaises(OptionError, self.producer.send, topic, b"x")
            self.assertIn(repr(topic), str(error))
        self.assertRaises(OptionError, self.producer.send, Message(5, b"x"))  # type: ignore[arg-type]
        for each in ("t", ("t", b"x")):
            error = self.assertRaises(OptionError, self.producer.send_batch, [each])
            self.assertIn("objects of Message", str(error))

    def test_a_timeout_is_a_number(self) -> None:
        """This is so for calls and for options."""
        for timeout_s in ("1", -1, float("nan")):
            error = self.assertRaises(OptionError, self.producer.request, "t", b"x",
                                      timeout_s=timeout_s)
            self.assertIn("timeout_s", str(error))

    def test_the_name_of_a_producers_group_is_checked(self) -> None:
        """The name of a producer's group follows the rules for a consumer's group."""
        error = self.assertRaises(OptionError, RecordingProducer, group="a b")
        self.assertIn("'a b'", str(error))

    def test_name_servers_are_texts(self) -> None:
        """A client of another style, or a port, is refused."""
        for where in (9876, [9876], aio.Client("127.0.0.1:1")):
            error = self.assertRaises(OptionError, name_servers_of, where)
            self.assertIn("or client=... for a Client to share", str(error))

    def test_the_folder_of_offsets_may_be_a_text(self) -> None:
        """It has the same effect as the path."""
        self.assertEqual(OffsetFile("1.2.3.4@x", "g", "/tmp/o").path,
                         OffsetFile("1.2.3.4@x", "g", Path("/tmp/o")).path)


class QueueTests(SynchronousTestCase):
    """The queue of a send."""

    def test_a_queue_of_another_kind_or_topic_is_refused(self) -> None:
        """Before anything is sent, and for one-way messages too."""
        box = Box()
        sender = build_producer(box.core, {})
        ready = sender.prepare(Message("t", b"x"))
        for queue in (3, MessageQueue("u", "b", 0)):
            for send in (sender.send, sender.send_oneway):
                task = box.core.tasks.spawn(send(ready, queue), "send")  # type: ignore[operator]
                box.advance(1)
                self.assertIsInstance(task.error, OptionError)
        self.assertEqual(box.connects, [])


class ConsumerArgumentTests(SynchronousTestCase):
    """The topics of consumers, and the arguments of their methods."""

    def test_topics_are_names(self) -> None:
        """Numbers, bytes and expressions of another kind are refused before a member joins."""
        for topics in (5, b"orders", [1], {"orders": 3}, {"orders": [3]}):
            error = self.assertRaises(OptionError, Consumer, "127.0.0.1:9", group="g",
                                      topics=topics)
            self.assertIn("give", str(error))
        self.assertRaises(OptionError, sql, 3)

    def test_a_level_of_a_retry_is_a_number(self) -> None:
        """In Apache's client a negative one would make a dead letter."""
        for level in (-1, "3", 1.5, True):
            error = self.assertRaises(OptionError, Retry, level)
            self.assertIn("Dead()", str(error))
        self.assertEqual(Retry(3).level, 3)

    def test_methods_take_queues_and_messages(self) -> None:
        """The error names the argument; no request is sent."""
        queue = MessageQueue("t", "b", 0)
        with PullConsumer("127.0.0.1:9", group="g", timeout_s=0.1, retries=0) as pull:
            for call in (lambda: pull.seek("t", 0), lambda: pull.seek_to_begin(3),
                         lambda: pull.seek_to_end(None), lambda: pull.position("t"),
                         lambda: pull.seek_to_time("t", datetime.now()),
                         lambda: pull.committed(3), lambda: pull.assign([3]),
                         lambda: pull.assign(3), lambda: pull.pause("t"),
                         lambda: pull.client.max_offset("t"), lambda: pull.client.pull("t", 0)):
                self.assertIn("give a", str(self.assertRaises(OptionError, call)))
            for call in (lambda: pull.seek(queue, "0"), lambda: pull.seek_to_time(queue, "5"),
                         lambda: pull.subscribe(5), lambda: pull.unsubscribe(None)):
                self.assertIn("give", str(self.assertRaises(OptionError, call)))
        with PopConsumer("127.0.0.1:9", group="g", topics="t", timeout_s=0.1,
                         retries=0) as pop:
            for call in (lambda: pop.reply(None, b"x"), lambda: pop.acknowledge(None),
                         lambda: pop.acknowledge([3]),
                         lambda: pop.acknowledge(b"body"), lambda: pop.retry(3),
                         lambda: pop.bury("m"), lambda: pop.extend(None, 3)):
                self.assertIn("give a message", str(self.assertRaises(OptionError, call)))


class RecallTests(SynchronousTestCase):
    """Recalls of messages."""

    def test_only_the_result_of_a_send_is_taken_back(self) -> None:
        """A message is refused."""
        box = Box()
        task = box.core.tasks.spawn(
            recall(build_producer(box.core, {}), None), "recall")  # type: ignore[arg-type]
        box.advance(1)
        self.assertIsInstance(task.error, OptionError)

    def test_a_broker_that_takes_nothing_back_is_explained(self) -> None:
        """The error names the setting of the broker."""
        box = Box()
        box.servers[NAMESRV] = routes({"t": route({"b": "10.0.0.1:10911"})})
        box.servers["10.0.0.1:10911"] = lambda request: (
            ResponseCode.NO_PERMISSION, None, b"", "operation is forbidden")
        result = SendResult("id", "", MessageQueue("t", "b", 0), 0, recall_handle="handle")
        task = box.core.tasks.spawn(recall(build_producer(box.core, {}), result), "recall")
        box.advance(5000)
        self.assertIsInstance(task.error, Denied)
        self.assertIn("recallMessageEnable", str(task.error))


async def _coroutine(message: Any) -> None:
    """A handler for event loops."""


def _generator(message: Any) -> Iterator[None]:
    yield


async def _async_generator(message: Any) -> AsyncIterator[None]:
    yield


class _Callable:
    async def __call__(self, message: Any) -> None:
        """A handler for event loops."""


class HandlerTests(SynchronousTestCase):
    """Handlers whose call would process nothing."""

    def check(self, handler: object, **more: Any) -> str:
        """Return the error of a run, or ""."""
        try:
            check_run(handler, **{"workers": 20, "size": 1, "is_awaited": False, **more})
        except OptionError as error:
            return str(error)
        return ""

    def test_coroutines_are_for_loops(self) -> None:
        """A blocking consumer would call them without an await, and acknowledge the message."""
        for handler in (_coroutine, _Callable(), functools.partial(_coroutine)):
            self.assertIn("twistmq.client.aio", self.check(handler))
            self.assertEqual(self.check(handler, is_awaited=True), "")
        self.assertEqual(self.check(print), "")
        self.assertEqual(self.check(self.check), "")

    def test_generators_are_no_handlers(self) -> None:
        """No style accepts them."""
        for handler in (_generator, _async_generator):
            for is_awaited in (False, True):
                self.assertIn("generator", self.check(handler, is_awaited=is_awaited))

    def test_a_run_has_a_handler_and_workers(self) -> None:
        """A run without workers would never end."""
        self.assertIn("None", self.check(None))
        self.assertIn("workers", self.check(print, workers=0))
        self.assertIn("size", self.check(print, size=0))

    def test_a_result_to_await_fails_the_message(self) -> None:
        """A plain function may return a coroutine, which nothing has run."""
        seen: list[BaseException] = []

        def steps() -> Any:
            try:
                yield "message"
            except TypeError as error:
                seen.append(error)

        run_steps(steps(), lambda message: _coroutine(message))
        self.assertIn("await", str(seen[0]))


class BrokerCase(TestCase):
    """A test with a broker, which is used on a thread."""

    timeout = 120

    def on_thread(self, work: Callable[[str], None]) -> Deferred[Any]:
        """Call a function with the address of a broker."""
        running = running_broker()
        broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        return deferToThread(work, broker.namesrv_address)


class RunTests(BrokerCase):
    """Runs of consumers with a broker."""

    def test_a_blocking_run_refuses_a_coroutine_function(self) -> Deferred[Any]:
        """A run without workers is refused as well; the consumer can still be used."""
        def work(where: str) -> None:
            with Consumer(where, group="g", topics="t") as consumer:
                for run in (consumer.run, consumer.run_batches):
                    self.assertRaises(OptionError, run, _coroutine)
                    self.assertRaises(OptionError, run, print, workers=0)

        return self.on_thread(work)

    def test_what_a_plain_function_of_asyncio_returns_is_awaited(self) -> Deferred[Any]:
        """A lambda that calls a coroutine function is not a coroutine function."""
        handled: list[bytes] = []

        async def main(where: str) -> None:
            async with aio.Consumer(where, group="g", topics="t", start="first") as consumer:
                async def handle(message: ReceivedMessage[bytes]) -> None:
                    handled.append(message.body)
                    consumer.stop()

                await consumer.run(lambda message: handle(message))

        def work(where: str) -> None:
            with Producer(where) as producer:
                producer.send("t", b"x")
            asyncio.run(main(where))
            self.assertEqual(handled, [b"x"])

        return self.on_thread(work)


class LoopTests(BrokerCase):
    """Objects of asyncio, which belong to the loop in which they started."""

    def test_a_loop_after_the_own_one_is_an_error(self) -> None:
        """The error says that the first loop is closed."""
        client = aio.Client("127.0.0.1:9")

        async def start() -> None:
            client._shell.make_loop(None)

        asyncio.run(start())
        for make in (client.topics, client.close):
            with self.assertRaisesRegex(WrongLoop, "is closed: make a new one"):
                asyncio.run(make())

    def test_another_loop_is_an_error(self) -> Deferred[Any]:
        """A loop of another thread, in which the call would hang."""
        def work(where: str) -> None:
            producer = aio.Producer(where, group="p")

            async def use() -> None:
                async with producer:
                    await producer.send("t", b"x")
                    await asyncio.to_thread(refused, "is not the running one")

            async def misuse(text: str) -> None:
                for call in (producer.send, producer.send_soon, producer.request):
                    with self.assertRaisesRegex(WrongLoop, text):
                        await asyncio.wait_for(call("t", b"x"), 20)
                with self.assertRaisesRegex(WrongLoop, text):
                    await asyncio.wait_for(producer.client.topics(), 20)
                consumer = aio.Consumer(client=producer.client, group="g", topics="t")
                with self.assertRaisesRegex(WrongLoop, text):
                    await consumer.start()

            def refused(text: str) -> None:
                asyncio.run(misuse(text))

            asyncio.run(use())

        return self.on_thread(work)

    def test_a_handler_on_a_thread_stops_its_consumer(self) -> Deferred[Any]:
        """The loop is woken at once, also in debug mode, which refuses calls of other threads."""
        handled: list[bytes] = []
        errors: list[BaseException] = []

        async def main(where: str) -> None:
            async with aio.Consumer(where, group="g", topics="t", start="first") as consumer:
                def handle(message: ReceivedMessage[bytes]) -> None:
                    handled.append(message.body)
                    try:
                        consumer.stop()
                    except BaseException as error:
                        errors.append(error)
                        raise

                async with aio.Producer(where) as producer:
                    await producer.send("t", b"x")
                await asyncio.wait_for(consumer.run(handle), 60)

        def work(where: str) -> None:
            asyncio.run(main(where), debug=True)
            self.assertEqual((handled, errors), ([b"x"], []))

        return self.on_thread(work)


class FormerArgumentTests(SynchronousTestCase):
    """Arguments of 0.1, which work once more and warn."""

    def test_a_delay_in_milliseconds(self) -> None:
        """A delay is in seconds."""
        message = message_of("T", b"x", {"delay_ms": 1500})
        self.assertEqual(message.all_properties()["TIMER_DELAY_MS"], "1500")
        [warning] = self.flushWarnings()
        self.assertEqual(warning["category"], DeprecationWarning)
        self.assertIn("delay_s", warning["message"])

    def test_a_client_in_the_place_of_the_name_servers(self) -> None:
        """It is shared, as a client that is given by its name."""
        with Client("127.0.0.1:9") as client:
            producer = Producer(client)  # type: ignore[arg-type]
            self.assertIs(producer.client, client)
            [warning] = self.flushWarnings()
            self.assertIn("client=", warning["message"])
            self.assertRaises(OptionError, Producer, client, client=client)
            self.assertRaises(OptionError, Producer, "127.0.0.1:9", client=client)
            error = self.assertRaises(OptionError, Producer, client="127.0.0.1:9")
            self.assertIn("client is a str", str(error))
