"""Pops from the cluster in memory."""

from __future__ import annotations

import logging
import random

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.base.errors import Unsupported
from twistmq.client.testing import MemoryCluster, MemoryPopMember
from twistmq.protocol.errors import BrokerError

#: A message is processed within so long after the last fault, ms of the cluster.
END_MS = 180_000


class PopClusterTests(SynchronousTestCase):
    """Real brokers with the pop plugin; time is the test's."""

    def setUp(self) -> None:
        """The log lines of the client are not looked at."""
        self.patch(logging.getLogger("twistmq.client"), "disabled", True)

    def test_what_is_acknowledged_comes_once_and_the_rest_again(self) -> None:
        """They are delivered after their time, or at once after a close."""
        cluster = MemoryCluster(seed=3, brokers=2, pop=True)
        producer = cluster.producer()
        for number in range(20):
            producer.send("orders", b"%d" % number)
        member = cluster.pop_member("billing", "orders", start="first", invisible_s=5)
        found = []
        while len(found) < 20:
            found += member.receive()
        member.acknowledge(found[:12])
        again = []
        while len(again) < 8:
            again += member.receive(wait_ms=20_000)
        self.assertEqual({each.body for each in again}, {each.body for each in found[12:]})
        self.assertEqual({each.attempt for each in again}, {2})
        member.acknowledge(again[:5])
        member.close()
        begin_ms = cluster.now_ms
        second = cluster.pop_member("billing", "orders", invisible_s=60)
        last = []
        while len(last) < 3:
            last += second.receive()
        self.assertEqual({each.body for each in last}, {each.body for each in again[5:]})
        self.assertLess(cluster.now_ms - begin_ms, 5000)

    def test_brokers_without_pop_refuse_a_member(self) -> None:
        """The test creates such brokers; by default they support pops."""
        cluster = MemoryCluster()
        cluster.create_topic("orders")
        with self.assertRaises(Unsupported):
            cluster.pop_member("billing", "orders")

    def test_faults_lose_no_message(self) -> None:
        """A seed chooses the faults: cut connections, late replies, a killed broker or member."""
        for seed in range(4):
            self.faults(seed)

    def faults(self, seed: int) -> None:
        """Send and pop among faults until every message is processed."""
        chance = random.Random(seed)
        cluster = MemoryCluster(seed, brokers=2, pop=True)
        cluster.create_topic("orders", 2)
        cluster.faults.delay_ms, cluster.faults.reorders = 40.0, True
        producer = cluster.producer()
        members = [self.join(cluster) for _ in range(3)]
        processed: set[bytes] = set()
        for number in range(40):
            producer.send("orders", b"%d" % number)
            self.work(chance, chance.choice(members), processed)
            self.fault(chance, cluster, members)
        cluster.faults.delay_ms, cluster.faults.reorders = 0.0, False
        end_ms = cluster.now_ms + END_MS
        wanted = {b"%d" % number for number in range(40)}
        while processed != wanted:
            self.assertLess(cluster.now_ms, end_ms,
                            msg=f"seed {seed}, missing: {wanted - processed}")
            self.work(chance, chance.choice(members), processed)
        for member in members:
            member.close()
        # Pops that are under way end in their own time.
        cluster.advance(31_000)
        left = [task.name for member in members for task in member.client.engine.tasks.tasks
                if "pop" in task.name]
        self.assertEqual(left, [], msg=f"seed {seed}")

    def join(self, cluster: MemoryCluster) -> MemoryPopMember:
        """Add a new member."""
        return cluster.pop_member("billing", "orders", start="first", invisible_s=4)

    def work(
        self, chance: random.Random, member: MemoryPopMember, processed: set[bytes]
    ) -> None:
        """Receive some messages; not each is acknowledged in time, or at all."""
        for message in member.receive(chance.randint(1, 5), chance.choice((0, 300, 1500))):
            try:
                if chance.random() < 0.2:
                    member.client.run(member.receiver.retry(message, 0))
                elif chance.random() < 0.9:
                    member.acknowledge([message])
                    processed.add(message.body)
            except BrokerError:
                # It comes again.
                continue

    def fault(
        self, chance: random.Random, cluster: MemoryCluster, members: list[MemoryPopMember]
    ) -> None:
        """Cause a fault by chance."""
        what = chance.random()
        if what < 0.1:
            chance.choice(members).client.cut()
        elif what < 0.15:
            members.pop(chance.randrange(len(members))).client.kill()
            members.append(self.join(cluster))
        elif what < 0.18:
            cluster.kill_broker("broker-b")
            cluster.advance(chance.randint(100, 3000))
            cluster.start_broker("broker-b")
            cluster.advance(1000)
