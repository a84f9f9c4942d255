"""Time for durations: it never jumps, even if the wall clock is set or the process is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["TICK_MS", "SteadyClock"]

#: How often a process that runs says so, ms.
TICK_MS: Final = 1000
#: After a longer gap between ticks the process did not run, or could not read its peers, ms.
_ASLEEP_MS: Final = 5000


class SteadyClock:
    """One process's clock for durations.

    The wall clock is for what others read: store, born and delivery times, data versions.

    :param monotonic_ms: ms from an arbitrary start; never jumps.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        #: ms from an arbitrary start: call it.
        self.now_ms = monotonic_ms
        #: For how long the process did not run, as far as is known, ms.
        self.asleep_ms = 0
        self._ticked_ms: int | None = None

    def tick(self, _: int = 0) -> None:
        """Say that the process runs; periodic. Without it, it counts as always running."""
        self._look(self.now_ms())
        self._ticked_ms = self.now_ms()

    def awake_ms(self) -> int:
        """ms in which peers could be heard, from an arbitrary start.

        A stopped process, or one on a sleeping host, reads no peer. The silence of peers is
        measured by this clock, so that their input is read before they count as silent.
        """
        now_ms = self.now_ms()
        self._look(now_ms)
        return now_ms - self.asleep_ms

    def _look(self, now_ms: int) -> None:
        """Note a time in which the process did not run."""
        ticked_ms = self._ticked_ms
        if ticked_ms is not None and now_ms - ticked_ms > _ASLEEP_MS:
            self.asleep_ms += now_ms - ticked_ms - TICK_MS
            self._ticked_ms = now_ms
