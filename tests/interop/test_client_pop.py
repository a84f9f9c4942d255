"""This project's PopConsumer with Apache's broker, and beside Apache's members of a group."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.interop.clients import JavaTestCase
from tests.interop.java_process import JavaProcess
from tests.interop.servers import servers, wait_until
from twistmq.client import (
    Client,
    Message,
    PopConsumer,
    Producer,
    ReceiptExpired,
    ReceivedMessage,
    Retry,
    Unsupported,
    sql,
)
from twistmq.protocol.codes import RequestCode

#: The revive topic is looked at more often than each second.
SETTINGS = {"reviveInterval": "100", "enablePropertyFilter": "true"}


class ApacheTests(JavaTestCase):
    """Apache's broker 5.3.3, started once."""

    def setUp(self) -> None:
        """Start Apache's name server and broker."""
        super().setUp()
        peer = self.start_apache(settings=SETTINGS)
        self.where = f"127.0.0.1:{peer.namesrv_port}"

    def receive(
        self, consumer: PopConsumer[Any], count: int, seconds: float = 60, **options: Any
    ) -> list[ReceivedMessage[Any]]:
        """Receive a number of messages."""
        found: list[ReceivedMessage[Any]] = []
        deadline = time.monotonic() + seconds
        while len(found) < count:
            self.assertLess(time.monotonic(), deadline, msg=f"{len(found)} of {count} messages")
            found += consumer.receive(min(count - len(found), 32), wait_s=5, **options)
        return found

    def test_every_kind_of_reception_and_consumption(self) -> None:
        """Receipts, expiry, dead letters, filters, handlers, order, a close."""
        with Producer(self.where, group="p") as producer:
            self.receipts(producer)
            self.filters(producer)
            self.handlers(producer)
            self.order(producer)

    def receipts(self, producer: Producer) -> None:
        """An acknowledged message is not delivered again; others are, with one attempt more."""
        producer.send_many([Message("T", b"%d" % number) for number in range(30)])
        with PopConsumer(client=producer.client, group="g", topics="T", start="first",
                         invisible_s=8) as consumer:
            found = self.receive(consumer, 30)
            self.assertEqual({each.attempt for each in found}, {1})
            for each in found[:3]:
                consumer.extend(each, 60)
            consumer.acknowledge(found[3:12])
            consumer.acknowledge(found[12])
            consumer.retry(found[13], 0)
            consumer.retry(found[14], 3)
            consumer.bury(found[15])
            again = self.receive(consumer, 14 + 2, invisible_s=40)
            self.assertEqual({each.body for each in again},
                             {each.body for each in (*found[13:15], *found[16:])})
            self.assertEqual({each.attempt for each in again}, {2})
            self.assertEqual({each.topic for each in again}, {"T"})
            with self.assertRaises(ReceiptExpired):
                consumer.acknowledge(found[20])
            consumer.acknowledge(again[:14])
            consumer.acknowledge(found[:3])
            left = {each.body for each in again[14:]}
        with PopConsumer(client=producer.client, group="g", topics="T") as consumer:
            third = self.receive(consumer, 2)
            self.assertEqual({each.body for each in third}, left)
            self.assertEqual({each.attempt for each in third}, {3})
            consumer.acknowledge(third)
            self.assertEqual(consumer.receive(wait_s=12), [])
        [queue] = producer.client.read_queues("%DLQ%g", again=True)
        self.assertEqual([each.body for each in producer.client.read(queue)], [found[15].body])

    def filters(self, producer: Producer) -> None:
        """The broker filters by tags and SQL92."""
        for number in range(20):
            producer.send("F", b"%d" % number, tags="ab"[number % 2],
                          properties={"number": str(number)})
        for group, wanted, numbers in (("tags", "b || c", set(range(1, 20, 2))),
                                       ("sql", sql("number >= 15"), set(range(15, 20)))):
            with PopConsumer(client=producer.client, group=group, topics={"F": wanted},
                             start="first") as consumer:
                found = self.receive(consumer, len(numbers))
                self.assertEqual({int(each.body) for each in found}, numbers)
                consumer.acknowledge(found)
                self.assertEqual(consumer.receive(wait_s=1), [])

    def handlers(self, producer: Producer) -> None:
        """A slow handler gets its message once; a failed message is delivered again."""
        producer.send_many([Message("H", b"%d" % number) for number in range(60)])
        seen: Counter[tuple[int, int]] = Counter()
        lock = threading.Lock()

        def handle(message: ReceivedMessage[Any]) -> None:
            number = int(message.body)
            if number == 3:
                time.sleep(11)
            if number == 5 and message.attempt == 1:
                raise Retry(1)
            with lock:
                seen[number, message.attempt] += 1

        # Half of the time is left for each renewal.
        with PopConsumer(client=producer.client, group="handlers", topics="H", start="first",
                         invisible_s=5) as consumer:
            self.run_until(consumer, handle, lambda: len(seen) == 60)
            found = consumer.receive(wait_s=8)
        wanted = Counter({(number, 1 + (number == 5)): 1 for number in range(60)})
        self.assertEqual((seen, found), (wanted, []))

    def run_until(
        self, consumer: PopConsumer[Any], handle: Callable[[ReceivedMessage[Any]], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Handle messages until a condition holds."""
        running = threading.Thread(target=lambda: consumer.run(handle, workers=4))
        running.start()
        try:
            wait_until("all are handled", is_over, 90)
        finally:
            consumer.stop()
            running.join()

    def order(self, producer: Producer) -> None:
        """A failure, and a member that leaves in the middle, do not change the order."""
        for number in range(50):
            producer.send("O", b"%d" % number, sharding_key="one")
        seen: list[int] = []
        with PopConsumer(client=producer.client, group="ordered", topics="O", start="first",
                         order="queue") as consumer:
            for message in consumer:
                if int(message.body) == 20:
                    break
                seen.append(int(message.body))
        failed: list[int] = []

        def handle(message: ReceivedMessage[Any]) -> None:
            number = int(message.body)
            if number == 30 and not failed:
                failed.append(number)
                raise ValueError("once")
            seen.append(number)

        with PopConsumer(client=producer.client, group="ordered", topics="O", order="queue",
                         suspend_s=0.1) as consumer:
            self.run_until(consumer, handle, lambda: len(seen) == 50)
        self.assertEqual(seen, list(range(50)))


class OldTests(JavaTestCase):
    """Apache's broker 4.9.4."""

    version = "4.9.4"

    def test_a_broker_without_pop_is_refused(self) -> None:
        """The error names the needed release."""
        peer = self.start_apache()
        with Producer(f"127.0.0.1:{peer.namesrv_port}") as producer:
            producer.send("T", b"1")
            with self.assertRaises(Unsupported) as caught:
                PopConsumer(client=producer.client, group="g", topics="T")
            self.assertIn("RocketMQ 5.0", str(caught.exception))
            # The client is as it was.
            producer.send("T", b"2")


class MixedTests(JavaTestCase):
    """Two members of Apache's client and two of ours in one pop group."""

    def test_members_share_the_messages_of_apaches_broker(self) -> None:
        """Its retry topics have the newer kind of names."""
        peer = self.start_apache(settings={**SETTINGS, "enableRetryTopicV2": "true"})
        self.share(f"127.0.0.1:{peer.namesrv_port}")

    def test_members_share_the_messages_of_our_broker(self) -> None:
        """Its retry topics have the names of an older broker."""
        with servers(self.folder, "reviveInterval=100") as running:
            self.share(running.namesrv)

    def share(self, where: str) -> None:
        """The mode is changed while they run; a failed message may go to any member."""
        with Producer(where) as producer, Client(where) as first, Client(where) as second:
            client = producer.client
            producer.send("T", b"0")
            queue = client.read_queues("T", again=True)[0]
            self.broker = client.broker_addresses()[queue.broker_name]
            ours = [_Member(first), _Member(second)]
            wait_until("ours pop without a mode", lambda: any(each.seen for each in ours))
            self.set_mode(client, 8)
            theirs = [JavaProcess("5.3.3", "PopMember", where, "T", "g", "30000") for _ in "ab"]
            feed = _Feed(producer)
            try:
                for process in theirs:
                    self.addCleanup(process.close)
                    process.wait_for("started")
                self.all_get_some(ours, theirs)
                self.set_mode(client, 1)
                wait_until("ours pop some queues", lambda: all(
                    each.queues() and -1 not in each.queues() for each in ours))
                self.all_get_some(ours, theirs)
                self.set_mode(client, 8)
                wait_until("ours pop all queues", lambda: all(
                    each.queues() == {-1} for each in ours))
                self.all_get_some(ours, theirs)
                feed.stop()
                wait_until("all came", lambda: self.came(ours, theirs).keys() == set(
                    range(feed.count)), 90)
            finally:
                feed.stop()
                for member in ours:
                    member.close()
            for process in theirs:
                process.leave()
            self.judge(ours, theirs)

    def all_get_some(self, ours: list[_Member], theirs: list[JavaProcess]) -> None:
        """Wait until each member got more messages than it has."""
        def counts() -> list[int]:
            return [*(len(each.seen) for each in ours),
                    *(len(each.told("body")) for each in theirs)]

        before = counts()
        wait_until("all four get some", lambda: all(
            now > old for now, old in zip(counts(), before, strict=True)))

    def judge(self, ours: list[_Member], theirs: list[JavaProcess]) -> None:
        """Check that each message was processed once, and once more for each failure at ours.

        Apache's client does not acknowledge a message that it has processed when it lost the queue
        meanwhile: what one of its members told may have come to another one, too.
        """
        failed = Counter(number for member in ours for number in member.failed)
        self.assertGreater(len(failed), 0)
        again = {number: count for number, count in self.came(ours, theirs).items() if count != 1}
        told = self.came([], theirs)
        print(f"processed again: {again}")
        self.assertEqual({number: count for number, count in again.items()
                          if number not in told}, {})

    def came(self, ours: list[_Member], theirs: list[JavaProcess]) -> Counter[int]:
        """Return how often each message was processed."""
        found: Counter[int] = Counter()
        for member in ours:
            found.update(list(member.seen))
        for process in theirs:
            found.update(int(line.split(" ")[1]) for line in process.told("body"))
        return found

    def set_mode(self, client: Client, share: int) -> None:
        """Let the group pop; each member shares its queues with so many others."""
        client.ask(self.broker, RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps({
            "topic": "T", "consumerGroup": "g", "mode": "POP",
            "popShareQueueNum": share}).encode())


class _Feed:
    """Sends the numbers from 1 on, some hundreds a second, until it is stopped."""

    def __init__(self, producer: Producer) -> None:
        self.count = 1
        self._producer = producer
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        # The pace of the feed, no wait for anything.
        while not self._is_over.wait(0.1):
            self._producer.send_many([Message("T", b"%d" % (self.count + each))
                                      for each in range(20)])
            self.count += 20

    def stop(self) -> None:
        """Stop the sends."""
        self._is_over.set()
        self._thread.join()


class _Member:
    """A member of ours; one message in a hundred fails once."""

    def __init__(self, client: Client) -> None:
        self.seen: list[int] = []
        self.failed: list[int] = []
        self.consumer: PopConsumer[Any] = PopConsumer(client=client, group="g", topics="T",
                                                      start="first")
        self._thread = threading.Thread(target=lambda: self.consumer.run(self._handle, workers=4))
        self._thread.start()

    def _handle(self, message: ReceivedMessage[Any]) -> None:
        number = int(message.body)
        if number % 100 == 7 and message.attempt == 1:
            self.failed.append(number)
            raise Retry(1)
        self.seen.append(number)

    def queues(self) -> set[int]:
        """Return the ids of the queues that it pops."""
        return {queue.queue_id for queue in self.consumer.assigned()}

    def close(self) -> None:
        """Leave the group."""
        self.consumer.stop()
        self._thread.join()
        self.consumer.close()
