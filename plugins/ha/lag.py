"""Measures the lag of a slave: how long ago the log was as long as the slave has it now.

Each report is compared with earlier ends of the log, of which at most ``_LOG_ENDS_MAX`` are
remembered. The result is accurate within ``_GRAIN_MS``, or within a hundredth of its value.

Source: none; Kafka measures the lag of its replicas in this way.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

__all__ = ["Lag"]

#: The initial time between two remembered ends, ms, and the maximum number of them.
_GRAIN_MS: Final = 100
_LOG_ENDS_MAX: Final = 1024


class Lag:
    """The lag of one slave.

    :param now_ms: the time of its connection, at which the lag begins.
    """

    def __init__(self, now_ms: int) -> None:
        #: The newest time at which the log was not longer than the slave's log is.
        self._had_all_ms = now_ms
        #: Ends of the log, with the times at which they were noted.
        self._log_ends: deque[tuple[int, int]] = deque()
        #: The time between two remembered ends, ms.
        self._grain_ms = _GRAIN_MS

    def reported(self, acked: int, end: int, now_ms: int) -> None:
        """Note that the slave has the log up to ``acked`` while it ends at ``end`` here."""
        log_ends = self._log_ends
        while log_ends and log_ends[0][0] <= acked:
            self._had_all_ms = log_ends.popleft()[1]
        if acked >= end:
            self._had_all_ms, self._grain_ms = now_ms, _GRAIN_MS
        self.noted(end, now_ms)

    def noted(self, end: int, now_ms: int) -> None:
        """Note where the log ends now; called with reports, and periodically in between."""
        log_ends = self._log_ends
        if not log_ends or now_ms - log_ends[-1][1] >= self._grain_ms:
            log_ends.append((end, now_ms))
        if len(log_ends) > _LOG_ENDS_MAX:
            self._log_ends = deque(islice(log_ends, 0, None, 2))
            self._grain_ms = 2 * (log_ends[-1][1] - log_ends[0][1]) // len(log_ends)

    def ms(self, acked: int, end: int, now_ms: int) -> int:
        """Return the lag of the slave, ms; 0 when it has the whole log."""
        return 0 if acked >= end else now_ms - self._had_all_ms
