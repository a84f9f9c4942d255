"""The setting enablePopMessageThreshold."""

from __future__ import annotations

from tests.plugins.pop.case import PopTestCase
from twistmq.protocol.headers.pop import PopMessageResponseHeader


class ThresholdTests(PopTestCase):
    """A queue gives out no more when too much is not acknowledged."""

    settings = {"enablePopMessageThreshold": "true",  # noqa: RUF012
                "popInflightMessageThreshold": "2"}

    def test_a_queue_over_the_threshold_gives_out_no_message(self) -> None:
        """The queue is open again when messages are acknowledged or revived."""
        self.send_some(8, 1)
        popped = self.pop(count=3)
        reply = self.ask_pop()
        self.assertEqual((reply.body, reply.header(PopMessageResponseHeader).rest_num), (b"", 5))
        self.ack(popped[0])
        more = self.pop(count=2)
        self.assertEqual(len(more), 2)
        self.assertEqual(self.pop(0), [])
        self.pass_time(8000)
        self.assertEqual(len(self.pop(0, count=2)), 2)

    def test_a_group_that_keeps_order_has_its_own_limit(self) -> None:
        """For a group with ordered consumption the limit is that its queue is locked."""
        self.send_some(8, 1)
        self.ack(*self.pop(order=True, count=4))
        self.assertEqual(len(self.pop(order=True)), 4)

    def test_what_was_popped_before_the_start(self) -> None:
        """Messages from before the start are not counted."""
        self.send_some(8, 1)
        popped = self.pop(count=3)
        self.box.now_ms += 1
        self.restart()
        self.box.kernel.started_ms = self.box.now_ms
        self.assertEqual(len(self.pop(count=3)), 3)
        self.ack(*popped)
        self.assertEqual(self.pop(), [])
