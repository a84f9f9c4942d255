"""Two producers and three consumers of one client: connections, heartbeats and threads."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import wait_until
from twistmq.broker.testing import running_broker
from twistmq.client import Client, Consumer, Producer
from twistmq.client.testing import MemoryCluster
from twistmq.protocol.bodies import HeartbeatData
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import decode_command
from twistmq.protocol.frame import FrameDecoder

GROUPS = ("g1", "g2", "g3")


class HeartbeatTests(SynchronousTestCase):
    """A cluster of two brokers in memory."""

    def setUp(self) -> None:
        """Make the five, and note the heartbeats of their client."""
        self.cluster = MemoryCluster(brokers=2)
        self.cluster.create_topic("T", 4)
        self.client = self.cluster.client()
        self.beats: list[tuple[str, HeartbeatData]] = []
        self.client.on_write.append(self.note)
        self.producers = [self.cluster.producer(self.client, group=f"p{each}") for each in (1, 2)]
        self.members = [self.cluster.member(group, "T", self.client, start="first")
                        for group in GROUPS]

    def note(self, address: str, data: bytes) -> None:
        """Record the heartbeats in written bytes; a write has whole frames."""
        for frame in FrameDecoder().feed(data):
            command = decode_command(frame)
            if command.code == RequestCode.HEART_BEAT and not command.is_response:
                self.beats.append((address, HeartbeatData.decode(command.body)))

    def beats_of(self, minutes: int) -> list[tuple[str, HeartbeatData]]:
        """Return the heartbeats of some minutes."""
        self.beats.clear()
        self.cluster.advance(60_000 * minutes)
        return list(self.beats)

    def read(self, members: list[Any], body: bytes) -> None:
        """Check that each member gets a message of both producers."""
        for producer in self.producers:
            producer.send("T", body)
        for member in members:
            found = []
            while len(found) < 2:
                found += [message.body for message in member.take()]
            self.assertEqual(found, [body] * 2)

    def test_one_connection_an_address_and_one_heartbeat_a_broker(self) -> None:
        """A heartbeat every half minute has all five."""
        self.read(self.members, b"1")
        self.cluster.advance(5_000)
        addresses = sorted(broker.address for broker in self.cluster.brokers.values())
        self.assertEqual(sorted(pipe.address for pipe in self.client.pipes.values()),
                         [*addresses, self.cluster.name_server.address])
        found = self.beats_of(10)
        self.assertEqual(Counter(address for address, _ in found), dict.fromkeys(addresses, 20))
        for _, beat in found:
            self.assertEqual(sorted(each.group_name for each in beat.consumer_data_set),
                             [*GROUPS])
            self.assertEqual(sorted(each.group_name for each in beat.producer_data_set),
                             ["p1", "p2"])
        self.assertEqual(len(self.client.pipes), 3)

    def test_a_closed_one_leaves_the_others_as_they_are(self) -> None:
        """Its group is no longer in heartbeats; the connections and the others remain."""
        self.read(self.members, b"1")
        pipes = dict(self.client.pipes)
        self.members[1].close()
        self.client.run(self.producers[1].sender.leave())
        self.producers.append(self.producers[0])
        del self.producers[1]
        self.read([self.members[0], self.members[2]], b"2")
        self.assertEqual(self.client.pipes, pipes)
        for _, beat in self.beats_of(2):
            self.assertEqual(sorted(each.group_name for each in beat.consumer_data_set),
                             ["g1", "g3"])
            self.assertEqual([each.group_name for each in beat.producer_data_set], ["p1"])


class ThreadTests(SynchronousTestCase):
    """The same with sockets."""

    def test_five_of_a_client_have_one_thread_beside_those_of_handlers(self) -> None:
        """All five work; the threads of a run end with it."""
        with running_broker() as broker, Client(broker.namesrv_address) as client:
            before = set(threading.enumerate())
            producers = [Producer(client=client, group=f"p{each}") for each in (1, 2)]
            for producer in producers:
                producer.send("T", b"1")
            consumers = [Consumer(client=client, group=group, topics="T", start="first")
                         for group in GROUPS]
            seen: list[str] = []
            runs = [threading.Thread(target=consumer.run, args=(
                lambda message, group=group: seen.append(group),), kwargs={"workers": 2})
                for group, consumer in zip(GROUPS, consumers, strict=True)]
            self.assertEqual(self.of_client() - before, set())
            for run in runs:
                run.start()
            wait_until("each consumer has both", lambda: Counter(seen) == dict.fromkeys(GROUPS, 2))
            self.assertEqual(len(self.workers()), 6)
            counts = client._loop.call_in_loop(client._core.engine.debug_counts)
            self.assertEqual(counts["connections"], 2)
            consumers[0].close()
            producers[0].close()
            runs[0].join()
            self.assertEqual(len(self.workers()), 4)
            producers[1].send("T", b"2")
            wait_until("the others go on", lambda: (seen.count("g2"), seen.count("g3")) == (3, 3))
            for consumer in consumers[1:]:
                consumer.close()
            for run in runs[1:]:
                run.join()
            producers[1].close()
            self.assertEqual((self.workers(), seen.count("g1")), (set(), 2))

    def of_client(self) -> set[threading.Thread]:
        """Return the threads of clients of this process."""
        return {each for each in threading.enumerate() if each.name.startswith("twistmq-")}

    def workers(self) -> set[threading.Thread]:
        """Return the threads that run handlers."""
        return {each for each in self.of_client() if each.name.startswith("twistmq-worker-")}
