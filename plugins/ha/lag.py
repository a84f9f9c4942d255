"""How long ago the log was as long as a slave has it now, as a metric shows it.

Each report is compared with places where the log ended some time before. There are at most
``_PLACES_MAX`` of them: the time is right within ``_GRAIN_MS``, or within a hundredth of itself.

Source: none; Kafka's replicas are measured so.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

__all__ = ["Lag"]

#: From one place to the next that is remembered, ms, at first; and how many there are at most.
_GRAIN_MS: Final = 100
_PLACES_MAX: Final = 1024


class Lag:
    """The lag of one slave.

    :param now_ms: the time of its connection: it counts as behind since then until it has all.
    """

    def __init__(self, now_ms: int) -> None:
        #: The newest time at which the log was no longer than what the slave has.
        self._had_all_ms = now_ms
        #: Where the log ended, and when.
        self._places: deque[tuple[int, int]] = deque()
        #: From one place to the next, ms.
        self._grain_ms = _GRAIN_MS

    def reported(self, acked: int, end: int, now_ms: int) -> None:
        """The slave has the log up to ``acked``; it ends at ``end`` here."""
        places = self._places
        while places and places[0][0] <= acked:
            self._had_all_ms = places.popleft()[1]
        if acked >= end:
            self._had_all_ms, self._grain_ms = now_ms, _GRAIN_MS
        self.noted(end, now_ms)

    def noted(self, end: int, now_ms: int) -> None:
        """The log ends here now; called with reports, and periodically between."""
        places = self._places
        if not places or now_ms - places[-1][1] >= self._grain_ms:
            places.append((end, now_ms))
        if len(places) > _PLACES_MAX:
            self._places = deque(islice(places, 0, None, 2))
            self._grain_ms = 2 * (places[-1][1] - places[0][1]) // len(places)

    def ms(self, acked: int, end: int, now_ms: int) -> int:
        """How long the slave is behind, ms; 0 when it has all."""
        return 0 if acked >= end else now_ms - self._had_all_ms
