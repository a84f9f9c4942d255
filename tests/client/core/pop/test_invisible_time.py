"""Messages that are hidden for longer while their handlers run."""

from __future__ import annotations

from tests.client.core.pop.pop_case import PopCase


class ExtensionTests(PopCase):
    """The messages that are hidden, and the times."""

    def test_a_message_is_hidden_for_longer_while_its_handler_runs(self) -> None:
        """Its newest receipt acknowledges it."""
        box = self.start(1, invisible_s=10)
        batch = self.take()
        box.advance(100_000)
        self.assertEqual(box.broker.open(), [])
        self.assertFalse(batch.messages[0].lost)
        self.assertLess(len(box.broker.changes), 30)
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [0])

    def test_a_message_that_another_member_has_is_lost(self) -> None:
        """The broker refuses to hide it for longer."""
        box = self.start(1, invisible_s=10)
        batch = self.take()
        box.broker.messages[0, 0].pop_ms += 7
        box.advance(7000)
        self.assertTrue(batch.messages[0].lost)

    def test_a_handler_that_takes_too_long_has_its_message_delivered_again(self) -> None:
        """It is no longer hidden, and its late result does not count."""
        box = self.start(1, invisible_s=10, consume_timeout_s=30)
        batch = self.take()
        box.advance(31_000)
        self.assertTrue(batch.messages[0].lost)
        box.advance(10_000)
        self.assertEqual(box.broker.open(), [0])
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [])

    def test_messages_behind_one_that_is_handled_stay_hidden(self) -> None:
        """Otherwise they would be delivered before it."""
        box = self.start(4, order="queue", invisible_s=5)
        self.take(1)
        box.advance(20_000)
        self.assertEqual([int(each.body) for key, each in box.broker.messages.items()
                          if key[0] == 0 and each.visible_ms <= box.clock.now_ms], [])
