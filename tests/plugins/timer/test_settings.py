"""The values that follow from the settings."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import Settings
from twistmq.plugins.timer.settings import TIMER_SETTINGS, TimerSettings


class TimerSettingsTests(SynchronousTestCase):
    """Apache's defaults and its rounding."""

    def read(self, **overrides: str) -> TimerSettings:
        return TimerSettings.read(Settings.load(TIMER_SETTINGS, overrides=overrides))

    def test_defaults_are_apaches(self) -> None:
        """A tick has one second, and the window has two days."""
        self.assertEqual(self.read(), TimerSettings(True, 1000, 172_800, 104_857_600))

    def test_four_lengths(self) -> None:
        """Four lengths; others are rounded down, but not below the shortest."""
        for text, tick_ms in (("0", 100), ("100", 100), ("199", 100), ("200", 200), ("499", 200),
                              ("500", 500), ("999", 500), ("1000", 1000), ("5000", 1000)):
            self.assertEqual(self.read(timerPrecisionMs=text).tick_ms, tick_ms, msg=text)

    def test_a_time_beyond_the_wheel_counts_as_its_end(self) -> None:
        """A time after the end of the wheel counts as its end."""
        for text, ticks in (("1", 604_740), ("2", 2), ("604740", 604_740), ("604741", 604_740),
                            ("-1", 604_740)):
            self.assertEqual(self.read(timerRollWindowSlot=text).roll_window, ticks, msg=text)
