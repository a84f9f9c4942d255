"""Queues that a member gets."""

from __future__ import annotations

from tests.client.core.box import Answer
from tests.client.core.consumer.member_case import MemberCase, OrderCase
from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import BROKER, GroupBox
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand


class TakeoverTests(MemberCase):
    """The state of a queue before its first pull."""

    def test_an_unknown_offset_is_never_a_number(self) -> None:
        """If a broker cannot give the group's offset, the queue is not read."""
        self.broker.refusals[RequestCode.QUERY_CONSUMER_OFFSET] = ResponseCode.SYSTEM_ERROR
        box = GroupBox(self.broker)
        box.start()
        self.assertEqual(box.member.assigned_queues, {})
        self.broker.refusals.clear()
        box.advance(2000)
        self.assertEqual(sorted(box.take_all()), list(range(40)))

    def test_a_negative_offset_is_none(self) -> None:
        """No broker has a message there, so the queue waits, and a line is logged."""
        self.broker.offsets["g", "T", 1] = -5
        box = GroupBox(self.broker)
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            box.start()
        self.assertIn("the group is at offset -5", logs.output[0])
        self.assertEqual(len(box.member.assigned_queues), 3)

    def test_a_close_gives_back_the_locks_of_queues_that_come(self) -> None:
        """Their first offsets are not known yet, so the member does not have them."""
        asked: list[RemotingCommand] = []

        def answer(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
                asked.append(command)
                return None
            return self.broker(command)

        box = GroupBox(self.broker, in_order=True)
        box.servers[BROKER] = answer
        box.run(box.member.start())
        while not asked:
            box.advance(10)
        self.assertEqual(len(self.broker.locks), 4)
        box.run(box.member.close(10_000))
        box.advance(10)
        self.assertEqual(self.broker.locks, {})

    def test_no_moment_of_a_close_leaves_a_lock(self) -> None:
        """The close may come just before or after the request for locks."""
        for steps in range(40):
            self.broker.members["g"].clear()
            box = GroupBox(self.broker, in_order=True)
            box.run(box.member.start())
            for _ in range(steps):
                box.engine.run()
                box.advance(1)
            closing = box.member.tasks.spawn(box.member.close(10_000), "close")
            box.advance(2_000)
            self.assertTrue(closing.is_done)
            self.assertEqual(self.broker.locks, {}, steps)


class LockTests(OrderCase):
    """A queue that another member has locked."""

    def test_a_queue_that_another_member_locked_is_not_read(self) -> None:
        """It is read once the lock is free."""
        self.broker.locks[queue(0)] = "other"
        box = GroupBox(self.broker, in_order=True)
        box.start()
        self.assertEqual(box.member.assigned_queues, {})
        del self.broker.locks[queue(0)]
        box.advance(2_000)
        self.assertEqual(list(box.member.assigned_queues), [queue(0)])
