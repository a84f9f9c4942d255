"""The cluster in memory."""

from __future__ import annotations

import logging
import random

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.base.errors import OptionError, SendFailed
from twistmq.client.testing import MemoryCluster, MemoryMember


class ClusterTests(SynchronousTestCase):
    """Messages go through real brokers, and time is the test's."""

    def setUp(self) -> None:
        """Create a cluster with a topic, and ignore the client's log of faults."""
        self.cluster = MemoryCluster(seed=7, brokers=2)
        self.cluster.create_topic("orders", 2)
        logger = logging.getLogger("twistmq.client")
        self.patch(logger, "disabled", True)

    def read_all(self, member: MemoryMember) -> list[bytes]:
        """Return all messages for a member."""
        bodies = []
        while messages := member.take():
            bodies += [message.body for message in messages]
        return sorted(bodies)

    def test_what_is_sent_is_consumed_once(self) -> None:
        """A later member continues where the closed one ended."""
        producer = self.cluster.producer()
        for number in range(8):
            producer.send("orders", b"%d" % number)
        first = self.cluster.member("billing", "orders", start="first")
        self.assertEqual(self.read_all(first), [b"%d" % number for number in range(8)])
        first.close()
        producer.send("orders", b"8")
        second = self.cluster.member("billing", "orders", start="first")
        self.assertEqual(self.read_all(second), [b"8"])

    def test_an_error_that_is_raised_is_not_logged(self) -> None:
        """The caller has the error."""
        self.patch(logging.getLogger("twistmq.client"), "disabled", False)
        with self.assertNoLogs("twistmq.client", logging.ERROR):
            self.assertRaises(SendFailed, self.cluster.producer().send, "orders", b"x", delay_s=10)

    def test_what_a_cluster_cannot_be_is_refused(self) -> None:
        """The error has the permitted values; a setting of a plugin that is not
        loaded counts, too.
        """
        for wrong in ({"brokers": 0}, {"brokers": 27}, {"brokers": "2"},
                      {"settings": {"autoCreateTopicEnable": False}},
                      {"settings": {"nonsense": "x"}},
                      {"settings": {"timerWheelEnable": "true"}}):
            self.assertRaises(OptionError, MemoryCluster, **wrong)
        for call, argument in ((self.cluster.advance, -5), (self.cluster.advance, float("inf")),
                               (self.cluster.kill_broker, "vm"),
                               (self.cluster.start_broker, "vm"),
                               (self.cluster.start_broker, "broker-a")):
            self.assertRaises(OptionError, call, argument)

    def test_time_passes_only_when_it_is_told_to(self) -> None:
        """All parts use the clock of the cluster."""
        before = self.cluster.now_ms
        self.cluster.advance(600_000)
        self.assertEqual(self.cluster.now_ms, before + 600_000)

    def test_a_cut_connection_is_made_again(self) -> None:
        """A pull is lost with it, and no message."""
        producer = self.cluster.producer()
        member = self.cluster.member("billing", "orders", start="first")
        self.cluster.advance(1_000)
        member.client.cut()
        producer.send("orders", b"1")
        self.assertEqual(self.read_all(member), [b"1"])

    def test_a_broker_that_is_killed_comes_back_with_its_messages(self) -> None:
        """While it is down the other one stores the messages."""
        producer = self.cluster.producer()
        sent = [producer.send("orders", b"%d" % number) for number in range(4)]
        self.assertEqual({each.queue.broker_name for each in sent}, {"broker-a", "broker-b"})
        self.cluster.kill_broker("broker-a")
        sent = [producer.send("orders", b"%d" % number) for number in range(4, 8)]
        self.assertEqual({each.queue.broker_name for each in sent}, {"broker-b"})
        self.cluster.start_broker("broker-a")
        member = self.cluster.member("billing", "orders", start="first")
        self.assertEqual(self.read_all(member), [b"%d" % number for number in range(8)])

    def test_without_brokers_a_send_fails(self) -> None:
        """All attempts end within the producer's time-out."""
        producer = self.cluster.producer()
        producer.send("orders", b"1")
        self.cluster.kill_broker("broker-a")
        self.cluster.kill_broker("broker-b")
        self.assertRaises(SendFailed, producer.send, "orders", b"2")

    def test_a_killed_client_gives_nothing_back(self) -> None:
        """Another member gets the messages that it took and did not commit."""
        self.cluster.producer().send("orders", b"1")
        first = self.cluster.member("billing", "orders", start="first")
        self.assertEqual([each.body for each in first.take()], [b"1"])
        first.client.kill()
        second = self.cluster.member("billing", "orders", start="first")
        self.assertEqual(self.read_all(second), [b"1"])

    def test_replies_overtake_each_other(self) -> None:
        """With delays and reordering all messages arrive, later."""
        self.cluster.faults.delay_ms = 200
        self.cluster.faults.reorders = True
        producer = self.cluster.producer()
        for number in range(8):
            producer.send("orders", b"%d" % number)
        member = self.cluster.member("billing", "orders", start="first")
        self.assertEqual(self.read_all(member), [b"%d" % number for number in range(8)])

    def test_a_closed_client_keeps_nothing(self) -> None:
        """Its connections are closed on both sides."""
        member = self.cluster.member("billing", "orders", start="first")
        self.cluster.advance(1_000)
        member.close()
        member.client.close()
        counts = member.client.engine.debug_counts()
        self.assertEqual({name: counts[name] for name in ("tasks", "connections", "waiting")},
                         {"tasks": 0, "connections": 0, "waiting": 0})
        self.assertEqual(member.client.pipes, {})
        kernel = self.cluster.brokers["broker-a"].box.kernel
        self.assertEqual(len(kernel.channels), 0)

    def test_timers_of_servers_at_any_time(self) -> None:
        """A time that is rounded between seconds and milliseconds does not stop the clock."""
        chance = random.Random(1)
        fired: list[float] = []
        for _ in range(200):
            due = chance.random()
            self.cluster._reactor.callLater(due, fired.append, due)
        self.cluster.advance(1_000)
        self.assertEqual(fired, sorted(fired))
        self.assertEqual(len(fired), 200)

    def test_waiting_for_what_never_comes_ends(self) -> None:
        """It ends with an error after the given time."""
        self.assertRaises(TimeoutError, self.cluster.wait_for, lambda: False, 1_000)
        self.assertEqual(self.cluster.now_ms, 1_000)
