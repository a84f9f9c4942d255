"""An HTTP port for pages of plugins: few connections, small requests, no access log."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocol
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.server import Request, Site

from twistmq.broker.net.bound_port import BoundPort

__all__ = ["HttpPort"]

#: A monitoring system needs one or two connections, a browser a few more.
_CONNECTIONS_MAX: Final = 64
#: A connection that sends no request for this time is closed, seconds.
_IDLE_SECONDS: Final = 60
#: A request must be complete within this time, seconds; usually it is one packet.
_REQUEST_SECONDS: Final = 10
#: The number of requests of one connection in one read. A monitoring system sends one request at a
#: time; thousands in one read would block the reactor for seconds.
_REQUESTS_MAX: Final = 8


class _Request(Request):
    """A request whose body is neither read nor kept.

    It notifies its connection when it is complete and when it is answered.
    """

    def process(self) -> None:
        connection = cast(_Connection, self.channel.transport)
        connection.request_came()
        if not connection.ended:
            super().process()  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        connection = cast(_Connection, self.channel.transport)
        super().finish()  # type: ignore[no-untyped-call]
        connection.request_answered()

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """Discard a part of the body."""


class _Site(Site):
    """The pages of one port, without an access log: a line for each scrape would be useless."""

    noisy = False

    def startFactory(self) -> None:
        """Do not start the clock of an access log."""

    def stopFactory(self) -> None:
        """Do nothing, as in ``startFactory``."""

    def log(self, request: object) -> None:
        """Do nothing, because requests are not logged."""


class _Connection(ProtocolWrapper):
    """A connection that is closed when a request is too slow, or too many come in one read.

    ``waits`` is True while none of its requests is being answered; ``ended`` is True once it was
    closed.
    """

    def __init__(self, factory: _Connections, wrapped_protocol: IProtocol) -> None:
        super().__init__(factory, wrapped_protocol)
        self._reactor = factory.reactor
        self._coming: IDelayedCall | None = None
        self.waits = True
        self.ended = False
        #: The number of requests in the last read.
        self._count = 0

    def dataReceived(self, data: bytes) -> None:
        if self.waits and self._coming is None:
            self._coming = self._reactor.callLater(_REQUEST_SECONDS, self.end)
        self._count = 0
        try:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
        except ValueError:
            # Twisted converts a length with ``int``, which refuses more than 4,300 digits.
            self.end()

    def request_came(self) -> None:
        """Handle the completion of a request."""
        self.waits = False
        self._forget_time()
        self._count += 1
        if self._count > _REQUESTS_MAX:
            self.end()

    def request_answered(self) -> None:
        """Handle the end of an answer; the next request may come."""
        self.waits = True
        # It moves to the end of the waiting connections.
        if self.factory.protocols.pop(self, None) is not None:
            self.factory.protocols[self] = 1

    def end(self) -> None:
        """Abort the connection."""
        self.ended = True
        # Twisted then ignores the remainder of the read.
        self.disconnecting = 1
        cast(Any, self.transport).abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self._forget_time()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def _forget_time(self) -> None:
        coming, self._coming = self._coming, None
        if coming is not None and coming.active():
            coming.cancel()


class _Connections(WrappingFactory[_Connection]):
    """The connections of one port; those that wait for a request are in order of waiting time.

    If there are too many, the connection that has waited longest is closed. If all of them have a
    request in progress, the new one is closed.
    """

    noisy = False
    protocol = _Connection

    def __init__(self, site: Site, reactor: Any) -> None:
        super().__init__(site)  # type: ignore[no-untyped-call]
        self.reactor = reactor

    def buildProtocol(self, addr: IAddress | None) -> _Connection | None:  # type: ignore[override]
        connections = [connection for connection in self.protocols if not connection.ended]
        if len(connections) >= _CONNECTIONS_MAX:
            longest = next((connection for connection in connections if connection.waits), None)
            if longest is None:
                return None
            longest.end()
        return super().buildProtocol(addr)


class HttpPort(BoundPort):
    """Serves a resource of twisted.web.

    :param port: 0 lets the system choose; ``port`` then holds the actual number.
    :param interface: the address to bind to.
    :raises OSError: when the port cannot be bound.
    """

    def __init__(self, reactor: Any, resource: Any, port: int, interface: str) -> None:
        site = _Site(  # type: ignore[no-untyped-call]
            resource, requestFactory=_Request, timeout=_IDLE_SECONDS, reactor=reactor)
        self._connections = _Connections(site, reactor)
        super().__init__(reactor, self._connections, port, interface)

    def stop(self) -> Deferred[None]:
        """Stop listening, and abort the connections."""
        stopped = super().stop()
        for protocol in list(self._connections.protocols):
            protocol.transport.abortConnection()
        return stopped
