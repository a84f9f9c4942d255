"""The connections of a member to its group, as the node of the member uses them."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred

from twistmq.raft.messages import Request, Response

__all__ = ["GroupLinks"]


class GroupLinks(Protocol):
    """The port for the other members, and the connections to them.

    The node knows neither addresses nor connections, so a simulation may take the place of the
    network.
    """

    def ask(self, peer: str, request: Request, *, bulk: bool) -> Deferred[Response]:
        """Send a request to a member, over a new connection if necessary.

        :param bulk: whether the request may be large, so that others must not wait for it.
        :returns: fires with the response. Fails with RemotingError when there will be none: at once
            if the member cannot be reached or has too many requests to answer, otherwise when the
            connection is lost or the member does not answer in time.
        """

    def tick(self, now_ms: int = 0) -> None:
        """Give up requests that are not answered in time; called several times a second."""

    def rest_ms(self) -> int | None:
        """Return how long ``tick`` has nothing to do, ms; None while no request waits."""

    def close(self) -> Deferred[None] | None:
        """Close the port and all connections; requests that wait fail.

        :returns: a Deferred that fires when the port is closed; None if it was not open.
        """
