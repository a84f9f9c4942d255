"""Chooses the slot of a message, which may be due further ahead than the roll window.

Such a message is entered for half of the window, or all of it, and is entered again at that time.

Source: TimerMessageStore.doEnqueue @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from twistmq.broker.api import StoredMessage
from twistmq.plugins.timer.records import due_ms_of

if TYPE_CHECKING:
    from twistmq.plugins.timer.wheel import TimerWheel

__all__ = ["SlotChooser", "Way"]

#: A slave rolls a message this many ms later than its master, but at most later by this fraction of
#: the roll window. A slave cannot know when the master entered the message, and a message that is
#: rolled too early would be lost together with the master.
_ROLL_MARGIN_MS: Final = 60_000
_ROLL_MARGIN_PARTS: Final = 100


class Way(NamedTuple):
    """The time of entry, Unix ms; the delay until the slot, ms; whether the message is rolled."""

    write_ms: int
    ahead_ms: int
    is_rolled: bool


class SlotChooser:
    """The rule by which one broker rolls messages.

    :param roll_window: ticks ahead from which on a message is rolled.
    """

    def __init__(self, wheel: TimerWheel, roll_window: int) -> None:
        self._wheel = wheel
        self._window = roll_window
        self._window_ms = roll_window * wheel.tick_ms
        self._margin_ms = min(_ROLL_MARGIN_MS, self._window_ms // _ROLL_MARGIN_PARTS)

    def of_master(self, entered_ms: int, due_ms: int) -> Way:
        """Return the way of a message that a master enters; times in Unix ms."""
        write_ms = min(entered_ms, due_ms)
        ahead_ms = due_ms - write_ms
        if ahead_ms < self._window_ms:
            return Way(write_ms, ahead_ms, False)
        return Way(write_ms, self._first_ms(ahead_ms), True)

    def of_slave(self, message: StoredMessage, due_ms: int) -> Way:
        """Return the way of a message on a slave: a master enters it soon after it is stored."""
        way = self.of_master(self._wheel.floor_ms(message.store_timestamp), due_ms)
        return way._replace(ahead_ms=way.ahead_ms + self._margin_ms) if way.is_rolled else way

    def slot_on_slave(self, message: StoredMessage, properties: Mapping[str, str]) -> int:
        """Return the slot of a message on a slave, Unix ms.

        :param properties: the message's properties, parsed.
        :raises BrokerError: when they do not state when the message is due.
        """
        way = self.of_slave(message, due_ms_of(properties))
        return self._wheel.floor_ms(way.write_ms + way.ahead_ms)

    def _first_ms(self, ahead_ms: int) -> int:
        """Return the first delay of a message that must be rolled, chosen so that the next delay is
        not too short.
        """
        if ahead_ms - self._window_ms < self._window // 3 * self._wheel.tick_ms:
            return self._window // 2 * self._wheel.tick_ms
        return self._window_ms
