"""The sessions of one account, or of a console with a token: one for each cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from threading import Lock
from typing import ClassVar

from twistmq.client.base.errors import Closed
from twistmq.console.page_session import PageSession

__all__ = ["ClusterSessions"]


class ClusterSessions:
    """Makes the session of a cluster when it is first needed; many threads may ask for it.

    :param makers: makes the session of each cluster, by name.
    :ivar serial: a number that no other sessions of this process have, also later.
    """

    _serials: ClassVar[Iterator[int]] = count()

    def __init__(self, makers: Mapping[str, Callable[[], PageSession]]) -> None:
        self.serial = next(self._serials)
        self._makers = makers
        self._lock = Lock()
        self._sessions: dict[str, PageSession] = {}
        self._is_closed = False

    def session_of(self, cluster: str) -> PageSession:
        """Return the session of a cluster.

        :raises Closed: when the sessions are closed.
        """
        with self._lock:
            if self._is_closed:
                raise Closed("the sessions are closed")
            session = self._sessions.get(cluster)
            if session is None:
                session = self._sessions[cluster] = self._makers[cluster]()
            return session

    def close(self) -> None:
        """Close all sessions; requests under way fail."""
        with self._lock:
            self._is_closed = True
            sessions = list(self._sessions.values())
            self._sessions.clear()
        for session in sessions:
            session.close()
