"""Messages that tools send to a member."""

from __future__ import annotations

from tests.client.core.consumer.part_case import PartCase
from twistmq.client.base.errors import Busy, Closed
from twistmq.client.core.consumer.assigned_queues import Batch, MemberOptions
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.tool_messages import ToolMessages


class ToolMessageTests(PartCase):
    """The module client/core/consumer/tool_messages.py."""

    def setUp(self) -> None:
        """Make the part, of a member that keeps an order and has no lock."""
        super().setUp()
        self.delivery: Delivery[bytes] = Delivery(
            self.client, MemberOptions(group="g", in_order=True), self.closing, needs_locks=True)
        self.part: ToolMessages[bytes] = ToolMessages(
            self.tasks, self.closing, self.delivery, self.queues.total)

    def take(self) -> Batch[bytes]:
        """Take a message that must exist."""
        batch = self.delivery.take(1)
        assert batch is not None and batch.assigned.outcome is not None
        return batch

    def test_the_result_of_the_handler_is_returned(self) -> None:
        """The message is in no queue of the member, and needs no lock."""
        for is_success in (True, False):
            consuming = self.spawn(self.part.consume(self.message(7), 1000))
            batch = self.take()
            self.assertEqual([each.offset for each in batch.messages], [7])
            assert batch.assigned.outcome is not None
            batch.assigned.outcome.set_result(is_success)
            self.advance(1)
            self.assertEqual(consuming.result(), is_success)
        self.assertEqual((self.queues, self.queues.total.byte_count), ({}, 0))

    def test_a_handler_that_takes_too_long_is_not_waited_for(self) -> None:
        """A message that no handler took is not handed out afterwards."""
        consuming = self.spawn(self.part.consume(self.message(7), 1000))
        self.advance(1000)
        self.assertEqual(str(consuming.error), "the handler did not end in 1000 ms")
        self.assertIsNone(self.delivery.take(1))
        self.assertEqual(self.queues.total.byte_count, 0)

    def test_their_number_is_bounded(self) -> None:
        """A message that ends makes room."""
        waiting = [self.spawn(self.part.consume(self.message(7), 1000)) for _ in range(64)]
        self.assertIsInstance(self.spawn(self.part.consume(self.message(7), 1000)).error, Busy)
        outcome = self.take().assigned.outcome
        assert outcome is not None
        outcome.set_result(True)
        self.advance(1)
        self.assertEqual(sum(each.is_done for each in waiting), 1)
        self.assertFalse(self.spawn(self.part.consume(self.message(7), 1000)).is_done)

    def test_a_closed_member_takes_none(self) -> None:
        """The broker gets the reason."""
        self.closing.set()
        self.assertIsInstance(self.spawn(self.part.consume(self.message(7), 1000)).error, Closed)
