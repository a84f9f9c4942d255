"""Ports and connections of raw bytes that plugins own, such as those of replication.

A plugin brings a protocol factory of Twisted. Its connections count as all of the process do, and
so does the limit of them; whatever a plugin leaves open is closed when the broker stops.
Back-pressure is the protocol's own: it registers producers, or pauses its transport.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, cast

from twisted.internet.defer import Deferred, fail, gatherResults
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IAddress, IProtocol, IProtocolFactory
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure

from twistmq.broker.errors import RemotingConnectError
from twistmq.broker.net.bound_port import BoundPort
from twistmq.broker.net.limits import ConnectionCount

__all__ = ["StreamPort", "StreamPorts"]

_PORT_MAX: Final = 65_535


class _Connection(ProtocolWrapper):
    """A connection that is counted."""

    factory: _Connections

    def makeConnection(self, transport: Any) -> None:
        transport.setTcpNoDelay(True)
        self.factory.count.add()
        super().makeConnection(transport)  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.factory.count.remove()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class _Connections(WrappingFactory[_Connection]):
    """The connections that one factory of a plugin has."""

    noisy = False
    protocol = _Connection

    def __init__(self, factory: IProtocolFactory, count: ConnectionCount) -> None:
        super().__init__(factory)  # type: ignore[no-untyped-call]
        self.count = count
        #: Whether it has had no connection.
        self.is_new = True

    def buildProtocol(self, addr: IAddress | None) -> _Connection | None:  # type: ignore[override]
        """:returns: None, which closes the connection, when there are too many, or the plugin's
        factory gives none.
        """
        if not self.count.may_add():
            return None
        self.is_new = False
        wrapped = self.wrappedFactory.buildProtocol(addr)
        return None if wrapped is None else self.protocol(self, wrapped)

    def abort(self) -> None:
        """Cut off all connections."""
        for connection in list(self.protocols):
            cast(Any, connection.transport).abortConnection()


class StreamPort(BoundPort):
    """A port that listens.

    :param port: 0 lets the system choose; ``port`` then holds the real one.
    :param interface: the address to bind to.
    :raises OSError: when the port cannot be bound.
    """

    def __init__(
        self, reactor: Any, factory: IProtocolFactory, port: int, interface: str,
        count: ConnectionCount,
    ) -> None:
        self._connections = _Connections(factory, count)
        super().__init__(reactor, self._connections, port, interface)

    def stop(self) -> Deferred[None]:
        """Stop listening, and cut off the connections; a second time does nothing."""
        stopped = super().stop()
        self._connections.abort()
        return stopped


class StreamPorts:
    """The ports and connections of one broker's plugins.

    :param interface: the address to bind to where a plugin names none.
    :param count: the connections of the process.
    """

    def __init__(self, reactor: Any, interface: str, count: ConnectionCount) -> None:
        self._reactor = reactor
        self._interface = interface
        self._count = count
        self._ports: list[StreamPort] = []
        #: Each has one connection, or had one.
        self._outgoing: list[_Connections] = []
        self._connecting: dict[Deferred[Any], None] = {}

    def serve(
        self, factory: IProtocolFactory, port: int, interface: str | None = None
    ) -> StreamPort:
        """Listen; see :meth:`Host.serve_stream`."""
        opened = StreamPort(self._reactor, factory, port,
                            self._interface if interface is None else interface, self._count)
        self._ports.append(opened)
        return opened

    def connect(
        self, factory: IProtocolFactory, address: str, timeout_ms: int
    ) -> Deferred[IProtocol]:
        """Connect; see :meth:`Host.connect_stream`."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > _PORT_MAX:
            return fail(RemotingConnectError(f"{address!r} is no host:port"))
        endpoint = HostnameEndpoint(
            self._reactor, host.strip("[]"), int(port), timeout=timeout_ms / 1000)
        self._outgoing = [each for each in self._outgoing if each.protocols or each.is_new]
        connections = _Connections(factory, self._count)
        self._outgoing.append(connections)
        made: Deferred[Any] = endpoint.connect(connections)
        self._connecting[made] = None

        def connected(connection: _Connection) -> IProtocol:
            del self._connecting[made]
            return connection.wrappedProtocol

        def failed(failure: Failure) -> NoReturn:
            del self._connecting[made]
            self._outgoing.remove(connections)
            raise RemotingConnectError(
                f"cannot connect to {address}: {failure.value}") from failure.value

        return made.addCallbacks(connected, failed)

    async def stop(self) -> None:
        """Close all that plugins left open."""
        for made in list(self._connecting):
            made.cancel()
        for connections in self._outgoing:
            connections.abort()
        ports, self._ports = self._ports, []
        await gatherResults([port.stop() for port in ports])
