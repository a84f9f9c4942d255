"""A broker that is down for a minute, in a cluster in memory."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import Message, SendResult
from twistmq.client.testing import MemoryCluster

#: How long it is away, and within what time consumption goes on, ms.
AWAY_MS, SOON_MS = 60_000, 5_000


class AbsenceTests(SynchronousTestCase):
    """Its process is killed, and its connections are refused until it is started again."""

    def test_consumption_goes_on_soon_after_a_minute(self) -> None:
        """The minute may begin at any time; each stored message is handled."""
        for brokers in (1, 2):
            for begin_ms in range(0, 30_000, 12_000):
                self.check(brokers, begin_ms)

    def check(self, brokers: int, begin_ms: float) -> None:
        """Check one absence."""
        cluster = MemoryCluster(seed=begin_ms, brokers=brokers)
        cluster.create_topic("T", 4)
        producer = cluster.producer()
        member = cluster.member("g", "T", start="first").member
        handled: list[bytes] = []
        stored: set[bytes] = set()

        def run(milliseconds: float) -> None:
            end_ms = cluster.now_ms + milliseconds
            while cluster.now_ms < end_ms:
                cluster.advance(50)
                while (batch := member.take(32)) is not None:
                    handled.extend(message.body for message in batch.messages)
                    member.succeed(batch.assigned, batch.messages)

        def send(body: bytes) -> None:
            sender = producer.sender
            sender.begin(sender.prepare(Message("T", body)), lambda outcome: (
                stored.add(body) if isinstance(outcome, SendResult) else None))

        for number in range(20):
            send(b"before %d" % number)
        run(5_000 + begin_ms)
        self.assertEqual(set(handled), stored)
        cluster.kill_broker("broker-a")
        run(AWAY_MS)
        cluster.start_broker("broker-a")
        # Its listener is there; the messages go to its queues as soon as it answers.
        before = set(stored)
        while not any(body.startswith(b"after") for body in stored - before):
            send(b"after %d" % cluster.now_ms)
            run(50)
        run(SOON_MS)
        self.assertEqual(set(handled), stored, msg=f"{brokers} brokers, at {begin_ms} ms")
        for number in range(20):
            send(b"then %d" % number)
        run(SOON_MS)
        self.assertEqual(set(handled), stored)
        self.assertGreaterEqual(len(stored), 41)
