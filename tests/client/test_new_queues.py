"""Queues that are new to an existing group: no message to them is lost.

All members begin with "last", the default.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import Message
from twistmq.client.core.consumer.assigned_queues import Batch
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.pull_consumer import PullMember
from twistmq.client.core.consumer.subscriptions import subscription
from twistmq.client.roles.parts import build_consumer, build_pull_consumer
from twistmq.client.testing import MemoryCluster
from twistmq.protocol.bodies import MessageQueue, TopicConfig
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import DeleteTopicRequestHeader

#: Within so much time members follow a change of the route, ms.
FOLLOW_MS = 35_000
#: A member has its queues, and has read what is in them, after this time, ms.
READ_MS = 2_500


class Reader:
    """A member that handles all its messages."""

    def __init__(self, cluster: MemoryCluster, core: Member[Any] | PullMember[Any]) -> None:
        self.cluster = cluster
        #: The parts of a member that is polled.
        self.pull = core if isinstance(core, PullMember) else None
        self.member: Member[Any] = core.member if isinstance(core, PullMember) else core
        self.handled: list[bytes] = []
        member = self.member
        member.client.tasks.spawn(member.start(), "start")
        cluster.settle()

    def run(self, milliseconds: float = READ_MS) -> None:
        """Let time pass, and handle the messages."""
        end_ms = self.cluster.now_ms + milliseconds
        while self.cluster.now_ms < end_ms:
            self.cluster.advance(100)
            self.handle()

    def handle(self) -> None:
        """Handle all messages."""
        if self.pull is not None:
            poller = self.pull.poller
            batches: list[Batch[Any]] | None = None
            while batches != []:
                with poller.polls.begin() as poll:
                    batches = poller.poll_now(poll, 32)
                for batch in batches:
                    self.handled += [message.body for message in batch.messages]
            return
        while (batch := self.member.take(32)) is not None:
            self.handled += [message.body for message in batch.messages]
            self.member.succeed(batch.assigned, batch.messages)

    def take(self) -> list[bytes]:
        """Return the bodies that were handled since the last call, in order."""
        handled, self.handled = self.handled, []
        return sorted(handled)


class Case(SynchronousTestCase):
    """A cluster with a topic ``T`` of one queue, at the first of two brokers."""

    #: The kind of consumer.
    kind = "consumer"

    def setUp(self) -> None:
        """Make the cluster, and a producer."""
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cluster = MemoryCluster(seed=5, brokers=2)
        self.a, self.b = self.cluster.brokers.values()
        self.producer = self.cluster.producer()
        self.set_queues(self.a, "T", 1)

    def set_queues(self, broker: Any, topic: str, count: int) -> None:
        """Set how many queues a topic has at a broker."""
        broker.box.kernel.topic_config.update(TopicConfig(topic, count, count, 6), {})
        broker._register()

    def delete(self, broker: Any, topic: str) -> None:
        """Delete a topic at a broker."""
        client = self.producer.client
        client.run(client.core.ask(broker.address, RequestCode.DELETE_TOPIC_IN_BROKER,
                                   DeleteTopicRequestHeader(topic)))
        self.cluster.name_server.server.routes.delete_topic(topic)

    def send(self, broker: Any, topic: str, queue_id: int, *bodies: bytes) -> None:
        """Send to one queue, which other clients may not know yet."""
        client = self.producer.client
        client.run(client.core.routes.find(topic, again=True))
        for body in bodies:
            sender = self.producer.sender
            client.run(sender.send(sender.prepare(Message(topic, body)),
                                   MessageQueue(topic, broker.name, queue_id)))

    def reader(
        self, *topics: str, group: str = "g", start: str = "last", ip: str = "10.0.7.7"
    ) -> Reader:
        """Return a member that joins now."""
        client = self.cluster.client(
            client_id=f"{ip}@DEFAULT" if self.kind == "broadcast" else f"{ip}@{id(object())}")
        wanted = dict.fromkeys(topics or ("T",), "*")
        if self.kind == "pull":
            return Reader(self.cluster, build_pull_consumer(
                client.core, group, wanted, {"start": start}))
        options = {"mode": "broadcast", "offset_folder": self.folder}
        return Reader(self.cluster, build_consumer(client.core, group, wanted, {
            "start": start, **(options if self.kind == "broadcast" else {})}))

    def close(self, reader: Reader) -> None:
        """Leave the group in order, and close the client."""
        reader.member.client.tasks.spawn(reader.member.close(0), "close")
        self.cluster.advance(3_000)
        self.assertTrue(reader.member.has_left)
        # The files have the time of the real clock.
        for path in self.folder.rglob("offsets.json"):
            wall_s = reader.member.tasks.clock.wall_ms() / 1000
            os.utime(path, (wall_s, wall_s))

    def cached_route(self, *topics: str) -> None:
        """Make the group known: a member of it reads the topics for a while, and leaves."""
        reader = self.reader(*topics)
        reader.run()
        self.send(self.a, "T", 0, b"first")
        reader.run()
        self.assertEqual(reader.take(), [b"first"])
        self.close(reader)


class NewQueueTests(Case):
    """A group that is away, or there, while a queue is made."""

    def test_a_topic_grows_while_the_group_is_away(self) -> None:
        """The group has an offset in the old queue only."""
        self.cached_route()
        self.set_queues(self.a, "T", 4)
        for number in range(4):
            self.send(self.a, "T", number, b"%d" % number)
        reader = self.reader()
        reader.run()
        self.assertEqual(reader.take(), [b"0", b"1", b"2", b"3"])

    def test_a_broker_is_added_while_the_group_is_away(self) -> None:
        """The broker does not know the group."""
        self.cached_route()
        self.set_queues(self.b, "T", 2)
        self.send(self.b, "T", 0, b"0", b"1")
        self.send(self.b, "T", 1, b"2")
        reader = self.reader()
        reader.run()
        self.assertEqual(reader.take(), [b"0", b"1", b"2"])

    def test_a_topic_is_made_while_the_group_is_away(self) -> None:
        """The group requested it before, so a message would be missed if it began at the end."""
        self.cached_route("T", "U")
        self.set_queues(self.a, "U", 2)
        self.send(self.a, "U", 1, b"0", b"1")
        reader = self.reader("T", "U")
        reader.run()
        self.assertEqual(reader.take(), [b"0", b"1"])

    def test_a_topic_is_added_to_the_subscriptions_of_a_group(self) -> None:
        """Its first message is in memory, so it is read from there, as in Apache's client."""
        self.cached_route()
        self.set_queues(self.b, "U", 1)
        self.send(self.b, "U", 0, b"0", b"1")
        reader = self.reader("T", "U")
        reader.run()
        self.assertEqual(reader.take(), [b"0", b"1"])

    def test_a_topic_is_subscribed_to_while_the_member_is_there(self) -> None:
        """The topic need not exist yet."""
        reader = self.reader()
        reader.run()
        for topic in ("U", "V"):
            reader.member.subscribe(subscription(topic, None))
            reader.run()
            self.set_queues(self.a, topic, 1)
            self.send(self.a, topic, 0, b"0", b"1")
            reader.run(FOLLOW_MS)
            self.assertEqual(reader.take(), [b"0", b"1"])

    def test_a_topic_grows_under_a_member(self) -> None:
        """The member looks at the route each half minute only."""
        reader = self.reader()
        reader.run()
        self.set_queues(self.a, "T", 3)
        self.set_queues(self.b, "T", 1)
        self.send(self.a, "T", 2, b"0", b"1")
        self.send(self.b, "T", 0, b"2")
        reader.run(FOLLOW_MS)
        self.assertEqual(reader.take(), [b"0", b"1", b"2"])

    def test_a_member_restarts_before_it_saw_the_new_queue(self) -> None:
        """It did not know the queue when it left."""
        reader = self.reader()
        reader.run()
        self.set_queues(self.a, "T", 2)
        self.send(self.a, "T", 1, b"0")
        self.send(self.a, "T", 0, b"1")
        reader.run()
        self.assertEqual(reader.take(), [b"1"])
        self.close(reader)
        reader = self.reader()
        reader.run()
        self.assertEqual(reader.take(), [b"0"])

    def test_a_new_group_restarts_before_it_read_anything(self) -> None:
        """Messages after its first start belong to it, after a close and after a kill."""
        self.send(self.a, "T", 0, b"old")
        for number, (seen_ms, is_killed) in enumerate(((300, False), (1_000, True))):
            group = f"g{number}"
            reader = self.reader(group=group)
            reader.run(seen_ms)
            if is_killed:
                self.cluster.clients[-1].kill()
            else:
                self.close(reader)
            self.send(self.a, "T", 0, b"new")
            reader = self.reader(group=group)
            reader.run(30_000 if is_killed and self.kind != "broadcast" else READ_MS)
            if is_killed:
                # The broker drops the member that was killed after two minutes.
                reader.run(130_000)
            self.assertEqual(reader.take(), [b"new"])
            self.close(reader)

    def test_a_topic_is_made_under_a_member(self) -> None:
        """The member waited for it."""
        reader = self.reader("T", "U")
        reader.run(FOLLOW_MS)
        self.set_queues(self.a, "U", 1)
        self.send(self.a, "U", 0, b"0", b"1", b"2")
        reader.run(FOLLOW_MS)
        self.assertEqual(reader.take(), [b"0", b"1", b"2"])

    def test_a_topic_is_made_again_while_the_group_is_away(self) -> None:
        """It has fewer, or more, messages than the group had read before."""
        for count in (1, 5):
            self.cached_route()
            self.send(self.a, "T", 0, b"x", b"y")
            reader = self.reader()
            reader.run()
            self.assertEqual(reader.take(), [b"x", b"y"])
            self.close(reader)
            self.delete(self.a, "T")
            self.cluster.advance(5_000)
            self.set_queues(self.a, "T", 1)
            sent = [b"%d" % number for number in range(count)]
            self.send(self.a, "T", 0, *sent)
            reader = self.reader()
            reader.run()
            self.assertEqual(reader.take(), sent)
            self.close(reader)

    def test_a_topic_is_made_again_under_a_member(self) -> None:
        """This happens before the member can notice that it is missing, or after a while."""
        for gone_ms in (0, 3_000):
            for count in (1, 9):
                reader = self.reader()
                reader.run()
                old = [b"a", b"b", b"c", b"d"]
                self.send(self.a, "T", 0, *old)
                reader.run(10_000)
                self.assertEqual(reader.take(), old)
                self.delete(self.a, "T")
                self.cluster.advance(gone_ms)
                self.set_queues(self.a, "T", 1)
                sent = [b"%d" % number for number in range(count)]
                self.send(self.a, "T", 0, *sent)
                reader.run(FOLLOW_MS)
                self.assertEqual(reader.take(), sent, (gone_ms, count))
                self.close(reader)


class PullNewQueueTests(NewQueueTests):
    """The same for a pull consumer."""

    kind = "pull"

    def test_a_queue_is_assigned_that_was_made_meanwhile(self) -> None:
        """A program assigns all queues of a topic, again and again."""
        self.send(self.a, "T", 0, b"old")
        client = self.cluster.client()
        pull: PullMember[Any] = build_pull_consumer(client.core, "g", None, {})
        reader = Reader(self.cluster, pull)
        client.run(pull.assignment.assign([MessageQueue("T", self.a.name, 0)]))
        reader.run()
        self.set_queues(self.a, "T", 2)
        self.send(self.a, "T", 0, b"0")
        self.send(self.a, "T", 1, b"1")
        client.run(pull.assignment.assign(
            [MessageQueue("T", self.a.name, each) for each in (0, 1)]))
        reader.run()
        self.assertEqual(reader.take(), [b"0", b"1"])


class BroadcastNewQueueTests(NewQueueTests):
    """The same for a member that keeps its offsets in a file."""

    kind = "broadcast"


class OldQueueTests(Case):
    """A new group does not get earlier messages."""

    def setUp(self) -> None:
        """Make a topic with old messages at both brokers."""
        super().setUp()
        for broker in (self.a, self.b):
            self.set_queues(broker, "T", 3)
            for number in range(3):
                self.send(broker, "T", number, b"old", b"old", b"old")

    def send_new(self) -> list[bytes]:
        """Send a message to each queue."""
        sent = []
        for broker in (self.a, self.b):
            for number in range(3):
                sent.append(f"{broker.name} {number}".encode())
                self.send(broker, "T", number, sent[-1])
        return sent

    def test_a_new_group_begins_at_the_end(self) -> None:
        """Other groups do not matter."""
        reader = self.reader(group="other", start="first")
        reader.run()
        self.assertEqual(len(reader.take()), 18)
        reader = self.reader()
        reader.run()
        sent = self.send_new()
        reader.run()
        self.assertEqual(reader.take(), sent)

    def test_the_members_of_a_new_group_start_together(self) -> None:
        """Each gets queues that another one had for a moment and did not read."""
        for gap_ms in (0, 200, 450, 700):
            readers = []
            for number in range(4):
                readers.append(self.reader(group=f"g{gap_ms}", ip=f"10.0.7.{number}"))
                self.cluster.advance(gap_ms)
            for _ in range(100):
                for reader in readers:
                    reader.run(100)
            handled = [body for reader in readers for body in reader.take()]
            self.assertEqual(handled, [], gap_ms)
            sent = self.send_new()
            for _ in range(20):
                for reader in readers:
                    reader.run(100)
            handled = [body for reader in readers for body in reader.take()]
            self.assertEqual(sorted(handled), sent, gap_ms)
            for reader in readers:
                self.close(reader)


class PullOldQueueTests(OldQueueTests):
    """The same for a pull consumer."""

    kind = "pull"


class BroadcastOldQueueTests(Case):
    """A new broadcast member."""

    kind = "broadcast"

    def test_a_new_group_begins_at_the_end(self) -> None:
        """It has no file."""
        self.send(self.a, "T", 0, b"old")
        reader = self.reader()
        reader.run()
        self.send(self.a, "T", 0, b"new")
        reader.run()
        self.assertEqual(reader.take(), [b"new"])
