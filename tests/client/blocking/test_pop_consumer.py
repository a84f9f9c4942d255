"""Pop consumers with a running broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from twisted.internet.defer import Deferred

from tests.client.test_shells import ShellCase
from twistmq.client import (
    Client,
    Closed,
    PopConsumer,
    Producer,
    ReceiptExpired,
    ReceivedMessage,
    Retry,
)
from twistmq.protocol.topic_names import TRACE_TOPIC
from twistmq.protocol.trace_records import SubAfter, SubBefore, decode_records


class PopCase(ShellCase):
    """Messages of one topic; the broker revives unacknowledged ones immediately."""

    def send(self, producer: Producer, count: int, topic: str = "T") -> None:
        """Send numbers."""
        for number in range(count):
            producer.send(topic, b"%d" % number, sharding_key="one")


class BlockingTests(PopCase):
    """The blocking style."""

    def test_received_messages_are_acknowledged_extended_and_given_back(self) -> Deferred[Any]:
        """A message without a result at the close is delivered to the next member at once."""
        def run() -> None:
            with Producer(self.where) as producer:
                self.send(producer, 20)
                with PopConsumer(client=producer.client, group="g", topics="T", start="first",
                                 invisible_s=30) as consumer:
                    found = consumer.receive(20)
                    while len(found) < 20:
                        found += consumer.receive(20 - len(found))
                    consumer.acknowledge(found[:10])
                    consumer.acknowledge(found[10])
                    consumer.extend(found[11], 60)
                    consumer.acknowledge(found[11])
                    consumer.retry(found[12], 0)
                    consumer.bury(found[13])
                    with self.assertRaises(ReceiptExpired):
                        consumer.acknowledge(found[0])
                    self.assertEqual(consumer.receive(wait_s=0), [])
                left = {each.body for each in (found[12], *found[14:])}
                with PopConsumer(client=producer.client, group="g", topics="T") as consumer:
                    deadline = time.monotonic() + 30
                    again: list[ReceivedMessage[Any]] = []
                    while {each.body for each in again} != left:
                        self.assertLess(time.monotonic(), deadline)
                        messages = consumer.receive(wait_s=1)
                        consumer.acknowledge(messages)
                        again += messages
                self.assertEqual({each.attempt for each in again}, {2})
                self.assertEqual({each.topic for each in again}, {"T"})
                self.assertEqual(len(again), len(left))
                dead = producer.client.read(producer.client.read_queues("%DLQ%g")[0])
                self.assertEqual([each.body for each in dead], [found[13].body])

        return self.in_thread(run)

    def test_a_shared_client_that_closes_ends_a_receive(self) -> Deferred[Any]:
        """The pops end with their client, whose thread continues for other clients."""
        def run() -> None:
            with Producer(self.where) as producer:
                self.send(producer, 1)
                client = Client(self.where)
                consumer = PopConsumer(client=client, group="g", topics="T", start="first")
                self.assertEqual(len(consumer.receive()), 1)
                ends: list[BaseException] = []

                def receive() -> None:
                    try:
                        consumer.receive()
                    except Closed as error:
                        ends.append(error)

                thread = threading.Thread(target=receive, daemon=True)
                thread.start()
                while not consumer._member.delivery._waiting:
                    time.sleep(0.01)
                client.close()
                thread.join(10)
                self.assertEqual(len(ends), 1)
                self.send(producer, 1)

        return self.in_thread(run)

    def test_a_slow_handler_has_its_message_once_and_a_failed_one_comes_again(
        self,
    ) -> Deferred[Any]:
        """The message is hidden for longer than its time; two members share all queues."""
        def run() -> None:
            with Producer(self.where) as producer:
                self.send(producer, 40)
                seen: Counter[tuple[int, int]] = Counter()
                lock = threading.Lock()

                def handle(message: ReceivedMessage[Any]) -> None:
                    number = int(message.body)
                    if number == 3:
                        time.sleep(9)
                    if number == 5 and message.attempt == 1:
                        raise Retry(1)
                    with lock:
                        seen[number, message.attempt] += 1
                        if len(seen) == 40:
                            first.stop()

                # Half of the time is left for each renewal.
                with PopConsumer(client=producer.client, group="g", topics="T", start="first",
                                 invisible_s=4) as first:
                    timer = threading.Timer(50, first.stop)
                    timer.start()
                    first.run(handle, workers=4)
                    timer.cancel()
                wanted = Counter({(number, 1): 1 for number in range(40)})
                del wanted[5, 1]
                wanted[5, 2] = 1
                self.assertEqual(seen, wanted)

        return self.in_thread(run)

    def test_an_order_is_kept_over_a_failure_and_a_new_member(self) -> Deferred[Any]:
        """The iteration of the first member is left in the middle."""
        def run() -> None:
            with Producer(self.where) as producer:
                self.send(producer, 60)
                seen: list[int] = []
                with PopConsumer(client=producer.client, group="g", topics="T", start="first",
                                 order="queue") as consumer:
                    for message in consumer:
                        if int(message.body) == 25:
                            break
                        seen.append(int(message.body))
                failed: list[int] = []

                def handle(message: ReceivedMessage[Any]) -> None:
                    number = int(message.body)
                    if number == 40 and not failed:
                        failed.append(number)
                        raise ValueError("once")
                    seen.append(number)
                    if number == 59:
                        consumer.stop()

                with PopConsumer(client=producer.client, group="g", topics="T", order="queue",
                                 suspend_s=0.1) as consumer:
                    timer = threading.Timer(50, consumer.stop)
                    timer.start()
                    consumer.run(handle, workers=4)
                    timer.cancel()
                self.assertEqual(seen, list(range(60)))

        return self.in_thread(run)

    def test_a_namespace_and_traces_are_those_of_all_consumers(self) -> Deferred[Any]:
        """Topics and groups are named without the namespace; retries too."""
        def run() -> None:
            with Producer(self.where, namespace="ns") as producer:
                producer.send("T", b"1")
                attempts: list[tuple[str, int]] = []

                def handle(message: ReceivedMessage[Any]) -> None:
                    attempts.append((message.topic, message.attempt))
                    if message.attempt == 1:
                        raise Retry(1)
                    consumer.stop()

                with PopConsumer(client=producer.client, group="g", topics="T", start="first",
                                 trace=True) as consumer:
                    self.assertEqual([each.topic for each in consumer.assigned()], ["T"])
                    timer = threading.Timer(40, consumer.stop)
                    timer.start()
                    consumer.run(handle, workers=1)
                    timer.cancel()
                self.assertEqual(attempts, [("T", 1), ("T", 2)])
                with Client(self.where) as client:
                    topics = [topic for topic in client.topics() if topic.endswith("T")]
                    self.assertIn("%RETRY%ns%g_ns%T", topics)
                    traces = [record for queue in client.read_queues(TRACE_TOPIC)
                              for message in client.read(queue)
                              for record in decode_records(message.body).records]
                self.assertEqual(Counter(type(each) for each in traces),
                                 Counter({SubBefore: 2, SubAfter: 2}))
                self.assertEqual([each.success for each in traces
                                  if isinstance(each, SubAfter)], [False, True])

        return self.in_thread(run)
