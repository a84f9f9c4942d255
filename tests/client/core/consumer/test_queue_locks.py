"""The locks of ordered queues."""

from __future__ import annotations

from tests.client.core.box import Answer
from tests.client.core.consumer.member_case import OrderCase
from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import BROKER, GroupBox
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand


class LockTests(OrderCase):
    """A member that needs locks."""

    def test_an_answer_without_locks_is_said(self) -> None:
        """No message is read then."""
        def answer(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.LOCK_BATCH_MQ:
                return ResponseCode.SUCCESS, None, b"\xff", None
            return self.broker(command)

        box = GroupBox(self.broker, in_order=True)
        box.servers[BROKER] = answer
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            box.start()
        self.assertIn("no locks from broker a", logs.output[0])
        self.assertEqual(box.member.assigned_queues, {})

    def test_a_lock_that_is_not_renewed_stops_the_order(self) -> None:
        """After thirty seconds the lock is not believed in."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        self.broker.locks[queue(0)] = "other"
        box.advance(31_000)
        self.assertIsNone(box.member.take(1))

    def test_close_gives_the_locks_back(self) -> None:
        """Another member can lock the queue at once."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        self.assertEqual(self.broker.locks, {queue(0): "10.0.0.1@test"})
        box.run(box.member.close())
        box.settle()
        self.assertEqual(self.broker.locks, {})

    def test_a_close_waits_until_the_locks_are_given_back(self) -> None:
        """A broker that handles the request later would take them from the client's next member."""
        for is_answered in (True, False):
            box = GroupBox(self.broker, in_order=True)
            held: list[RemotingCommand] = []

            def answer(command: RemotingCommand, held: list[RemotingCommand] = held) -> Answer:
                if command.code == RequestCode.UNLOCK_BATCH_MQ:
                    held.append(command)
                    return None
                return self.broker(command)

            box.servers[BROKER] = answer
            box.start()
            closing = box.engine.tasks.spawn(box.member.close())
            box.advance(500)
            self.assertEqual((len(held), closing.is_done), (1, False))
            if is_answered:
                box.reply(BROKER, held[0], ResponseCode.SUCCESS, None)
                box.settle()
            else:
                with self.assertLogs("twistmq.client", "WARNING") as logs:
                    box.advance(600)
                self.assertIn("locks of broker a were not given back", logs.output[0])
            self.assertTrue(closing.is_done)

    def test_close_leaves_the_lock_of_a_handler_that_runs(self) -> None:
        """Another member would handle the same queue beside it."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        self.assertIsNotNone(box.member.take(1))
        box.run(box.member.close(1_000))
        box.settle()
        self.assertEqual(self.broker.locks, {queue(0): "10.0.0.1@test"})
