"""The limit of the requests of live tails, so that tabs that were left open leave threads to pages.

A tail asks for the messages since its last request about once in a second. Beyond the limit, a
request is refused at once, and the page of the tail asks more slowly. All tails therefore go on,
whatever their number is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["TailLimit", "TooManyTails"]

#: The requests that are served at one time, and the requests of one second.
SERVED_MAX: Final = 3
RATE_MAX: Final = 30.0


class TooManyTails(Exception):
    """More tails are open than the console serves at their usual pace."""


class TailLimit:
    """Counts the requests of tails.

    :param seconds: the clock for durations.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._served = 0
        self._credit = RATE_MAX
        self._credit_at_s = seconds()

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Count a request while it is served.

        :raises TooManyTails: when it is refused.
        """
        with self._lock:
            now_s = self._seconds()
            self._credit = min(RATE_MAX, self._credit + (now_s - self._credit_at_s) * RATE_MAX)
            self._credit_at_s = now_s
            if self._served >= SERVED_MAX or self._credit < 1:
                raise TooManyTails("Too many tails are open: this one goes on more slowly.")
            self._credit -= 1
            self._served += 1
        try:
            yield
        finally:
            with self._lock:
                self._served -= 1
