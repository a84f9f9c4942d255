"""A question that is given up after some time, or when its asker stops."""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from twistmq.protocol.errors import RemotingError, RemotingTimeout

__all__ = ["BoundedQuestion"]

T = TypeVar("T")


class BoundedQuestion:
    """Waits for answers, to one question at a time."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._asking: Deferred[Any] | None = None

    async def answer(self, asking: Deferred[T], seconds: float, what: str = "no answer") -> T:
        """Wait for an answer; after the given seconds ``asking`` is cancelled.

        :raises RemotingTimeout: when it fails then, "``what`` within ``seconds`` s". Whatever else
            it fails with is raised as it is, CancelledError after :meth:`stop` too.
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
        """Wait for no answer any more: what is being asked fails."""
        if self._asking is not None:
            self._asking.cancel()
