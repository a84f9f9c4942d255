"""The delay levels and the length of each of them.

Source: ScheduleMessageService.parseDelayLevel, computeDeliverTimestamp @5.3.3.
"""

from __future__ import annotations

import re
from typing import Final

from twistmq.broker.api import SettingsError

__all__ = ["DelayLevels"]

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"(\d{1,9})([smhd])")
#: The latest time that a queue entry can hold, Unix ms.
_TIME_MAX: Final = 2**63 - 1


class DelayLevels:
    """The length of each delay level, counted from level 1.

    :param text: the setting messageDelayLevel: numbers with a unit, separated by one space.
    :raises SettingsError: when the text has any other form.
    """

    def __init__(self, text: str) -> None:
        self.lengths_ms: dict[int, int] = {}
        for level, part in enumerate(text.split(" "), 1):
            match = _LEVEL.fullmatch(part)
            if match is None:
                raise SettingsError(f"messageDelayLevel: {part!r} in {text!r} is not a number with "
                                    "a unit of s, m, h or d")
            self.lengths_ms[level] = int(match[1]) * _UNITS_MS[match[2]]

    @property
    def max_level(self) -> int:
        """The highest level."""
        return len(self.lengths_ms)

    def due_ms(self, level: int, store_timestamp: int) -> int:
        """Return the time at which a message is due, Unix ms.

        :param level: a level above the highest one counts as the highest.
        :param store_timestamp: the time at which the message was stored, Unix ms.
        """
        return min(store_timestamp + self.lengths_ms[min(level, self.max_level)], _TIME_MAX)
