"""Transactions, requests and replies of our client, beside Java members of the same group."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.interop.client_case import Broker, ClientTestCase
from tests.interop.clients import HERE
from tests.interop.java_process import JavaProcess
from tests.interop.servers import wait_until
from twistmq.client import (
    COMMIT,
    ROLLBACK,
    Consumer,
    Producer,
    ReceivedMessage,
    RequestTimeout,
)


def is_even(body: bytes) -> bool:
    """Whether the transaction of a message is to be committed, as in TransactionMember.java."""
    return int(body.rpartition(b"-")[2]) % 2 == 0


@contextmanager
def consuming(
    broker: Broker, topic: str, handle: Callable[[Consumer[Any], ReceivedMessage[Any]], object]
) -> Iterator[None]:
    """Let a consumer of ours handle the messages of a topic during the block."""
    with Consumer(broker.where, group=f"of-{topic}", topics=topic, start="first") as consumer:
        thread = threading.Thread(target=consumer.run, args=(
            lambda message: handle(consumer, message),))
        thread.start()
        try:
            yield
        finally:
            consumer.stop()
            thread.join()


class Checks:
    """Decides transactions, and records those that it was asked about."""

    def __init__(self) -> None:
        self.asked: set[bytes] = set()

    def __call__(self, message: ReceivedMessage[Any]) -> Any:
        self.asked.add(message.body)
        return COMMIT if is_even(message.body) else ROLLBACK


class TransactionTests(ClientTestCase):
    """Transactions that are ended, and those that a broker asks about."""

    topic, group = "Paid", "paying"

    def killed_half(self, broker: Broker, body: str) -> None:
        """Send a half message by a producer that is killed before its end."""
        status = subprocess.run([sys.executable, "-P", str(HERE / "client_half.py"), broker.where,
                                 self.topic, self.group, body], check=False).returncode
        self.assertEqual(status, -signal.SIGKILL)

    def ends(self, producer: Producer, checks: Checks) -> None:
        """Run a commit, a rollback, and blocks that fail, about which the broker asks."""
        with producer.transaction(self.topic, b"end-0"):
            pass
        with producer.transaction(self.topic, b"end-1") as transaction:
            transaction.rollback()
        for body in (b"open-2", b"open-3"):
            with self.assertRaises(ZeroDivisionError), producer.transaction(self.topic, body):
                raise ZeroDivisionError
        wait_until("the broker asks", lambda: {b"open-2", b"open-3"} <= checks.asked)

    def java(self, broker: Broker, name: str, count: int) -> JavaProcess:
        """Start a member of Apache's that sends so many half messages, and never ends them."""
        member = JavaProcess(broker.client_version, "TransactionMember", broker.where, self.topic,
                             self.group, name, str(count))
        self.addCleanup(member.close)
        member.wait_for("sent")
        return member

    def check(self, broker: Broker) -> None:
        """Check that exactly the committed messages are delivered."""
        checks = Checks()
        delivered: list[bytes] = []
        with consuming(broker, self.topic, lambda _, message: delivered.append(message.body)):
            with Producer(broker.where, group=self.group, on_check=checks,
                          timeout_s=15) as producer:
                self.ends(producer, checks)
                self.killed_half(broker, "killed-4")
                self.killed_half(broker, "killed-5")
                wait_until("another producer of ours is asked", lambda: {
                    b"killed-4", b"killed-5"} <= checks.asked)
            # A producer that sent nothing is not known to the broker.
            java = self.java(broker, "own", 2)
            for body in ("killed-6", "killed-7"):
                self.killed_half(broker, body)
                wait_until("Java's producer is asked", lambda body=body: f"asked {body}" in
                           java.told("asked"))
            java.leave()
            self.java(broker, "java", 4).kill()
            with Producer(broker.where, group=self.group, on_check=checks,
                          timeout_s=15) as producer:
                producer.send("Other", b"to be known")
                wait_until("ours is asked about Java's", lambda: {
                    b"java-%d" % number for number in range(4)} <= checks.asked)
                wanted = [b"end-0", b"java-0", b"java-2", b"killed-4", b"killed-6", b"open-2",
                          b"own-0"]
                wait_until("all are delivered", lambda: set(wanted) <= set(delivered))
        # A broker may ask again before it has written an answer, so the others may come again.
        self.assertEqual(set(delivered), set(wanted))
        self.assertEqual(delivered.count(b"end-0"), 1)

    def test_a_transaction_ends_once_whoever_is_asked(self) -> None:
        """Its producer ends it, or after its death another one, of ours or of Apache's."""
        self.on_each(self.check)


class ReplyTests(ClientTestCase):
    """Requests and replies between our client and Apache's."""

    def test_requests_are_answered_both_ways(self) -> None:
        """Fifty at a time: ours by Java, Java's by ours, and ours by ours."""
        def check(broker: Broker) -> None:
            seen: set[bytes] = set()

            def handle(consumer: Consumer[Any], message: ReceivedMessage[Any]) -> None:
                if message.body != b"first":
                    seen.add(message.body)
                    consumer.reply(message, b"ours: " + message.body)

            with Producer(broker.where, timeout_s=15) as producer:
                for topic in ("AskedOfJava", "AskedOfUs"):
                    producer.send(topic, b"first")
                with consuming(broker, "AskedOfUs", handle):
                    java = JavaProcess(broker.client_version, "ReplyMember", broker.where,
                                       "AskedOfJava", "AskedOfUs", "50")
                    self.addCleanup(java.close)
                    java.wait_for("done")
                    self.assertEqual(sorted(java.told("reply")), sorted(
                        f"reply q-{number} ours: q-{number}" for number in range(50)))
                    self.ask(producer, "AskedOfJava", b"java: ")
                    self.ask(producer, "AskedOfUs", b"ours: ")
                    java.leave()

        self.on_each(check)

    def ask(self, producer: Producer, topic: str, prefix: bytes) -> None:
        """Ask fifty questions at a time; each is answered."""
        questions = [b"question-%d" % number for number in range(50)]
        with ThreadPoolExecutor(50) as threads:
            replies = list(threads.map(
                lambda question: producer.request(topic, question, timeout_s=30).body, questions))
        self.assertEqual(replies, [prefix + question for question in questions])

    def test_a_request_without_a_reply_ends_in_time(self) -> None:
        """It ends after its time-out, and a late reply is dropped."""
        def check(broker: Broker) -> None:
            late: list[tuple[Consumer[Any], ReceivedMessage[Any]]] = []
            with Producer(broker.where, timeout_s=15) as producer, consuming(
                    broker, "Silent", lambda *both: late.append(both)):
                with self.assertRaises(RequestTimeout):
                    producer.request("Silent", b"anybody?", timeout_s=2)
                wait_until("the consumer has it", lambda: late)
                consumer, message = late[0]
                self.assertTrue(consumer.reply(message, b"late").safe)
                # The client that the reply reached is as before.
                self.assertTrue(producer.send("Silent", b"more").safe)

        self.on_each(check)
