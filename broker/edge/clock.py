"""The process's clocks and limits: the one place that reads them."""

from __future__ import annotations

import resource
import time
from typing import Final

from twisted.logger import Logger

from twistmq.broker.constants import OPEN_QUEUE_FILES_MAX

__all__ = ["connections_max", "monotonic", "now_ms", "raise_open_files_limit"]

#: Descriptors that are neither connections nor queue files: the commit log's, the index's, tables
#: being saved, the log, the reactor's own.
_OTHER_FILES: Final = 128

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


def connections_max() -> int:
    """How many connections leave a store the descriptors it may need.

    The store opens up to half of them for its queues, see OPEN_QUEUE_FILES_MAX.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(limit - min(OPEN_QUEUE_FILES_MAX, limit // 2) - _OTHER_FILES, 1)
