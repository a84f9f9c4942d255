"""Later messages of our client: delays, times, and retries up to the dead letters."""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import Any

from tests.interop.client_case import NAMES, Broker, ClientTestCase
from tests.interop.clients import java_program
from tests.interop.servers import wait_until
from tests.interop.test_client_sends import java
from twistmq.broker.testing import RawClient
from twistmq.client import Consumer, Dead, Producer, ReceivedMessage, Unsupported
from twistmq.client.base.errors import TopicMissing
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

#: The attempts that a message has by default.
ATTEMPTS = 16
#: How much later than Java's our messages may come, ms. All of one client may come at one tick of
#: the timer, just when they are due or a second later, and a busy machine may be late for it.
SPREAD_MS = 3000


class RetryTests(ClientTestCase):
    """Messages whose handler fails each time."""

    def test_a_message_that_always_fails_is_dead_in_the_end(self) -> None:
        """It has sixteen attempts, or one; then Java reads it among the dead letters."""
        def check(broker: Broker) -> None:
            attempts: list[int] = []

            def handle(message: ReceivedMessage[Any]) -> None:
                if message.body == b"dead":
                    raise Dead
                attempts.append(message.attempt)
                raise ValueError("each time")

            with Producer(broker.where, timeout_s=15) as producer:
                results = [producer.send("Failing", body, keys=["k"], properties={"p": "v"})
                           for body in (b"fails", b"dead")]
            with Consumer(broker.where, group="failing", topics="Failing",
                          start="first") as consumer:
                thread = threading.Thread(target=consumer.run, args=(handle,))
                thread.start()
                wait_until("the last attempt", lambda: len(attempts) >= ATTEMPTS + 1, 120)
                consumer.stop()
                thread.join()
            # The first attempt is not a retry, as with Apache's client.
            self.assertEqual(attempts, list(range(1, ATTEMPTS + 2)))
            self.assert_dead(broker, [result.id for result in results])

        self.on_each(check)

    def assert_dead(self, broker: Broker, ids: list[str]) -> None:
        """Java reads both from the topic of dead letters, which it may not read before."""
        topic = "%DLQ%failing"
        with RawClient(broker.address) as client:
            client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                topic=topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
                topic_filter_type="SINGLE_TAG"))
        read = java(broker, "read", "2", topic)[topic]
        self.assertEqual({each.body: each.id for each in read},
                         dict(zip((b"fails", b"dead"), ids, strict=True)))
        for each in read:
            self.assertEqual((each.properties["KEYS"], each.properties["p"]), ("k", "v"))
            self.assertEqual(each.properties["RETRY_TOPIC"], "Failing")


class DelayTests(ClientTestCase):
    """Messages with a delay or a time."""

    def test_timed_messages_come_when_javas_do(self) -> None:
        """They are compared with those of Apache's client; none is early, and recalled ones are not
        delivered.
        """
        def check(broker: Broker) -> None:
            topic = "Timed"
            due: dict[str, int] = {}
            came: dict[str, int] = {}
            with Producer(broker.where, timeout_s=15) as producer:
                producer.send(topic, b"first")
                with Consumer(broker.where, group="timed", topics=topic,
                              start="first") as consumer:
                    thread = threading.Thread(target=consumer.run, args=(
                        lambda message: came.setdefault(message.body.decode(), _now_ms()),))
                    thread.start()
                    wait_until("the consumer has its queues", lambda: came)
                    told = java_program("5.3.3", "TimedSend", broker.where, topic, "10")
                    due.update((body, int(ms)) for _, body, ms in map(
                        str.split, told.splitlines()))
                    producer.recall(producer.send(topic, b"recalled", delay_s=3))
                    due.update(self.send_timed(producer, topic))
                    wait_until("all came", lambda: set(due) <= set(came))
                    consumer.stop()
                    thread.join()
            self.assertEqual(set(came), {*due, "first"})
            late = {body: came[body] - ms for body, ms in due.items()}
            self.assertGreaterEqual(min(late.values()), 0, msg=str(late))
            ours, javas = (median(ms for body, ms in late.items() if body.startswith(name))
                           for name in ("ours", "java"))
            self.assertLess(abs(ours - javas), SPREAD_MS, msg=str(late))

        self.on_each(check, ("ours", "5.3.3"))

    def send_timed(self, producer: Producer, topic: str) -> dict[str, int]:
        """Send ten; :returns: when each is due, Unix ms."""
        due = {}
        for number in range(10):
            body = f"ours-{number}"
            due[body] = _now_ms() + 3000
            if number % 2:
                producer.send(topic, body.encode(), delay_s=3)
            else:
                producer.send(topic, body.encode(), deliver_at=due[body] / 1000)
        return due

    def test_an_old_broker_gets_no_timed_message(self) -> None:
        """The broker would deliver it at once, so each kind of send refuses it."""
        broker = self.brokers["4.9.4"]
        with Producer(broker.where, timeout_s=15) as producer:
            for _ in range(2):
                with self.assertRaisesRegex(Unsupported, "older than 5.0"):
                    producer.send("TooOld", b"x", delay_s=2)
            with self.assertRaisesRegex(Unsupported, "older than 5.0"):
                producer.send_soon("TooOld", b"x", deliver_at=_now_ms() / 1000 + 2).result()
            with self.assertRaisesRegex(Unsupported, "older than 5.0"):
                producer.send_oneway("TooOld", b"x", delay_s=2)
            self.assertTrue(producer.send("TooOld", b"x", delay_level=1).safe)
            queues: list[MessageQueue] = []

            def has_route() -> bool:
                # The broker makes the topic, and then tells the name server.
                try:
                    queues[:] = producer.client.read_queues("TooOld", again=True)
                except TopicMissing:
                    return False
                return True

            wait_until("the topic has a route", has_route)
            self.assertEqual(sum(map(producer.client.max_offset, queues)), 0)

    def test_a_delay_level_holds_a_message_back(self) -> None:
        """The delay is one second with the settings of these brokers."""
        def check(broker: Broker) -> None:
            with Producer(broker.where, timeout_s=15) as producer:
                began = time.monotonic()
                producer.send("Level", b"x", delay_level=2)
                with Consumer(broker.where, group="level", topics="Level",
                              start="first") as consumer:
                    self.assertEqual(next(iter(consumer)).body, b"x")
                self.assertGreaterEqual(time.monotonic() - began, 0.9)

        self.on_each(check, NAMES)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
