"""How many lines of a kind are written."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.scheduling.log_rate import LineRate, Outage


class LineRateTests(SynchronousTestCase):
    """A few a minute, then their number."""

    def test_the_first_are_written(self) -> None:
        """The first are written, the others counted; the next minute's first says how many."""
        rate = LineRate(3)
        self.assertEqual([rate.left_out(1_000_000 + number) for number in range(1000)],
                         [0] * 3 + [None] * 997)
        self.assertEqual(rate.left_out(1_060_000), 997)
        self.assertEqual(rate.left_out(1_060_001), 0)

    def test_lines_that_are_seldom_are_all_written(self) -> None:
        """Lines that are seldom are all written, also when the clock goes back."""
        rate = LineRate(1)
        for now_ms in (10**12, 10**12 + 60_000, 10**12 + 120_000, 10**12):
            self.assertEqual(rate.left_out(now_ms), 0)


class OutageTests(SynchronousTestCase):
    """One line for each time that something begins to fail."""

    def test_begins_once(self) -> None:
        """And once more when it had not failed between."""
        outage = Outage()
        self.assertEqual([outage.begins() for _ in range(3)], [True, False, False])
        outage.ends()
        self.assertEqual([outage.begins() for _ in range(2)], [True, False])
