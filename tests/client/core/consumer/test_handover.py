"""Queues that a member loses."""

from __future__ import annotations

from tests.client.core.box import Answer
from tests.client.core.consumer.member_case import LosingCase, OrderCase
from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import BROKER, GroupBox
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand


class HandoverTests(LosingCase):
    """Handlers still run when another member gets their queue, or when the member closes."""

    def test_handlers_that_end_soon_after_the_change_have_their_results_committed(self) -> None:
        """The new member reads the offset half a second after it took the queue.

        A result that comes later, or after that of a failure, is not committed.
        """
        box = GroupBox(self.broker)
        box.start()
        batches = {batch.assigned.queue: batch
                   for batch in [box.member.take(4) for _ in range(4)] if batch is not None}
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        while len(box.member.assigned_queues) == 4:
            box.advance(10)
        soon, late = batches[queue(2)], batches[queue(3)]
        box.member.succeed(soon.assigned, soon.messages[:2])
        box.member.fail(soon.assigned, soon.messages[2:3])
        box.member.succeed(soon.assigned, soon.messages[3:])
        box.advance(400)
        self.assertEqual(self.broker.offsets["g", "T", 2], 2)
        box.member.succeed(late.assigned, late.messages)
        box.advance(30_000)
        self.assertEqual(self.broker.offsets.get(("g", "T", 3), 0), 0)
        self.assertEqual(self.broker.offsets["g", "T", 2], 2)
        self.assertEqual(self.broker.sent_back, [])

    def test_a_tool_that_moves_a_queue_while_it_is_given_up_is_heard(self) -> None:
        """The commit of the lost queue is not remembered then."""
        box, batch = self.losing()
        box.run(box.intake.move_to({queue(2): 0, queue(3): 0}))
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(1_500)
        for number in (2, 3):
            self.broker.offsets["g", "T", number] = 0
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [0, 0])

    def test_a_close_ends_what_was_begun_with_lost_queues(self) -> None:
        """The results of handlers that ended meanwhile are committed."""
        box, batch = self.losing()
        box.tasks_later(50, box.member.succeed, batch.assigned, batch.messages)
        begin = box.clock.now_ms
        box.run(box.member.close(10_000))
        self.assertLess(box.clock.now_ms - begin, 100)
        self.assertEqual([self.broker.offsets["g", "T", number] for number in range(4)],
                         [1, 1, 1, 1])

    def test_a_close_gives_back_the_locks_of_lost_queues(self) -> None:
        """Otherwise no member could read them for a minute; that of a running handler stays."""
        box, batch = self.losing(in_order=True)
        box.tasks_later(50, box.member.succeed, batch.assigned, batch.messages)
        box.run(box.member.close(10_000))
        self.assertEqual(self.broker.locks, {})
        self.broker.members["g"].clear()
        box, _ = self.losing(in_order=True)
        box.run(box.member.close(500))
        self.assertEqual(set(self.broker.locks), {queue(2)})


class LockTests(OrderCase):
    """A lost queue that is locked."""

    def test_a_lost_queue_stays_locked_until_its_handler_ends(self) -> None:
        """The member does not take it again earlier either."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        batch = box.member.take(1)
        assert batch is not None
        self.broker.members["g"].add("10.0.0.0@aaa")
        box.notify()
        box.advance(10_000)
        self.assertEqual((box.member.assigned_queues, self.broker.locks),
                         ({}, {queue(0): "10.0.0.1@test"}))
        self.broker.members["g"].remove("10.0.0.0@aaa")
        box.notify()
        box.advance(10_000)
        self.assertEqual(box.member.assigned_queues, {})
        self.broker.members["g"].add("10.0.0.0@aaa")
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(100)
        self.assertEqual(self.broker.locks, {})

    def test_a_lost_queue_is_not_taken_again_before_its_lock_was_given_back(self) -> None:
        """A broker that handles the request later would take the new lock from this member."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        held: list[RemotingCommand] = []

        def answer(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.UNLOCK_BATCH_MQ:
                held.append(command)
                return None
            return self.broker(command)

        box.servers[BROKER] = answer
        self.broker.members["g"].add("10.0.0.0@aaa")
        box.notify()
        while not held:
            box.advance(10)
        self.broker.members["g"].remove("10.0.0.0@aaa")
        box.notify()
        box.advance(500)
        self.assertEqual(box.member.assigned_queues, {})
        del self.broker.locks[queue(0)]
        box.reply(BROKER, held[0], ResponseCode.SUCCESS, None)
        box.advance(1_500)
        self.assertEqual(set(box.member.assigned_queues), {queue(0)})
        self.assertEqual(self.broker.locks, {queue(0): "10.0.0.1@test"})
