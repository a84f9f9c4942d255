"""The clocks of the process."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """The clock of the system; see ``Clock`` of ``twistmq.client.core.connection.tasks``."""

    def monotonic_ms(self) -> float:
        """Milliseconds for measuring durations."""
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        """Unix ms."""
        return time.time_ns() // 1_000_000
