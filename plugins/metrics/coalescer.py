"""Makes a page once for all requests that ask for it at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

__all__ = ["Coalescer"]

T = TypeVar("T")


class Coalescer(Generic[T]):
    """Makes a page. A request that arrives while the page is being made gets the same page.

    :param make: fires with the page. A failure is logged here, once.
    """

    log = Logger()

    def __init__(self, make: Callable[[], Deferred[T]]) -> None:
        self._make = make
        #: The requests that wait for the page that is being made; None when no page is.
        self._waiting: list[Deferred[T]] | None = None

    def __call__(self) -> Deferred[T]:
        """Return the page as it is now."""
        answer: Deferred[T] = Deferred()
        if self._waiting is not None:
            self._waiting.append(answer)
            return answer
        self._waiting = [answer]
        maybeDeferred(self._make).addBoth(self._made)
        return answer

    def _made(self, result: T | Failure) -> None:
        waiting, self._waiting = self._waiting, None
        if isinstance(result, Failure):
            self.log.failure("the page could not be made", failure=result)
        for answer in waiting or ():
            if isinstance(result, Failure):
                answer.errback(result)
            else:
                answer.callback(result)
