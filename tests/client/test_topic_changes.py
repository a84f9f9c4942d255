"""Topics that change while they are in use, in a cluster in memory; nothing is lost."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import Message, SendResult
from twistmq.client.testing import MemoryCluster
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.topic import DeleteTopicRequestHeader

#: Within so much time senders and members follow, ms.
FOLLOW_MS = 35_000


class Traffic:
    """A producer that sends without a pause, and two members that handle everything.

    :param options: of the members.
    """

    def __init__(self, brokers: int = 2, queues: int = 4, **options: Any) -> None:
        self.cluster = MemoryCluster(seed=3, brokers=brokers)
        self.producer = self.cluster.producer()
        self.members = []
        self.names = [*self.cluster.brokers]
        self.set_queues(self.names[0], queues)
        for _ in range(2):
            self.members.append(self.cluster.member(
                "g", "T", **{"start": "first", **options}))
        self.count = 0
        self.acknowledged: dict[bytes, SendResult] = {}
        self.handled: list[bytes] = []
        self.is_sending = True
        self._send()

    def set_queues(self, broker: str, write: int, read: int | None = None) -> None:
        """Set the numbers of queues of a topic on a broker."""
        box = self.cluster.brokers[broker]
        box.box.kernel.topic_config.update(TopicConfig("T", read or write, write, 6), {})
        box._register()

    def _send(self) -> None:
        """Send one message, and the next a little later."""
        if self.is_sending:
            self.send_some(1)
        self.cluster.call_later(200, self._send)

    def send_some(self, count: int) -> None:
        """Begin some sends."""
        for number in range(self.count, self.count + count):
            self._send_one(b"%d" % number)
        self.count += count

    def _send_one(self, body: bytes) -> None:
        def done(outcome: SendResult | Exception) -> None:
            if isinstance(outcome, SendResult):
                self.acknowledged[body] = outcome

        sender = self.producer.sender
        sender.begin(sender.prepare(Message("T", body)), done)

    def run(self, milliseconds: float) -> None:
        """Let time pass, in which messages are sent and handled."""
        end_ms = self.cluster.now_ms + milliseconds
        while self.cluster.now_ms < end_ms:
            self.cluster.advance(100)
            for member in self.members:
                while (batch := member.member.take(32)) is not None:
                    self.handled += [message.body for message in batch.messages]
                    member.member.succeed(batch.assigned, batch.messages)

    def sent_to(self, milliseconds: float) -> set[tuple[str, int]]:
        """The queues that messages went to in some time: broker and number."""
        before = set(self.acknowledged)
        self.run(milliseconds)
        return {(result.queue.broker_name, result.queue.queue_id)
                for body, result in self.acknowledged.items() if body not in before}

    def assigned(self) -> list[tuple[str, int]]:
        """Return the queues of the members."""
        return sorted((queue.broker_name, queue.queue_id) for member in self.members
                      for queue in member.member.assigned())


class TopicTests(SynchronousTestCase):
    """One change after the other."""

    def check(self, traffic: Traffic) -> None:
        """Check that each stored message was handled once."""
        traffic.is_sending = False
        traffic.run(20_000)
        self.assertGreater(len(traffic.acknowledged), 100)
        self.assertEqual(sorted(traffic.handled, key=int),
                         sorted(traffic.acknowledged, key=int))

    def queues(self, broker: str, count: int) -> list[tuple[str, int]]:
        """Set the number of queues of a broker."""
        return [(broker, number) for number in range(count)]

    def test_queues_grow_and_shrink(self) -> None:
        """From 16 to 4 an administrator removes the write permission first."""
        traffic = Traffic()
        a = traffic.names[0]
        traffic.run(FOLLOW_MS)
        self.assertEqual(traffic.assigned(), self.queues(a, 4))
        traffic.set_queues(a, 16)
        traffic.run(FOLLOW_MS)
        self.assertEqual(traffic.assigned(), self.queues(a, 16))
        self.assertEqual(traffic.sent_to(4000), {*self.queues(a, 16)})
        traffic.set_queues(a, 4, read=16)
        traffic.run(FOLLOW_MS)
        self.assertEqual(traffic.sent_to(4000), {*self.queues(a, 4)})
        self.assertEqual(traffic.assigned(), self.queues(a, 16))
        traffic.set_queues(a, 4)
        traffic.run(FOLLOW_MS)
        self.assertEqual(traffic.assigned(), self.queues(a, 4))
        self.check(traffic)

    def test_a_broker_is_added(self) -> None:
        """Its queues are used like the others."""
        traffic = Traffic()
        a, b = traffic.names
        traffic.run(FOLLOW_MS)
        self.assertEqual(traffic.sent_to(4000), {*self.queues(a, 4)})
        traffic.set_queues(b, 4)
        traffic.run(FOLLOW_MS)
        both = [*self.queues(a, 4), *self.queues(b, 4)]
        self.assertEqual(traffic.assigned(), both)
        self.assertEqual(traffic.sent_to(4000), {*both})
        self.check(traffic)

    def test_a_topic_is_deleted_and_made_again(self) -> None:
        """It is missing for half a minute, and then has more messages than before.

        ``test_new_queues`` has topics that are made again before the members can look.
        """
        for start, order in (("first", None), ("last", None), ("first", "queue")):
            traffic = Traffic(brokers=1, order=order, start=start)
            [a] = traffic.names
            traffic.run(FOLLOW_MS)
            traffic.is_sending = False
            traffic.run(7000)
            self.assertEqual(len(traffic.handled), len(traffic.acknowledged))
            broker = traffic.cluster.brokers[a]
            client = traffic.producer.client
            client.run(client.core.ask(
                broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T")))
            traffic.run(FOLLOW_MS)
            self.assertRaises(BrokerError, client.run, client.core.ask(
                broker.address, RequestCode.GET_TOPIC_CONFIG, DeleteTopicRequestHeader("T")))
            traffic.set_queues(a, 4)
            traffic.send_some(500)
            traffic.run(FOLLOW_MS)
            self.check(traffic)
