"""The option ``start`` of each consumer: the beginning of a new group."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.core.consumer.member import Member
from twistmq.client.roles.parts import build_consumer, build_pull_consumer
from twistmq.client.testing import MemoryCluster


class StartTests(SynchronousTestCase):
    """Five messages a minute apart, in a topic of two queues."""

    def setUp(self) -> None:
        """Send the messages."""
        self.cluster = MemoryCluster(seed=4)
        self.cluster.create_topic("T", 2)
        self.producer = self.cluster.producer()
        #: When each message was sent, Unix ms.
        self.times: list[int] = []
        for number in range(5):
            self.cluster.advance(60_000)
            self.times.append(self.producer.client.clock.wall_ms())
            self.producer.send("T", b"%d" % number)
        self.cluster.advance(60_000)

    def read(self, kind: str, start: Any) -> list[bytes]:
        """Read with a new group, to which one more message is sent; :returns: the bodies."""
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        client = self.cluster.client()
        options: dict[str, Any] = {"start": start}
        if kind == "broadcast":
            options |= {"mode": "broadcast", "offset_folder": Path(folder.name)}
        group = f"{kind} {start}".translate({ord(each): "_" for each in " :+."})
        member: Member[Any] = (
            build_pull_consumer(client.core, group, "T", options).member if kind == "pull"
            else build_consumer(client.core, group, "T", options))
        client.run(member.start())
        self.cluster.advance(1_000)
        self.producer.send("T", b"new")
        self.cluster.advance(1_000)
        found = []
        while (batch := member.take(32)) is not None:
            found += [message.body for message in batch.messages]
        client.run(member.close(0))
        return sorted(found)

    def test_each_start_of_each_consumer(self) -> None:
        """The start is the first message, the end, or a time between two messages."""
        for kind in ("consumer", "pull", "broadcast"):
            for start, first in (("first", 0), ("last", 5), (self.at(2), 2), (self.at(4), 4)):
                expected = [b"%d" % number for number in range(first, 5)]
                found = self.read(kind, start)
                self.assertEqual([body for body in found if body != b"new"], expected,
                                 (kind, start))
                self.assertIn(b"new", found)
            self.setUp()

    def at(self, number: int) -> datetime:
        """The time half a minute before a message was sent."""
        return datetime.fromtimestamp(self.times[number] / 1000 - 30, UTC)
