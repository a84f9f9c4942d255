"""A broadcast group in a cluster in memory: each member gets each message."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.testing import MemoryCluster
from twistmq.client.testing.cluster import MemoryMember


class BroadcastTests(SynchronousTestCase):
    """Members over two brokers."""

    def bodies(self, member: MemoryMember) -> list[bytes]:
        """Take all messages for a member."""
        found: list[bytes] = []
        while messages := member.take(wait_ms=2_000):
            found += [message.body for message in messages]
        return sorted(found)

    def test_each_member_gets_each_message_once(self) -> None:
        """A later member gets them too; one that returns continues by its own file."""
        cluster = MemoryCluster(seed=7, brokers=2)
        cluster.create_topic("T", 2)
        producer = cluster.producer()
        folder = Path(self.mktemp())

        def send(*names: str) -> list[bytes]:
            for name in names:
                producer.send("T", name.encode())
            return sorted(name.encode() for name in names)

        def join(name: str) -> MemoryMember:
            return cluster.member("g", "T", cluster.client(
                client_id=f"10.0.1.9@{name}"), mode="broadcast", offset_folder=folder / name,
                start="first")

        sent = send(*"abcdefgh")
        first, second = join("first"), join("second")
        self.assertEqual([self.bodies(first), self.bodies(second)], [sent, sent])
        more = send(*"ijkl")
        third = join("third")
        self.assertEqual([self.bodies(each) for each in (first, second, third)],
                         [more, more, sorted(sent + more)])
        first.close()
        self.assertTrue([path for path in (folder / "first").rglob("*") if path.is_file()])
        last = send(*"mn")
        self.assertEqual(self.bodies(join("first")), last)
        self.assertEqual(self.bodies(second), last)
