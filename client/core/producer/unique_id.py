"""Unique ids of messages: no two messages have the same id, even if two processes send them.

An id consists of address, process, a random number, milliseconds of the month and a counter, in
upper-case hexadecimal: 32 digits with an IPv4 address, 56 with an IPv6 address. Tools derive the
time of a message from its id, so months begin in the local time zone, as in Java.

Threads share a maker. After a fork, the child continues with its own random number, and so does a
process in a new month, in which the milliseconds start again. If the clock is set back, no id is
repeated: the milliseconds stay constant, and advance when the counter is used up. After a large
step back, a new random number is used.

Source: MessageClientIDSetter, MQAdminImpl.queryMessageByUniqKey @5.3.3. Differs from Apache: the
random number, where Java has the hash of its class loader, is new in each month and after a fork.
"""

from __future__ import annotations

import os
import threading
from datetime import datetime
from itertools import count
from typing import Final
from weakref import WeakSet

__all__ = ["UniqueIds", "process_ids"]

#: The number of values of the counter.
_NUMBERS: Final = 0x10000
#: The clock may step back this far before ids show it, in ms.
_STEP_BACK_MS: Final = 1_000_000
#: How long a thread waits for another thread that makes an id, in seconds.
_STUCK_S: Final = 0.05


class UniqueIds:
    """Makes ids for one process.

    :param ip: the address, of 4 or 16 bytes.
    """

    def __init__(self, ip: bytes) -> None:
        if len(ip) not in (4, 16):
            raise ValueError(f"an address has 4 or 16 bytes, not {len(ip)}")
        self._ip = ip
        self._renew()
        _makers.add(self)

    def _renew(self) -> None:
        """Initialise the maker, or reset it in the child of a fork."""
        # A thread that the child does not have may hold the parent's lock. A signal handler may
        # make an id while its own thread makes one.
        self._lock = threading.RLock()
        self._numbers = count()
        #: The bounds of the month, in Unix ms.
        self._month = (0, 0)
        self._fixed = ""
        #: The times and numbers that share the digits before the number: (first time, last time,
        #: first number, end of numbers, digits).
        self._now: tuple[int, int, int, int, str] = (0, -1, 0, 0, "")

    def make(self, now_ms: int) -> str:
        """Make the next id.

        :param now_ms: the time in Unix ms.
        """
        number = next(self._numbers)
        first_ms, ms, begin, end, digits = self._now
        if first_ms <= now_ms <= ms and begin <= number < end:
            return f"{digits}{number & 0xFFFF:04X}"
        # Either a millisecond begins, or another thread began one after the number was taken.
        return self._make_slowly(now_ms)

    def _make_slowly(self, now_ms: int) -> str:
        """Make an id, which may be the first of a millisecond."""
        if not self._lock.acquire(timeout=_STUCK_S):
            # A signal handler interrupted the thread that holds the lock, and waits for this
            # thread. A new maker has its own random number.
            return UniqueIds(self._ip).make(now_ms)
        try:
            number = next(self._numbers)
            first_ms, ms, _, end, digits = self._now
            if first_ms <= now_ms <= ms and number < end:
                return f"{digits}{number & 0xFFFF:04X}"
            if now_ms < first_ms:
                ms, self._month = now_ms, (0, 0)
            ms = max(now_ms, ms + (number >= end))
            if not self._month[0] <= ms < self._month[1]:
                self._month = _month_of(ms)
                self._fixed = (self._ip + (os.getpid() & 0xFFFF).to_bytes(2)
                               + os.urandom(4)).hex().upper()
            digits = f"{self._fixed}{ms - self._month[0] & 0xFFFFFFFF:08X}"
            self._now = ms - _STEP_BACK_MS, ms, number, number + _NUMBERS, digits
            return f"{digits}{number & 0xFFFF:04X}"
        finally:
            self._lock.release()


def _month_of(ms: int) -> tuple[int, int]:
    """Return the begin and end of the month of a time in the local time zone, in Unix ms."""
    day = datetime.fromtimestamp(ms / 1000)
    is_december = day.month == 12
    begin = datetime(day.year, day.month, 1)
    end = datetime(day.year + is_december, 1 if is_december else day.month + 1, 1)
    return int(begin.timestamp() * 1000), int(end.timestamp() * 1000)


_makers: Final[WeakSet[UniqueIds]] = WeakSet()
#: The makers of this process by address.
_shared: Final[dict[bytes, UniqueIds]] = {}


def process_ids(ip: bytes) -> UniqueIds:
    """Return the maker that all clients of this process with an address share."""
    return _shared.get(ip) or _shared.setdefault(ip, UniqueIds(ip))


def _renew_all() -> None:
    for maker in _makers:
        maker._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
