"""The clocks and limits of the process; no other module reads them."""

from __future__ import annotations

import ctypes
import resource
import time
from typing import Any, Final

from twisted.logger import Logger

from twistmq.broker.constants import (
    LARGE_BLOCK_BYTES,
    OPEN_FILES_LEAST,
    OPEN_QUEUE_FILES_MAX,
)
from twistmq.broker.edge.boot import EXIT_FAILED, StartRefused

__all__ = [
    "OPEN_FILES_MEND",
    "connections_max",
    "give_back_large_blocks",
    "monotonic",
    "monotonic_ms",
    "now_ms",
    "open_files_fault",
    "raise_open_files_limit",
    "use_monotonic",
]

#: Descriptors that are neither connections nor queue files: the files of the commit log and the
#: index, tables that are being saved, the log, and the descriptors of the reactor.
_OTHER_FILES: Final = 128
#: The limits that are tried in turn if the hard limit is higher than the system really allows.
_LIMITS: Final = (1_048_576, 65_536, 10_240)
#: Instructions for raising the limit.
OPEN_FILES_MEND: Final = (
    "LimitNOFILE=1048576 in the systemd unit, --ulimit nofile=1048576:1048576 for a container, or "
    "ulimit -Hn in the shell that starts it")

#: Options of glibc's ``mallopt``, from malloc.h; other C libraries have no such function.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_mallopt: Final = getattr(ctypes.CDLL(None), "mallopt", None)

#: Seconds since an arbitrary start; this clock never jumps.
monotonic: Final = time.monotonic


def monotonic_ms() -> int:
    """Return the monotonic clock in ms."""
    return time.monotonic_ns() // 1_000_000


def use_monotonic(reactor: Any) -> None:
    """Base the timers of a reactor on a clock that never jumps.

    Twisted's timers use the wall clock: if it is set back, no timer fires until the clock has
    reached its previous time again.
    """
    if reactor.seconds is monotonic:
        return
    jump = monotonic() - reactor.seconds()
    reactor.seconds = monotonic
    for call in reactor.getDelayedCalls():
        call.seconds = monotonic
        call.time += jump


def now_ms() -> int:
    """Return the current time, Unix ms."""
    return time.time_ns() // 1_000_000


def raise_open_files_limit() -> int:
    """Raise RLIMIT_NOFILE to the limit that the system allows.

    Each connection and each open file of the store takes one descriptor; the usual soft limit is
    1024.

    :returns: the limit now in force.
    :raises StartRefused: when the limit is too low for a server.
    """
    limit = _raised_limit()
    fault = open_files_fault(limit)
    if fault is not None:
        raise StartRefused(EXIT_FAILED, f"{fault}: {OPEN_FILES_MEND}")
    return limit


def _raised_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    for limit in (hard, *(each for each in _LIMITS if soft < each < hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return limit
        except (OSError, ValueError):
            continue
    Logger().warn("cannot raise the limit of open files: it stays at {limit}", limit=soft)
    return soft


def give_back_large_blocks() -> None:
    """Map each large memory block separately, so that it is returned to the system when freed.

    With its default settings, glibc raises the size from which it maps blocks each time a mapped
    block is freed. Frames of many megabytes that grow side by side are then copied again and again,
    and leave holes that are too small for any of them.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        _mallopt(_M_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)


def open_files_fault(limit: int) -> str | None:
    """Return why a limit of open files is too low; None if a server can work with it."""
    if limit == resource.RLIM_INFINITY or limit >= OPEN_FILES_LEAST:
        return None
    return (f"only {limit} files may be open, a server needs {OPEN_FILES_LEAST}: its own, its "
            "queues', and one for each connection")


def connections_max() -> int:
    """Return the number of connections that leaves enough descriptors for the store.

    The store opens up to half of the descriptors for its queues; see OPEN_QUEUE_FILES_MAX.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = _LIMITS[0]
    return max(limit - min(OPEN_QUEUE_FILES_MAX, limit // 2) - _OTHER_FILES, 1)
