"""Rates over a sliding window."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.timer.rates import Rates


class RatesTests(SynchronousTestCase):
    """Two counts, with a sample from time to time."""

    def test_without_samples(self) -> None:
        """Without samples the rates are unknown."""
        self.assertEqual(Rates().update(1000, 7, 8), (0.0, 0.0))

    def test_counts_older_than_ten_seconds_are_forgotten(self) -> None:
        """Samples that are older than ten seconds do not count."""
        rates = Rates()
        for second in range(20):
            rates.note(second * 1000, second * 10, 0 if second < 15 else (second - 15) * 100)
        self.assertEqual(rates.update(20_000, 200, 500), (10.0, 50.0))
        self.assertEqual(rates.update(40_000, 200, 500), (0.0, 0.0))
