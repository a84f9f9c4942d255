"""The clock for durations."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.scheduling.steady_clock import TICK_MS, SteadyClock


class SteadyClockTests(SynchronousTestCase):
    """The class SteadyClock."""

    def setUp(self) -> None:
        self.now_ms = 1000
        self.clock = SteadyClock(lambda: self.now_ms)

    def run_for(self, milliseconds: int) -> None:
        """Let a process run that says so."""
        for _ in range(milliseconds // TICK_MS):
            self.now_ms += TICK_MS
            self.clock.tick()

    def test_all_time_counts_while_the_process_runs(self) -> None:
        """All time counts while the process runs."""
        begin_ms = self.clock.awake_ms()
        self.run_for(100_000)
        self.assertEqual(self.clock.awake_ms() - begin_ms, 100_000)

    def test_time_in_which_it_did_not_run_is_no_silence(self) -> None:
        """Time in which the process was suspended does not count."""
        for asks_first in (self.clock.awake_ms, self.clock.tick):
            self.run_for(3000)
            heard_ms, begin_ms = self.clock.awake_ms(), self.clock.now_ms()
            self.now_ms += 130_000
            asks_first()
            self.assertLessEqual(self.clock.awake_ms() - heard_ms, TICK_MS)
            self.assertEqual(self.clock.now_ms() - begin_ms, 130_000)
            self.run_for(10_000)
            self.assertLessEqual(self.clock.awake_ms() - heard_ms, 10_000 + TICK_MS)
            self.assertGreaterEqual(self.clock.awake_ms() - heard_ms, 10_000)

    def test_a_second_of_blocked_reactor_counts_as_time(self) -> None:
        """A second or two of work counts as any other time."""
        self.run_for(3000)
        heard_ms = self.clock.awake_ms()
        self.now_ms += 3000
        self.assertEqual(self.clock.awake_ms() - heard_ms, 3000)

    def test_without_signs_of_sleep_the_clock_always_runs(self) -> None:
        """Without signs of a suspension all time counts."""
        self.now_ms += 10**9
        self.assertEqual(self.clock.awake_ms(), self.now_ms)
