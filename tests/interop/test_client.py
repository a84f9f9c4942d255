"""This project's Python client with Apache's brokers of three releases."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from tests.interop.clients import JavaTestCase
from tests.interop.peer import Peer
from twistmq.client import Client, Consumer, Message, Producer, ReceivedMessage, Retry, sql
from twistmq.protocol.properties import UNIQ_KEY


class _ClientTests(JavaTestCase):
    """The client and one Apache pair, started once for a release."""

    version = ""
    peer: Peer

    def setUp(self) -> None:
        """Start Apache's name server and broker."""
        super().setUp()
        self.peer = self.start_apache(settings={"enablePropertyFilter": "true"})
        self.where = f"127.0.0.1:{self.peer.namesrv_port}"

    def consume(
        self, client: Client, group: str, topics: Any, count: int, **options: Any
    ) -> list[ReceivedMessage[Any]]:
        """Consume so many messages as a group, in a loop."""
        found: list[ReceivedMessage[Any]] = []
        consumer: Consumer[Any] = Consumer(client=client, group=group, topics=topics, start="first",
                                           **options)
        timer = threading.Timer(60, consumer.stop)
        timer.start()
        with consumer:
            for message in consumer:
                found.append(message)
                if len(found) == count:
                    break
        timer.cancel()
        self.assertEqual(len(found), count)
        return found

    def test_every_kind_of_send_and_consumption(self) -> None:
        """Sends, batches, keys, tags, SQL92, order, retries, broadcast, a restart of the member."""
        with Producer(self.where, group="p") as producer:
            client = producer.client
            self.sends(producer)
            found = self.consume(client, "g", "T", 64)
            self.assertEqual(sorted(int(each.body) for each in found), list(range(64)))
            self.assertTrue(all(UNIQ_KEY in each.properties for each in found))
            self.filters(client)
            self.order(producer)
            self.retries(producer)
            self.resumes(producer)
            self.broadcast(client)

    def sends(self, producer: Producer) -> None:
        """Each kind of send is stored."""
        for number in range(20):
            result = producer.send("T", b"%d" % number, tags="ab"[number % 2], keys=[f"k{number}"],
                                   properties={"number": str(number)})
            self.assertTrue(result.safe)
        waiting = [producer.send_soon("T", b"%d" % number) for number in range(20, 40)]
        producer.flush()
        self.assertTrue(all(each.result().safe for each in waiting))
        producer.send_batch([Message(topic="T", body=b"%d" % each) for each in range(40, 60)])
        for number in range(60, 64):
            producer.send_oneway("T", b"%d" % number)
        queues = Counter(producer.send("S", b"x", sharding_key="one").queue for _ in range(8))
        self.assertEqual(len(queues), 1)

    def filters(self, client: Client) -> None:
        """The broker filters by tags and SQL92."""
        tagged = self.consume(client, "tags", {"T": "b || c"}, 10)
        self.assertEqual({each.tags for each in tagged}, {"b"})
        chosen = self.consume(client, "sql", {"T": sql("number >= 15")}, 5)
        self.assertEqual(sorted(int(each.body) for each in chosen), [15, 16, 17, 18, 19])

    def order(self, producer: Producer) -> None:
        """Messages of one key are handled in their order, a failure notwithstanding."""
        for number in range(50):
            producer.send("O", b"%d" % number, sharding_key="one")
        seen: list[int] = []
        failed: list[int] = []

        def handle(message: ReceivedMessage[Any]) -> None:
            number = int(message.body)
            if number == 20 and not failed:
                failed.append(number)
                raise ValueError("once")
            seen.append(number)
            if number == 49:
                consumer.stop()

        with Consumer(client=producer.client, group="ordered", topics="O", start="first",
                      order="queue",
                      suspend_s=0.1) as consumer:
            consumer.run(handle, workers=4)
        self.assertEqual(seen, list(range(50)))

    def retries(self, producer: Producer) -> None:
        """A failed message is delivered again with the next attempt."""
        producer.send("R", b"again")
        attempts: list[int] = []

        def handle(message: ReceivedMessage[Any]) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                raise Retry(1)
            self.assertEqual(message.topic, "R")
            consumer.stop()

        with Consumer(client=producer.client, group="retrying", topics="R",
                      start="first") as consumer:
            timer = threading.Timer(90, consumer.stop)
            timer.start()
            consumer.run(handle, workers=2)
            timer.cancel()
        self.assertEqual(attempts, [1, 2])

    def resumes(self, producer: Producer) -> None:
        """A member that left and returns repeats no finished message."""
        producer.send_many([Message(topic="A", body=b"%d" % each) for each in range(100)])
        first = self.handled(producer.client, 40)
        rest = self.handled(producer.client, 100 - len(first))
        self.assertEqual(sorted(first + rest), list(range(100)))

    def handled(self, client: Client, most: int) -> list[int]:
        """Handle a number of messages of the topic A, then leave."""
        seen: list[int] = []
        lock = threading.Lock()

        def handle(message: ReceivedMessage[Any]) -> None:
            with lock:
                seen.append(int(message.body))
                if len(seen) >= most:
                    consumer.stop()

        with Consumer(client=client, group="resuming", topics="A", start="first") as consumer:
            timer = threading.Timer(60, consumer.stop)
            timer.start()
            consumer.run(handle, workers=4)
            timer.cancel()
        return seen

    def broadcast(self, client: Client) -> None:
        """Each member gets every message, and keeps its offsets in its file."""
        folder = self.folder / "offsets"
        for group in ("b1", "b2"):
            found = self.consume(client, group, "T", 64, mode="broadcast",
                                 offset_folder=folder)
            self.assertEqual(sorted(int(each.body) for each in found), list(range(64)))
        self.assertEqual(len(list(folder.rglob("offsets.json"))), 2)

    def test_two_members_share_the_queues_and_follow_each_other(self) -> None:
        """Members of one group divide the queues, and follow each other."""
        with Producer(self.where) as producer:
            producer.send("M", b"0")
            producer.send_many([Message(topic="M", body=b"%d" % each) for each in range(40)])
            one: Consumer[Any] = Consumer(self.where, group="m", topics="M", start="first")
            self.addCleanup(one.close)
            self.wait_for(lambda: len(one.assigned()) >= 4)
            everything = set(one.assigned())
            two: Consumer[Any] = Consumer(self.where, group="m", topics="M", start="first")
            self.wait_for(lambda: set(one.assigned()) | set(two.assigned()) == everything
                          and not set(one.assigned()) & set(two.assigned())
                          and bool(two.assigned()))
            two.close()
            self.wait_for(lambda: set(one.assigned()) == everything)

    def wait_for(self, condition: Any, seconds: float = 60) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "it takes too long")
            time.sleep(0.05)


class Apache5Tests(_ClientTests):
    """Release 5.3.3."""

    version = "5.3.3"


class Apache55Tests(_ClientTests):
    """Release 5.5.0."""

    version = "5.5.0"


class Apache4Tests(_ClientTests):
    """Release 4.9.4."""

    version = "4.9.4"


del _ClientTests
