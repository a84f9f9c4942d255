"""Detects unread input of connections, and polls for it briefly after a read."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["SKIPS_MAX", "SPIN_SECONDS", "IdleSpin"]

#: How long a spin polls for the next request before the process sleeps, seconds.
SPIN_SECONDS: Final = 0.0002
#: The limit of the back-off: the number of single requests without a spin after a miss. Each miss
#: doubles the number.
SKIPS_MAX: Final = 1023


class IdleSpin:
    """Polls the reactor's epoll object for a moment after a single request was served.

    This helps a synchronous producer, which sends again at once.

    :param reactor: the reactor; without an epoll object there is never a spin.
    :param monotonic: a clock in seconds.
    :param processors: the number of CPUs that the process may use.
    """

    def __init__(
        self, reactor: Any, monotonic: Callable[[], float] = time.monotonic,
        processors: int | None = None,
    ) -> None:
        #: The number of requests in the running slice; 0 outside of a read.
        self.request_count = 0
        self._reactor = reactor
        self._readable: select.poll | None = None
        self._monotonic = monotonic
        self._processors = processors or os.cpu_count() or 1
        self._was_lone = False
        #: The back-off after the latest misses, and the number of requests that still skip a spin.
        self._back_off = self._skips = 0

    def is_lone(self) -> bool:
        """Return whether the slice has one request and no other connection has input."""
        if self.request_count != 1:
            return False
        readable = self._epoll()
        self._was_lone = readable is not None and not readable.poll(0)
        return self._was_lone

    def forget(self) -> None:
        """Do not spin after this slice, because it did not run in a read."""
        self._was_lone = False

    def has_input(self) -> bool:
        """Return whether a connection has input that the reactor has not read yet.

        An epoll object can itself be polled: it is readable if one of its sockets is. A socket is
        not readable after it was read.
        """
        readable = self._epoll()
        return readable is not None and bool(readable.poll(0))

    def _epoll(self) -> select.poll | None:
        """Return a poll object for the reactor's epoll object, or None without such an object."""
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
