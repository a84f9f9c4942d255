"""The time by which a slave is behind its master."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.ha.lag import Lag


class LagTests(SynchronousTestCase):
    """A log that grows by 1000 bytes a second, and its slave."""

    def setUp(self) -> None:
        self.lag = Lag(0)

    def test_a_slave_that_is_steadily_behind(self) -> None:
        """The lag is the time in which the log grew by the missing bytes, and does
        not accumulate.
        """
        for now_ms in range(5000, 60_000, 100):
            self.lag.reported(now_ms - 2000, now_ms, now_ms)
            if now_ms >= 10_000:
                self.assertTrue(2000 <= self.lag.ms(now_ms - 2000, now_ms, now_ms) <= 2200)

    def test_a_slave_that_stalls_and_catches_up(self) -> None:
        """The lag grows with the time, and is zero when the slave has everything."""
        self.lag.reported(1000, 1000, 1000)
        self.assertEqual(self.lag.ms(1000, 1000, 1000), 0)
        for now_ms in range(1500, 3_600_000, 500):
            self.lag.noted(now_ms, now_ms)
        self.assertEqual(self.lag.ms(1000, now_ms, now_ms), now_ms - 1000)
        self.lag.reported(400_000, now_ms, now_ms)
        lag_ms = self.lag.ms(400_000, now_ms, now_ms)
        # There is a place each few seconds of the hour.
        self.assertTrue(0 <= lag_ms - (now_ms - 400_000) <= 8000, lag_ms)
        self.lag.reported(now_ms, now_ms, now_ms)
        self.assertEqual(self.lag.ms(now_ms, now_ms, now_ms), 0)

    def test_a_new_slave(self) -> None:
        """A new slave is behind since it connected."""
        self.lag.reported(0, 5000, 10)
        self.assertEqual(self.lag.ms(0, 5000, 700), 700)
