"""The questions to producers, which wait until the half messages that they are about are readable.

A half message is put back before its producer is asked. If replicas have to confirm messages, the
copy becomes readable only after that, and an earlier answer of the producer would not find it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Questions"]


class Questions:
    """The questions of one broker, in the order of the copies in the commit log."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: (offset of the copy in the commit log, sends the question).
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def ask(self, log_offset: int, send: Callable[[], None]) -> None:
        """Send a question, at once if the message at that offset of the commit log is readable."""
        if log_offset < self._broker.store.dispatch.confirm_offset:
            send()
        else:
            self._waiting.append((log_offset, send))

    def rest_ms(self) -> int | None:
        """Return how long :meth:`ask_readable` has nothing to do, ms; None while nothing waits."""
        return 0 if self._waiting else None

    def ask_readable(self, now_ms: int = 0) -> None:
        """Send the waiting questions whose messages are readable now."""
        waiting = self._waiting
        while waiting and waiting[0][0] < self._broker.store.dispatch.confirm_offset:
            waiting.popleft()[1]()

    def clear(self) -> None:
        """Forget the waiting questions, because another broker asks, or the log was cut."""
        self._waiting.clear()
