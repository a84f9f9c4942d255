"""A bound port, and the list of all that the process has."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IProtocolFactory

from twistmq.broker.config.port_checks import LISTENING

__all__ = ["BoundPort"]

#: Connections that wait to be accepted; Twisted's own default.
_BACKLOG: Final = 50


class BoundPort:
    """A port that listens.

    :param port: 0 lets the system choose; ``port`` then holds the real one.
    :param interface: the address to bind to.
    :raises OSError: when the port cannot be bound.
    """

    def __init__(
        self, reactor: Any, factory: IProtocolFactory, port: int, interface: str,
        backlog: int = _BACKLOG,
    ) -> None:
        try:
            self._listening = reactor.listenTCP(port, factory, backlog, interface)
        except CannotListenError as error:
            raise error.socketError from None
        self.port: int = self._listening.getHost().port
        LISTENING.add(self.port)

    def stop(self) -> Deferred[None]:
        """Accept no more connections; those there are stay."""
        LISTENING.discard(self.port)
        stopped: Deferred[None] = maybeDeferred(self._listening.stopListening)
        return stopped
