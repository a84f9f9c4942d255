"""The results of handlers of popped messages."""

from __future__ import annotations

from tests.client.core.pop.pop_case import PopCase
from twistmq.protocol.codes import RequestCode, ResponseCode


class ResultTests(PopCase):
    """A group without order."""

    def test_a_failed_message_waits_for_its_next_attempt(self) -> None:
        """The delay depends on its attempts, or on the level of the handler."""
        box = self.start(1)
        for delay_ms, level in ((10_000, 0), (30_000, 0), (1000, 1)):
            batch = self.take()
            [message] = batch.messages
            box.member.fail(batch.assigned, [message], level)
            box.settle()
            self.assertEqual(box.broker.changes[-1].invisible_time, delay_ms)
            self.assertEqual(box.member.delivery.running, 0)
            box.advance(delay_ms)
        self.assertEqual(self.take().messages[0].attempt, 4)

    def test_a_message_that_failed_too_often_is_sent_to_the_dead_letters(self) -> None:
        """The handler may ask for it as well; if the broker refuses, it is delivered again."""
        box = self.start(2, max_attempts=1)
        batch = self.take()
        box.member.fail(batch.assigned, batch.messages, -1)
        batch = self.take()
        box.member.fail(batch.assigned, batch.messages, 1)
        box.settle()
        box.advance(1000)
        batch = self.take()
        self.assertEqual(batch.messages[0].attempt, 2)
        box.broker.refusals = {RequestCode.CONSUMER_SEND_MSG_BACK: ResponseCode.SYSTEM_ERROR}
        box.member.fail(batch.assigned, batch.messages)
        box.advance(60_000)
        self.assertEqual(box.broker.open(), [1])
        box.broker.refusals = {}
        batch = self.take()
        box.member.fail(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual([(each.origin_topic, each.delay_level, each.offset)
                          for each in box.broker.sent_back], [("T", -1, 0), ("T", -1, 1000)])
        self.assertEqual(box.broker.acks, [0, 1])

    def test_a_released_message_is_handed_out_again(self) -> None:
        """An iteration was left, and the broker gets no request."""
        box = self.start(1)
        batch = self.take()
        box.member.release(batch.assigned, batch.messages)
        self.assertEqual(box.take_all(), [0])
        self.assertEqual(len(box.broker.pops), 1)


class OrderTests(PopCase):
    """A group with ``order="queue"``."""

    def test_messages_of_a_queue_are_handed_out_one_after_the_other(self) -> None:
        """A failed message is repeated before the next one; the pop has the flag for order."""
        box = self.start(6, order="queue", suspend_s=1)
        first = self.take(1)
        self.assertEqual([int(each.body) for each in first.messages], [0])
        second = box.member.take(1)
        assert second is not None
        self.assertEqual(second.messages[0].queue.queue_id, 1)
        self.assertIsNone(box.member.take(1))
        box.member.fail(first.assigned, first.messages)
        self.assertIsNone(box.member.take(1))
        box.advance(1100)
        again = box.member.take(1)
        assert again is not None
        self.assertEqual((int(again.messages[0].body), again.messages[0].attempt), (0, 2))
        box.member.succeed(again.assigned, again.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [0])
        self.assertEqual(box.broker.batches, 0)
        self.assertTrue(box.broker.pops[0].order)

    def test_a_dead_message_of_an_order_is_followed_by_the_next(self) -> None:
        """It becomes a dead letter and is acknowledged."""
        box = self.start(4, order="queue", suspend_s=0.1)
        batch = self.take(1)
        box.member.fail(batch.assigned, batch.messages, -1)
        box.advance(200)
        following = box.take_all(1)
        self.assertIn(2, following)
        self.assertEqual((box.broker.acks, len(box.broker.sent_back)), ([0], 1))
