"""Messages whose receipts are no longer valid."""

from __future__ import annotations

from tests.client.core.pop.pop_case import PopCase
from twistmq.protocol.codes import RequestCode


class LossTests(PopCase):
    """The handling of lost messages."""

    def test_a_lost_message_is_neither_handed_out_again_nor_counted(self) -> None:
        """A worker that has it gives it back, skips it, or finishes it too late."""
        for end in ("release", "skip", "fail"):
            box = self.start(1, invisible_s=10, consume_timeout_s=30)
            batch = self.take()
            box.advance(31_000)
            self.assertTrue(batch.messages[0].lost)
            changes = len(box.broker.changes)
            if end == "release":
                box.member.release(batch.assigned, batch.messages)
            elif end == "fail":
                box.member.fail(batch.assigned, batch.messages)
            box.settle()
            self.assertEqual(box.member.delivery.running, 0, msg=end)
            self.assertEqual(batch.assigned.window.count, 0, msg=end)
            self.assertIsNone(box.member.take(1))
            box.advance(5000)
            self.assertEqual(len(box.broker.changes), changes, msg="it is not hidden any more")

    def test_a_failed_message_that_is_lost_meanwhile_is_counted_once(self) -> None:
        """The broker does not answer when it is to be hidden for its next attempt."""
        box = self.start(1, invisible_s=2)
        batch = self.take()
        box.broker.silent = {RequestCode.CHANGE_MESSAGE_INVISIBLETIME}
        box.member.fail(batch.assigned, batch.messages)
        box.advance(10_000)
        self.assertEqual(box.member.delivery.running, 0)

    def test_a_lost_message_takes_those_behind_it_along(self) -> None:
        """They would be handled before it, so the broker delivers all of them again."""
        box = self.start(6, order="queue", invisible_s=5, consume_timeout_s=20)
        batch = self.take(2)
        first, second = batch.messages
        box.broker.messages[first.record.queue_id, first.offset].pop_ms += 7
        box.advance(4000)
        self.assertEqual((first.lost, second.lost, box.member.delivery.running), (True, True, 0))
        box.member.release(batch.assigned, [second])
        following = [box.member.take(1), box.member.take(1)]
        self.assertNotIn(first.queue, [each.messages[0].queue for each in following if each])
        box.advance(6000)
        again = self.take(2)
        self.assertEqual([each.body for each in again.messages], [first.body, second.body])
