"""Waits for offsets of the log."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.replica.offset_waits import OffsetWaits


class OffsetWaitsTests(SynchronousTestCase):
    """Waits that end when the offset advances, that are late, or that fail together."""

    def setUp(self) -> None:
        self.waits = OffsetWaits()
        self.third, self.first, self.second = (
            self.waits.wait(offset, due_ms) for offset, due_ms in ((30, 3), (10, 1), (20, 2)))

    def test_an_offset_ends_the_waits_up_to_it(self) -> None:
        """The lowest one fires first, and the others still wait."""
        order: list[str] = []
        self.second.addCallback(lambda _: order.append("second"))
        self.first.addCallback(lambda _: order.append("first"))
        self.waits.end_up_to(9)
        self.assertEqual(order, [])
        self.waits.end_up_to(20)
        self.assertEqual((order, len(self.waits)), (["first", "second"], 1))
        self.assertNoResult(self.third)

    def test_late_waits_are_dropped_without_a_result(self) -> None:
        """Their senders have had their responses; the waits are counted."""
        self.assertEqual(self.waits.drop_late(2), 2)
        self.waits.end_up_to(100)
        self.assertNoResult(self.first)
        self.assertNoResult(self.second)
        self.successResultOf(self.third)

    def test_all_fail_together(self) -> None:
        """A wait that begins afterwards is not affected."""
        self.waits.fail_all(RuntimeError("the role changed"))
        for each in (self.first, self.second, self.third):
            self.failureResultOf(each, RuntimeError)
        self.assertEqual(len(self.waits), 0)
        later = self.waits.wait(5, 9)
        self.waits.end_up_to(5)
        self.successResultOf(later)
