"""Work that would hold the reactor for long is done in slices, and the reactor serves other clients
in between.

Such work is a generator: it yields wherever it can pause, and returns its result. Most of it is
done within its first slice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from twistmq.broker.remoting.messages import Handled, Reply

__all__ = ["CONTINUE_PERIOD_MS", "IDLE_PERIOD_MS", "NOT_DONE", "SLICE_MS", "SlicedWork",
           "advance", "now_or_later"]

T = TypeVar("T")

#: The reactor is held for about so long, ms; a handler may hold it for 10.
SLICE_MS: Final = 4
#: From one slice to the next, ms.
CONTINUE_PERIOD_MS: Final = 8
#: How soon work that did not fit into its first slice is seen, ms.
IDLE_PERIOD_MS: Final = 50

#: How a slice of work ended: it is not done; it is, with a result.
NOT_DONE: Final = object()


class SlicedWork:
    """The long work of one kernel; pieces take turns.

    :param now_ms: the clock.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._waiting: deque[tuple[Generator[None, None, Any], Deferred[Any]]] = deque()

    def run(self, work: Generator[None, None, T]) -> Deferred[T]:
        """Begin work.

        :returns: fires with what the work returns; it has fired when one slice was enough and
            nothing waited before it.
        """
        if not self._waiting:
            try:
                result = advance(work, self._now_ms)
            except Exception:
                return fail()
            if result is not NOT_DONE:
                return succeed(result)
        done: Deferred[T] = Deferred()
        self._waiting.append((work, done))
        return done

    def period_ms(self) -> int:
        """From one :meth:`step` to the next, ms."""
        return CONTINUE_PERIOD_MS if self._waiting else IDLE_PERIOD_MS

    def step(self, now_ms: int) -> None:
        """Go on with the work that waits longest, for a slice; periodic."""
        if not self._waiting:
            return
        work, done = self._waiting.popleft()
        try:
            result = advance(work, self._now_ms)
        except Exception:
            done.errback()
            return
        if result is NOT_DONE:
            self._waiting.append((work, done))
        else:
            done.callback(result)

    def finish(self) -> None:
        """Do all that waits, however long it takes; for the end."""
        while self._waiting:
            self.step(self._now_ms())


def advance(
    work: Generator[None, None, Any], now_ms: Callable[[], int], slice_ms: int = SLICE_MS
) -> Any:
    """Go on with a piece of work for a slice.

    :returns: what the work returned; NOT_DONE while it goes on.
    """
    end_ms = now_ms() + slice_ms
    try:
        while True:
            next(work)
            if now_ms() >= end_ms:
                return NOT_DONE
    except StopIteration as done:
        return done.value


def now_or_later(reply: Deferred[Any]) -> Handled:
    """The reply, if it is there already: it goes out in its request's turn.

    :raises Exception: what the Deferred failed with, if it did.
    """
    results: list[Any] = []

    def keep(result: Any) -> Any:
        results.append(result)
        return result

    reply.addBoth(keep)
    if not results:
        return reply
    if isinstance(results[0], Failure):
        reply.addErrback(lambda _: None)
        results[0].raiseException()
    answer: Reply = results[0]
    return answer
