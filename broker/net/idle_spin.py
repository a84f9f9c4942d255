"""Whether connections have input that is not read yet, and a brief poll for it after a read."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["SKIPS_MAX", "SPIN_SECONDS", "IdleSpin"]

#: How long a spin polls for the next request before the process sleeps, seconds.
SPIN_SECONDS: Final = 0.0002
#: Back-off limit: how many single requests skip the spin after a miss; doubles per miss.
SKIPS_MAX: Final = 1023


class IdleSpin:
    """Polls the reactor's epoll object, for a moment after a single request was served.

    The moment is for a synchronous producer, which sends again at once.

    :param reactor: a reactor without an epoll object never spins.
    :param monotonic: a clock in seconds.
    :param processors: the number of CPUs the process may use.
    """

    def __init__(
        self, reactor: Any, monotonic: Callable[[], float] = time.monotonic,
        processors: int | None = None,
    ) -> None:
        #: The number of requests in the slice that runs now; 0 outside of a read.
        self.request_count = 0
        self._reactor = reactor
        self._readable: select.poll | None = None
        self._monotonic = monotonic
        self._processors = processors or os.cpu_count() or 1
        self._was_lone = False
        #: The back-off after the last misses in a row, and how many requests still skip the spin.
        self._back_off = self._skips = 0

    def is_lone(self) -> bool:
        """Return whether the slice has one request and no other connection has input."""
        if self.request_count != 1:
            return False
        readable = self._epoll()
        self._was_lone = readable is not None and not readable.poll(0)
        return self._was_lone

    def forget(self) -> None:
        """Let no spin follow the slice: it did not run in a read."""
        self._was_lone = False

    def has_input(self) -> bool:
        """Return whether a connection has input that the reactor has not read yet.

        An epoll object can itself be polled: it is readable when a socket that it watches is. A
        socket that was read is not readable any more.
        """
        readable = self._epoll()
        return readable is not None and bool(readable.poll(0))

    def _epoll(self) -> select.poll | None:
        """Return the poll object of the reactor's epoll object; None when the reactor has none."""
        if self._readable is None:
            poller = getattr(self._reactor, "_poller", None)
            if not hasattr(select, "epoll") or not isinstance(poller, select.epoll):
                return None
            self._readable = select.poll()
            self._readable.register(poller.fileno(), select.POLLIN)
        return self._readable

    def spin(self) -> bool:
        """Poll briefly for the next request at the end of a slice that had one request.

        A synchronous producer usually sends again sooner than one sleep/wake-up takes. After a
        miss the spin backs off exponentially. It never runs on a single CPU.

        :returns: whether a connection has input.
        """
        if not self._was_lone:
            return False
        self._was_lone = False
        if self._skips or self._processors < 2 or self._readable is None:
            self._skips = max(self._skips - 1, 0)
            return False
        ends = self._monotonic() + SPIN_SECONDS
        while not self._readable.poll(0):
            if self._monotonic() >= ends:
                self._back_off = self._skips = min(2 * self._back_off + 1, SKIPS_MAX)
                return False
        self._back_off = 0
        return True
