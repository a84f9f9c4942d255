"""The process's clocks and limits: the one place that reads them."""

from __future__ import annotations

import resource
import time
from typing import Final

from twisted.logger import Logger

__all__ = ["monotonic", "now_ms", "raise_open_files_limit"]

#: Seconds from an arbitrary start; never jumps.
monotonic: Final = time.monotonic


def now_ms() -> int:
    """The time, Unix ms."""
    return time.time_ns() // 1_000_000


def raise_open_files_limit() -> int:
    """Raise RLIMIT_NOFILE to what the system allows; :returns: the limit now in force.

    Each connection and each open file of the store takes one; the usual soft limit is 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return hard
        except (OSError, ValueError):
            Logger().warn("the limit of open files stays at {limit}", limit=soft)
    return soft
