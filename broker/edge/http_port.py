"""A port that speaks HTTP, for pages of plugins: few connections, small requests, no log."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.server import Request, Site

__all__ = ["HttpPort"]

#: Whoever watches needs one or two, and a person a few more.
_CONNECTIONS_MAX: Final = 64
#: A connection that is silent for so long is closed, seconds.
_IDLE_SECONDS: Final = 60


class _Request(Request):
    """A request whose body nobody reads: it is not kept either."""

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """Forget a part of the body."""


class _Site(Site):
    """The pages of one port; nobody reads a line for each scrape, so there is no log of them."""

    noisy = False

    def startFactory(self) -> None:
        """Do without the clock of a log."""

    def stopFactory(self) -> None:
        """See above."""

    def log(self, request: object) -> None:
        """See above."""


class _Connections(WrappingFactory[ProtocolWrapper]):
    """The connections of one port; one too many is closed."""

    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> ProtocolWrapper | None:  # type: ignore[override]
        if len(self.protocols) >= _CONNECTIONS_MAX:
            return None
        return super().buildProtocol(addr)


class HttpPort:
    """Serves a resource of twisted.web.

    :param port: 0 lets the system choose; ``port`` then holds the real one.
    :param interface: the address to bind to.
    :raises OSError: when the port cannot be had.
    """

    def __init__(self, reactor: Any, resource: Any, port: int, interface: str) -> None:
        site = _Site(  # type: ignore[no-untyped-call]
            resource, requestFactory=_Request, timeout=_IDLE_SECONDS, reactor=reactor)
        self._connections = _Connections(site)  # type: ignore[no-untyped-call]
        try:
            self._listening = reactor.listenTCP(port, self._connections, interface=interface)
        except CannotListenError as error:
            raise error.socketError from None
        self.port: int = self._listening.getHost().port

    def stop(self) -> Deferred[None]:
        """Listen no more, and cut off the connections there are."""
        stopped: Deferred[None] = maybeDeferred(self._listening.stopListening)
        for protocol in list(self._connections.protocols):
            protocol.transport.abortConnection()
        return stopped
