"""The process's clocks and limits: the one place that reads them."""

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

#: Descriptors that are neither connections nor queue files: the commit log's, the index's, tables
#: being saved, the log, the reactor's own.
_OTHER_FILES: Final = 128
#: Limits that are tried in turn where the hard one is more than the system really allows.
_LIMITS: Final = (1_048_576, 65_536, 10_240)
#: How the limit is set.
OPEN_FILES_MEND: Final = (
    "LimitNOFILE=1048576 in the systemd unit, --ulimit nofile=1048576:1048576 for a container, or "
    "ulimit -Hn in the shell that starts it")

#: Options of glibc's ``mallopt``, from malloc.h; other C libraries have no such function.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_mallopt: Final = getattr(ctypes.CDLL(None), "mallopt", None)

#: Seconds from an arbitrary start; never jumps.
monotonic: Final = time.monotonic


def monotonic_ms() -> int:
    """The monotonic clock in ms."""
    return time.monotonic_ns() // 1_000_000


def use_monotonic(reactor: Any) -> None:
    """Let a reactor's timers go by a clock that never jumps.

    Twisted's go by the wall clock: when that is set back, none fires until it is where it was.
    """
    if reactor.seconds is monotonic:
        return
    jump = monotonic() - reactor.seconds()
    reactor.seconds = monotonic
    for call in reactor.getDelayedCalls():
        call.seconds = monotonic
        call.time += jump


def now_ms() -> int:
    """The time, Unix ms."""
    return time.time_ns() // 1_000_000


def raise_open_files_limit() -> int:
    """Raise RLIMIT_NOFILE to what the system allows.

    Each connection and each open file of the store takes one; the usual soft limit is 1024.

    :returns: the limit now in force.
    :raises StartRefused: when no server can work with it.
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
    """Let each large block of memory be mapped for itself, and go back when it is free.

    By itself glibc maps fewer and fewer the more of them were freed. Frames of many megabytes that
    grow side by side are then copied over and over, and leave holes that fit none of them.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        _mallopt(_M_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)


def open_files_fault(limit: int) -> str | None:
    """The fault of a limit of open files; None: a server can work with it."""
    if limit == resource.RLIM_INFINITY or limit >= OPEN_FILES_LEAST:
        return None
    return (f"only {limit} files may be open, a server needs {OPEN_FILES_LEAST}: its own, its "
            "queues', and one for each connection")


def connections_max() -> int:
    """The limit of connections at which the store still gets the descriptors it needs.

    The store opens up to half of them for its queues, see OPEN_QUEUE_FILES_MAX.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = _LIMITS[0]
    return max(limit - min(OPEN_QUEUE_FILES_MAX, limit // 2) - _OTHER_FILES, 1)
