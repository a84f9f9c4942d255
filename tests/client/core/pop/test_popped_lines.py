"""Popped messages in the windows of their queues."""

from __future__ import annotations

from tests.client.core.pop.pop_case import PopCase


class LineTests(PopCase):
    """Messages that enter a window, and those that leave it unread."""

    def test_tags_are_compared_again(self) -> None:
        """A broker compares hashes; a message with another tag is acknowledged and dropped."""
        box = self.start(0, expression="a || b")
        for number, tag in enumerate("abc"):
            box.broker.put(b"%d" % number, 0, tag)
        box.demand()
        self.assertEqual(box.take_all(), [0, 1])
        box.settle()
        self.assertEqual(box.broker.acks, [2])

    def test_the_broker_says_how_often_a_message_was_delivered(self) -> None:
        """The records of an ordered queue do not change."""
        box = self.start(1, order="queue", invisible_s=5)
        self.take().messages[0].lost = True
        box.advance(6000)
        box.member.assigned_queues.clear()
        self.assertEqual(self.take().messages[0].attempt, 2)

    def test_messages_that_are_given_out_again_replace_those_that_are_here(self) -> None:
        """The earlier receipts are invalid."""
        box = self.start(2, order="queue")
        batch = self.take(1)
        box.broker.messages[batch.messages[0].queue.queue_id, 0].visible_ms = 0
        box.member.take(1)
        again = self.take(1)
        self.assertEqual(again.messages[0].body, batch.messages[0].body)
        self.assertTrue(batch.messages[0].lost)
        box.member.succeed(again.assigned, again.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [int(again.messages[0].body)])

    def test_a_topic_that_is_not_wanted_any_more_is_given_back(self) -> None:
        """Its messages become visible at once."""
        box = self.start()
        box.demand()
        box.member.unsubscribe("T")
        box.advance(2000)
        self.assertEqual(box.broker.open(), list(range(10)))
        self.assertEqual((box.member.assigned(), box.member.assigned_queues), ([], {}))
