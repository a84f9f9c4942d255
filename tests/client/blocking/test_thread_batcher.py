"""Automatic batches that are filled by threads: without a broker, and with many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes
from twistmq.broker.testing import running_broker
from twistmq.client import Closed, Full, Producer, Rejected, SendResult
from twistmq.client.base.messages import Message, PullStatus
from twistmq.client.blocking.client import Client
from twistmq.client.blocking.thread_batcher import ThreadBatcher
from twistmq.client.blocking.thread_in_flight_limit import ThreadInFlightLimit
from twistmq.client.core.consumer.pull_request import unwrap
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.properties import parse_properties

A = "10.0.0.2:10911"


def stored_in_turn() -> Callable[[RemotingCommand], Answer]:
    """A broker that stores messages at offsets from 0 on."""
    offsets = count()

    def answer(command: RemotingCommand) -> Answer:
        messages = (len(decode_batch(command.body))
                    if command.code == RequestCode.SEND_BATCH_MESSAGE else 1)
        taken = [next(offsets) for _ in range(messages)]
        places = ",".join(f"P{offset}" for offset in taken)
        return (ResponseCode.SUCCESS, SendMessageResponseHeader(
            places, int(command.fields()["e"]), taken[0]), b"", None)

    return answer


class FillTests(SynchronousTestCase):
    """The engine runs when the test asks for it."""

    def setUp(self) -> None:
        """Make a producer's batches, with the topic's route known."""
        self.box = Box()
        self.addCleanup(self.box.settle)
        self.box.servers[NAMESRV] = routes({"T": route({"a": A}, 1)})
        self.box.servers[A] = stored_in_turn()
        ids = count()
        self.sender = Sender(self.box.core, ProducerOptions(
            group="g", auto_batch=True, timeout_ms=1), lambda now_ms: f"ID{next(ids)}")
        self.room = ThreadInFlightLimit(1000, 1 << 20)
        self.posted: list[Callable[[], object]] = []
        self.batching = ThreadBatcher(self.sender, self.room, self.posted.append)
        self.sender.batching = self.batching
        self.box.run(self.box.core.routes.find_for_send("T"))
        self.box.requests.clear()

    def send(
        self, body: bytes, queue: MessageQueue | None = None, **options: Any
    ) -> ThreadFuture[SendResult] | None:
        """Send as ``Producer.send_soon`` does."""
        if queue is None and not options:
            waiting = self.batching.add_plain("T", body)
            if waiting is not None:
                return waiting
        message = Message("T", body, **options)
        return self.batching.add(message, self.sender.prepare(message), queue)

    def wait(self, milliseconds: float = 0) -> None:
        """Let the engine run the posted functions, and let time pass."""
        while self.posted:
            self.posted.pop(0)()
        self.box.advance(milliseconds)

    def parts(self) -> list[list[tuple[int, bytes, str]]]:
        """The messages of each batch that the broker got: flag, body, properties."""
        return [decode_batch(command.body) for _, command in self.box.requests
                if command.code == RequestCode.SEND_BATCH_MESSAGE]

    def test_the_engine_is_told_of_a_batch_and_not_of_a_message(self) -> None:
        """It is informed once when a batch begins, and once when some are full."""
        for number in range(100):
            self.send(b"%d" % number)
        self.assertEqual(len(self.posted), 1)
        self.wait()
        self.send(b"x" * 4000)
        self.assertEqual(self.posted, [])
        for _ in range(30):
            self.send(b"x" * 4000)
        self.assertEqual(len(self.posted), 1)

    def test_messages_wait_for_others_and_each_has_its_own_result(self) -> None:
        """Each message has its own id and offset, and the usual properties."""
        waiting = [self.send(b"%d" % number) for number in range(3)]
        self.wait(9)
        self.assertEqual(self.parts(), [])
        self.wait(2)
        [parts] = self.parts()
        self.assertEqual([body for _, body, _ in parts], [b"0", b"1", b"2"])
        for number, (each, (_, _, text)) in enumerate(zip(waiting, parts, strict=True)):
            assert each is not None
            result = each.result(0)
            self.assertEqual((result.offset, result.offset_id), (number, f"P{number}"))
            self.assertEqual(parse_properties(text), {"WAIT": "true", "UNIQ_KEY": result.id})
        self.assertEqual((self.room.count, self.room.bytes), (0, 0))

    def test_plain_messages_and_others_keep_their_order(self) -> None:
        """A message with a property waits in the same batch."""
        self.send(b"0")
        self.send(b"1")
        self.send(b"2", keys=("k",), flag=7)
        self.send(b"3")
        self.wait(11)
        [parts] = self.parts()
        self.assertEqual([(flag, body) for flag, body, _ in parts],
                         [(0, b"0"), (0, b"1"), (7, b"2"), (0, b"3")])
        self.assertEqual(parse_properties(parts[2][2])["KEYS"], "k")

    def test_messages_of_a_queue_are_sent_in_order(self) -> None:
        """A full batch is sent before the next one, however late the engine is."""
        queue = MessageQueue("T", "a", 0)
        for number in range(40):
            self.send(b"%04d" % number + b"x" * 2000, queue)
        # The time of the last batch is over before the engine heard of the first.
        self.box.clock.now_ms += 50
        self.box.engine.run()
        self.wait(11)
        sent = [int(body[:4]) for parts in self.parts() for _, body, _ in parts]
        self.assertEqual(sent, list(range(40)))
        self.assertGreater(len(self.parts()), 1)

    def test_one_message_alone_is_sent_as_a_message(self) -> None:
        """The message may be plain or not."""
        for options in ({}, {"keys": ("k",)}, {}):
            waiting = self.send(b"x", **options)
            self.wait(11)
            assert waiting is not None
            self.assertIn("UNIQ_KEY\x01" + waiting.result(0).id,
                          self.box.requests[-1][1].fields()["i"])
        self.assertEqual([command.code for _, command in self.box.requests],
                         [RequestCode.SEND_MESSAGE_V2] * 3)

    def test_a_message_as_long_as_a_batch_is_one(self) -> None:
        """The previous batch is sent first, and each has its own result."""
        waiting = [self.send(b"0"), self.send(b"1"), self.send(b"2", keys=("k" * 32_700,))]
        self.wait()
        results = [each.result(0) for each in waiting if each is not None]
        self.assertEqual([each.offset for each in results], [0, 1, 2])
        self.assertEqual([body for parts in self.parts() for _, body, _ in parts], [b"0", b"1"])

    def test_what_brokers_take_alone_is_not_taken(self) -> None:
        """Messages with a flag, an empty or a large body are not added either."""
        self.send(b"1")
        for options in ({"delay_level": 1}, {"sharding_key": "k"}, {"flag": 1 << 31}):
            self.assertIsNone(self.send(b"x", **options))
        self.assertIsNone(self.send(b"x" * 5000))
        self.assertIsNone(self.batching.add_plain("T", b""))
        self.assertEqual(self.room.count, 1)

    def test_a_message_without_room_is_refused_and_takes_none(self) -> None:
        """It is refused when the time of a send is over."""
        self.room.take(1 << 20, 0)
        self.assertRaises(Full, self.send, b"1")
        self.room.give(1 << 20)
        self.assertIsNotNone(self.send(b"1"))
        self.assertEqual(self.room.count, 1)

    def test_over_the_bound_of_all_batches_messages_go_alone(self) -> None:
        """No more are added until a batch has ended."""
        self.send(b"1")
        self.send(b"2")
        accumulator = self.batching._accumulator
        accumulator.byte_count += 32 << 20
        self.batching.flush()
        self.assertIsNone(self.send(b"3"))
        self.assertEqual(self.room.count, 2)
        accumulator.byte_count -= 32 << 20
        self.assertIsNotNone(self.send(b"4"))

    def test_a_refusal_fails_each_message_and_frees_the_room(self) -> None:
        """Each message has the error of the batch."""
        self.box.servers[A] = lambda command: (ResponseCode.MESSAGE_ILLEGAL, None, b"", "no")
        waiting = [self.send(b"%d" % number) for number in range(2)]
        self.wait(11)
        for each in waiting:
            assert each is not None
            self.assertIsInstance(each.exception(0), Rejected)
        self.assertEqual((self.room.count, self.room.bytes), (0, 0))

    def test_a_client_that_is_closed_fails_what_waits_and_takes_no_more(self) -> None:
        """No message remains without a result."""
        self.box.core.on_close.append(self.sender.flush_batches)
        waiting = [self.send(b"%d" % number) for number in range(2)]
        self.box.run(self.box.core.close())
        for each in waiting:
            assert each is not None
            self.assertIsInstance(each.exception(0), Closed)
        self.assertIsNone(self.send(b"2"))

    def test_bodies_are_messages_only_when_nothing_else_has_to_see_them(self) -> None:
        """An encoder needs a message, and so does an interceptor."""
        encoding = Sender(self.box.core, ProducerOptions(auto_batch=True), lambda now_ms: "ID",
                          encode=lambda value: b"<" + value + b">")
        batching = ThreadBatcher(encoding, self.room, self.posted.append)
        for _ in range(2):
            self.assertIsNone(batching.add_plain("T", b"x"))
            message = Message("T", b"x")
            batching.add(message, encoding.prepare(message), None)
        self.wait()
        batching.flush()
        self.box.settle()
        self.assertEqual([body for _, body, _ in self.parts()[-1]], [b"<x>"] * 2)


class ThreadTests(TestCase):
    """Tests with a running broker."""

    timeout = 60

    def test_threads_fill_the_same_batches(self) -> Deferred[Any]:
        """Each message is stored once, in order, at the offset of its result."""
        threads, messages = 8, 400

        def run() -> None:
            with running_broker() as broker, Client(broker.namesrv_address) as client, Producer(
                    client=client, auto_batch=True, in_flight_max=500) as producer:
                queue = producer.queues("TBW102")[0]
                sent: list[list[ThreadFuture[SendResult]]] = [[] for _ in range(threads)]

                def work(number: int) -> None:
                    for index in range(messages):
                        keys = ("k",) if index % 3 == 0 else ()
                        sent[number].append(producer.send_soon(Message(
                            "T", b"%d %d" % (number, index), keys=keys), queue=MessageQueue(
                                "T", queue.broker_name, 0)))
                        if index % 2 == 0:
                            producer.send_soon("U", b"%d" % index)

                running = [threading.Thread(target=work, args=(number,))
                           for number in range(threads)]
                producer.send("T", b"first")
                for each in running:
                    each.start()
                for each in running:
                    each.join()
                producer.flush()
                stored = records(client, MessageQueue("T", queue.broker_name, 0))
                for number, waiting in enumerate(sent):
                    offsets = [each.result(30).offset for each in waiting]
                    self.assertEqual(offsets, sorted(offsets))
                    self.assertEqual([stored[each] for each in offsets],
                                     [b"%d %d" % (number, index) for index in range(messages)])
                found = sum(len(records(client, each)) for each in client.read_queues("U"))
                self.assertEqual(found, threads * messages // 2)

        return deferToThread(run)


def records(client: Client, queue: MessageQueue) -> dict[int, bytes]:
    """Return the bodies of a queue, by offset."""
    found: dict[int, bytes] = {}
    offset = 0
    while (result := client.pull(queue, offset)).status is PullStatus.FOUND:
        found |= {record.queue_offset: record.body for record in unwrap(result.body, queue, [])}
        offset = result.next_offset
    return found
