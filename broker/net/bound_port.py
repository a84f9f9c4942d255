"""A bound port, and the list of all bound ports of the process."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IProtocolFactory

from twistmq.broker.config.port_checks import LISTENING

__all__ = ["BoundPort"]

#: The number of connections that may wait to be accepted; Twisted's own default.
_BACKLOG: Final = 50


class BoundPort:
    """A listening port.

    :param port: 0 lets the system choose; ``port`` then holds the actual number.
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
        """Stop accepting connections; existing connections stay open."""
        LISTENING.discard(self.port)
        stopped: Deferred[None] = maybeDeferred(self._listening.stopListening)
        return stopped
