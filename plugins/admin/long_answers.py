"""Answers that take long to make are made in slices, so that nobody else waits for them.

A handler that may take long is a generator: it yields wherever it can pause and returns its reply.
Most are done within the first slice and answered at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Final

from twisted.internet.defer import Deferred

from twistmq.broker.remoting import Handled, Reply

__all__ = ["CONTINUE_PERIOD_MS", "IDLE_PERIOD_MS", "SLICE_MS", "LongAnswers", "Work"]

#: The reactor is held for about so long, ms; a handler may hold it for 10.
SLICE_MS: Final = 4
#: From one slice to the next, ms.
CONTINUE_PERIOD_MS: Final = 10
#: How soon work that did not fit into its first slice is seen, ms.
IDLE_PERIOD_MS: Final = 100

#: What a handler that may take long is.
Work = Generator[None, None, Reply]


class LongAnswers:
    """The answers one broker is making.

    :param now_ms: the clock.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._waiting: deque[tuple[Work, Deferred[Reply]]] = deque()

    def answer(self, work: Work) -> Handled:
        """Begin an answer.

        :returns: the reply, or a Deferred of it when others wait already or it takes long.
        """
        if not self._waiting:
            reply = self._advance(work)
            if reply is not None:
                return reply
        waiting: Deferred[Reply] = Deferred()
        self._waiting.append((work, waiting))
        return waiting

    def period_ms(self) -> int:
        """From one :meth:`step` to the next, ms."""
        return CONTINUE_PERIOD_MS if self._waiting else IDLE_PERIOD_MS

    def step(self, now_ms: int) -> None:
        """Go on with the answer that waits longest, for a slice; periodic."""
        if not self._waiting:
            return
        work, waiting = self._waiting.popleft()
        try:
            reply = self._advance(work)
        except Exception:
            waiting.errback()
            return
        if reply is None:
            self._waiting.append((work, waiting))
        else:
            waiting.callback(reply)

    def _advance(self, work: Work) -> Reply | None:
        end_ms = self._now_ms() + SLICE_MS
        try:
            while True:
                next(work)
                if self._now_ms() >= end_ms:
                    return None
        except StopIteration as done:
            reply: Reply = done.value
            return reply
