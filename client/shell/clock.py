"""The clocks of the process."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """See ``Clock`` of ``twistmq.client.core.connection.tasks``."""

    def monotonic_ms(self) -> float:
        """Milliseconds for durations."""
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        """Unix ms."""
        return time.time_ns() // 1_000_000
