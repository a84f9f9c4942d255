"""The numbers of messages entered and delivered per second, over the last ten seconds."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Rates"]

_WINDOW_MS: Final = 10_000


class Rates:
    """The samples of one broker."""

    def __init__(self) -> None:
        #: (Unix ms, entered, delivered), the oldest first.
        self._samples: deque[tuple[int, int, int]] = deque()

    def note(self, now_ms: int, entered: int, delivered: int) -> None:
        """Add a sample of the counts since the start."""
        samples = self._samples
        samples.append((now_ms, entered, delivered))
        while len(samples) > 1 and samples[1][0] <= now_ms - _WINDOW_MS:
            samples.popleft()

    def update(self, now_ms: int, entered: int, delivered: int) -> tuple[float, float]:
        """Return the two rates, in messages per second."""
        self.note(now_ms, entered, delivered)
        begin_ms, *counts = self._samples[0]
        seconds = max(now_ms - begin_ms, 1000) / 1000
        return (round((entered - counts[0]) / seconds, 1),
                round((delivered - counts[1]) / seconds, 1))
