"""A query that is given up after some time, or when its caller stops."""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from twistmq.protocol.errors import RemotingError, RemotingTimeout

__all__ = ["BoundedQuery"]

T = TypeVar("T")


class BoundedQuery:
    """Waits for answers, to one query at a time."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._asking: Deferred[Any] | None = None

    async def answer(self, asking: Deferred[T], seconds: float, what: str = "no answer") -> T:
        """Wait for an answer; after the given number of seconds ``asking`` is cancelled.

        :raises RemotingTimeout: when it fails because of that, with the text "``what`` within
            ``seconds`` s". Any other exception is raised unchanged, including the CancelledError
            that :meth:`stop` causes.
        """
        self._asking = asking
        timeout = self._reactor.callLater(seconds, asking.cancel)
        try:
            return await asking
        except RemotingError:
            raise
        except Exception:
            if timeout.active():
                raise
            raise RemotingTimeout(f"{what} within {seconds} s") from None
        finally:
            self._asking = None
            if timeout.active():
                timeout.cancel()

    def stop(self) -> None:
        """Stop waiting for an answer: the query in progress fails."""
        if self._asking is not None:
            self._asking.cancel()
