"""What the reactor is at: the read of one connection, and whether others wait for theirs."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["LINGER_SECONDS", "PASSES_MAX", "IdleSpin"]

#: How long the next request of who sends one at a time is waited for without sleeping, seconds.
LINGER_SECONDS: Final = 0.0002
#: After a wait in vain so many lone requests pass without one, at most; twice as many each time.
PASSES_MAX: Final = 1023


class IdleSpin:
    """The turn of a connection that is being read.

    :param reactor: whose turn; of one without an epoll object it is not known who waits.
    :param monotonic: a clock in seconds.
    :param processors: on how many the process may run.
    """

    def __init__(
        self, reactor: Any, monotonic: Callable[[], float] = time.monotonic,
        processors: int | None = None,
    ) -> None:
        #: Requests that are being run together; 0 outside of a read.
        self.request_count = 0
        self._reactor = reactor
        self._readable: select.poll | None = None
        self._monotonic = monotonic
        self._processors = processors or os.cpu_count() or 1
        self._was_lone = False
        #: Waits of ``linger`` in vain, in a row, and the requests that pass because of them.
        self._vain = self._passes = 0

    def is_lone(self) -> bool:
        """Whether one request is all there is: it has the turn alone and no connection waits.

        An epoll object can be polled itself, and is readable when anything it watches is. What
        was read is not, and what the reactor has yet to read still is.
        """
        if self.request_count != 1:
            return False
        if self._readable is None:
            poller = getattr(self._reactor, "_poller", None)
            if not hasattr(select, "epoll") or not isinstance(poller, select.epoll):
                return False
            self._readable = select.poll()
            self._readable.register(poller.fileno(), select.POLLIN)
        self._was_lone = not self._readable.poll(0)
        return self._was_lone

    def linger(self) -> bool:
        """At the end of a turn: if it was found to be lone, wait for who comes next.

        To fall asleep and be woken takes longer than most need who send one message at a time and
        wait for each. Where nobody comes so soon, it is tried ever more rarely. The processor is
        another's who needs it when there is but one.

        :returns: whether somebody came.
        """
        if not self._was_lone:
            return False
        self._was_lone = False
        if self._passes or self._processors < 2 or self._readable is None:
            self._passes = max(self._passes - 1, 0)
            return False
        ends = self._monotonic() + LINGER_SECONDS
        while not self._readable.poll(0):
            if self._monotonic() >= ends:
                self._vain = self._passes = min(2 * self._vain + 1, PASSES_MAX)
                return False
        self._vain = 0
        return True
