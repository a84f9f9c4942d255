"""A clock for durations that never jumps, even if the wall clock is set or the process stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["TICK_MS", "SteadyClock"]

#: The time between two ticks of a running process, ms.
TICK_MS: Final = 1000
#: A longer gap between ticks means that the process did not run or could not read from its peers,
#: ms.
_ASLEEP_MS: Final = 5000


class SteadyClock:
    """The clock for the durations of a process.

    The wall clock is used for times that other programs read: store, born and delivery times, and
    data versions.

    :param monotonic_ms: returns ms since an arbitrary start; it never jumps.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        #: A function that returns ms since an arbitrary start.
        self.now_ms = monotonic_ms
        #: How long the process did not run, as far as is known, ms.
        self.asleep_ms = 0
        self._ticked_ms: int | None = None

    def tick(self, _: int = 0) -> None:
        """Record that the process runs; periodic. Without ticks, it counts as always running."""
        self._look(self.now_ms())
        self._ticked_ms = self.now_ms()

    def awake_ms(self) -> int:
        """Return the ms since an arbitrary start in which peers could be read.

        A stopped process, or a process on a sleeping host, does not read from its peers. The
        silence of peers is measured with this clock, so that their input is read before they count
        as silent.
        """
        now_ms = self.now_ms()
        self._look(now_ms)
        return now_ms - self.asleep_ms

    def _look(self, now_ms: int) -> None:
        """Detect a period in which the process did not run."""
        ticked_ms = self._ticked_ms
        if ticked_ms is not None and now_ms - ticked_ms > _ASLEEP_MS:
            self.asleep_ms += now_ms - ticked_ms - TICK_MS
            self._ticked_ms = now_ms
