"""The common parts of tests of a whole member: its broker, and members that lose queues."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import GroupBox, GroupBroker
from twistmq.client.core.consumer.assigned_queues import Batch

__all__ = ["LosingCase", "MemberCase", "OrderCase"]


class MemberCase(SynchronousTestCase):
    """A topic of four queues, with ten messages in each."""

    def setUp(self) -> None:
        """Make a broker with ten messages in each of four queues."""
        self.broker = GroupBroker()
        for number in range(40):
            self.broker.put("T", number % 4, b"%d" % number, "ab"[number % 2])

    def take(self, box: GroupBox, most: int) -> Batch[bytes]:
        """Take a batch that must exist."""
        batch = box.member.take(most)
        assert batch is not None
        return batch

    def new_member(self) -> GroupBox:
        """Return a member that has just got its queues; the previous member commits one of them
        then.
        """
        box = GroupBox(self.broker)
        box.run(box.member.start())
        box.advance(300)
        self.assertEqual(len(box.member.assigned_queues), 4)
        self.broker.offsets["g", "T", 1] = 7
        return box


class LosingCase(MemberCase):
    """A member that loses two of its four queues."""

    def lose_two_queues(self) -> GroupBox:
        """A member that finished four messages of each queue, and lost the queues 2 and 3.

        The group is set back to 1 in both, as a member of Apache's client does that asked where
        they begin before this one committed, and commits it with its first pull.
        """
        box = GroupBox(self.broker)
        box.start()
        for _ in range(4):
            batch = box.member.take(4)
            assert batch is not None
            box.member.succeed(batch.assigned, batch.messages)
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        self.assertEqual(set(box.member.assigned_queues), {queue(0), queue(1)})
        for number in (2, 3):
            self.assertEqual(self.broker.offsets["g", "T", number], 4)
            self.broker.offsets["g", "T", number] = 1
        return box

    def commit_twice_and_lose_two_queues(self) -> GroupBox:
        """A member that committed 4 and then 6 of each queue, and lost the queues 2 and 3."""
        box = GroupBox(self.broker)
        box.start()
        for count in (4, 2):
            for _ in range(4):
                batch = box.member.take(count)
                assert batch is not None
                box.member.succeed(batch.assigned, batch.messages)
            if count == 4:
                box.advance(6_500)
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        return box

    def come_back(self, box: GroupBox, number: int) -> int:
        """Let the other member leave; :returns: the offset at which a lost queue begins."""
        self.broker.members["g"].discard("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        self.assertEqual(len(box.member.assigned_queues), 4)
        return box.member.assigned_queues[queue(number)].window.committable

    def losing(self, **options: Any) -> tuple[GroupBox, Batch[bytes]]:
        """Return a member that is giving up two queues, and the running messages of one of them."""
        box = GroupBox(self.broker, **options)
        box.start()
        batches = {batch.assigned.queue: batch
                   for batch in [box.member.take(1) for _ in range(4)] if batch is not None}
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        while len(box.member.assigned_queues) == 4:
            box.advance(10)
        for number in (0, 1, 3):
            batch = batches[queue(number)]
            box.member.succeed(batch.assigned, batch.messages)
        return box, batches[queue(2)]


class OrderCase(SynchronousTestCase):
    """A topic of one queue, with ten messages that are consumed in order."""

    def setUp(self) -> None:
        """Make a broker with ten messages in one queue."""
        self.broker = GroupBroker(queues=1)
        for number in range(10):
            self.broker.put("T", 0, b"%d" % number)
