"""The delay levels."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import SettingsError
from twistmq.plugins import schedule
from twistmq.plugins.schedule.levels import DelayLevels

HOUR_MS = 3_600_000


class DelayLevelsTests(SynchronousTestCase):
    """The class ``DelayLevels``."""

    def test_the_18_levels_every_client_knows(self) -> None:
        """The defaults are the 18 levels that every client knows."""
        [text] = [row.default for row in schedule.Plugin.register_settings()
                  if row.name == "messageDelayLevel"]
        levels = DelayLevels(str(text))
        self.assertEqual(levels.max_level, 18)
        self.assertEqual([levels.due_ms(level, 5) - 5 for level in (1, 2, 4, 5, 14, 17, 18)],
                         [1000, 5000, 30_000, 60_000, 600_000, HOUR_MS, 2 * HOUR_MS])
        self.assertEqual(levels.due_ms(19, 0), 2 * HOUR_MS)

    def test_a_time_that_no_queue_entry_can_hold(self) -> None:
        """A record of another broker may have such a store time."""
        self.assertEqual(DelayLevels("1s").due_ms(1, 2**63 - 1), 2**63 - 1)
        self.assertEqual(DelayLevels("1s").due_ms(1, 2**63 - 1001), 2**63 - 1)
        self.assertEqual(DelayLevels("1s").due_ms(1, 2**63 - 1002), 2**63 - 2)

    def test_a_level_may_take_days(self) -> None:
        """A level may have days, or no time at all."""
        self.assertEqual(DelayLevels("40d 0s").lengths_ms, {1: 40 * 24 * HOUR_MS, 2: 0})

    def test_an_invalid_delay_level_is_refused_with_the_part(self) -> None:
        """The error names the part that is not a number with a unit."""
        for text in ("", "1s  5s", "1x", "s", "1", "-1s", "1s,5s", "1.5s", " 1s", "1S"):
            error = self.assertRaises(SettingsError, DelayLevels, text)
            self.assertIn("messageDelayLevel", str(error), msg=text)
