"""Transactions with Apache's client, and over stores that both brokers open."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.interop import clients
from tests.interop.clients import JavaTestCase
from tests.interop.exchange import Exchange
from tests.interop.kept import at_once, kept
from tests.interop.servers import free_port, servers, wait_until
from tests.transaction.producer import Producer
from twistmq.broker.testing import RawClient

#: What the Java round counts on.
ROUND_SETTINGS = {
    "transactionTimeOut": "6000", "transactionCheckInterval": "2000", "transactionCheckMax": "3",
    "transactionOpBatchInterval": "100",
}
#: Checks follow each other closely, ends are written well before the next one.
SETTINGS = {
    "transactionTimeOut": "5000", "transactionCheckInterval": "700", "transactionCheckMax": "10000",
    "transactionOpBatchInterval": "100",
}
COUNT = 90


def rounds(folder: Path, stack: ExitStack) -> dict[str, Future[str]]:
    """Our broker, and the round of each client's version with it."""
    pairs = [f"{name}={value}" for name, value in ROUND_SETTINGS.items()]
    running = stack.enter_context(servers(folder, *pairs))
    return at_once(stack, {version: partial(
        clients.java_round, version, "transaction", running.namesrv, folder / "unused")
        for version in clients.JAVA_VERSIONS})


class RoundTests(JavaTestCase):
    """Commit, rollback, questions, another producer of the group, giving up: one Java program."""

    def ours(self, version: str) -> None:
        reason = clients.java_missing(version)
        if reason:
            raise SkipTest(reason)
        self.assertRegex(kept(self, rounds)[version].result(), r"ok \d{3,} checks")

    def test_ours_client_5(self) -> None:
        """Client 5.3.3 is used with our broker."""
        self.ours("5.3.3")

    def test_ours_client_4(self) -> None:
        """Client 4.9.4 is used with our broker."""
        self.ours("4.9.4")

    def long_apaches(self) -> None:
        """The program passes the same checks with Apache's broker."""
        peer = self.start_apache(settings=dict(ROUND_SETTINGS))
        output = clients.java_round(self.version, "transaction", peer.namesrv_address,
                                    self.folder / "unused")
        self.assertRegex(output, r"ok \d{3,} checks")


class HandOverTests(JavaTestCase):
    """One broker leaves half messages open, and the other one finishes them."""

    def setUp(self) -> None:
        super().setUp()
        self.exchange = Exchange(self.folder, free_port(), self.version, SETTINGS)
        #: The bodies whose end the first broker wrote.
        self.written: set[bytes] = set()
        #: How often the second was told the end of each.
        self.answers: Counter[bytes] = Counter()

    def leave_open(self, client: RawClient) -> None:
        """End one of each three messages; each of the others is put back at least once."""
        producer = Producer(client=client)
        for number in range(COUNT):
            half = producer.half(number)
            if number % 3 == 0:
                producer.end_half(number, half)
        expected = {b"%d" % number for number in range(0, COUNT, 3)}
        wait_until("the ends are written", lambda: expected <= producer.ended())
        asked: set[bytes] = set()
        while len(asked) < COUNT - len(expected):
            asked.add(producer.next_question()[0])
        self.written = producer.ended()
        self.assertEqual(self.written, expected)
        self.assertEqual(asked.intersection(expected), set())

    def finish(self, client: RawClient) -> Counter[bytes]:
        """Answer questions until all are ended; :returns: the delivered messages."""
        producer = Producer(client=client)
        wait_until("all half messages are ended", producer.is_all_checked)
        self.answers = producer.answers
        return producer.delivered()

    def assert_finished(self, delivered: Counter[bytes]) -> None:
        """Check that all committed messages were delivered, none more often than asked about."""
        wanted = {b"%d" % number for number in range(0, COUNT, 2)}
        self.assertEqual(set(delivered), wanted)
        self.assertEqual({delivered[body] for body in wanted & self.written}, {1})
        for body in wanted - self.written:
            self.assertLessEqual(delivered[body], self.answers[body], msg=repr(body))

    def long_ours_then_apaches(self) -> None:
        """The broker is stopped."""
        self.exchange.ours(self.leave_open)
        self.assert_finished(self.exchange.apache(self.finish))

    def test_ours_killed_then_apaches(self) -> None:
        """The broker is killed."""
        self.exchange.ours(self.leave_open, kill=True)
        self.assert_finished(self.exchange.apache(self.finish))

    def long_apaches_then_ours(self) -> None:
        """The broker is stopped."""
        self.exchange.apache(self.leave_open)
        self.assert_finished(self.exchange.ours(self.finish))

    def test_apaches_killed_then_ours(self) -> None:
        """The broker is killed."""
        self.exchange.apache(self.leave_open, kill=True)
        self.assert_finished(self.exchange.ours(self.finish))
