"""Ports and connections of raw bytes that plugins own, for example to replicate the log.

A plugin provides a protocol factory of Twisted. Its connections count towards the number and the
limit of connections of the process, and all connections that a plugin leaves open are closed when
the broker stops. Back-pressure is the task of the protocol: it registers producers, or pauses its
transport. Over TLS it must register push producers, because a TLS transport is not notified when
its buffer is empty.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, cast

from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IAddress, IHandshakeListener, IProtocol, IProtocolFactory
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from twistmq.broker.errors import SettingsError
from twistmq.broker.net.bound_port import BoundPort
from twistmq.broker.net.limits import ConnectionCount
from twistmq.broker.net.tls import StreamTls
from twistmq.protocol.addresses import CONNECT_ATTEMPT_DELAY_S, split_address
from twistmq.protocol.errors import RemotingConnectError, RemotingError

__all__ = ["StreamPort", "StreamPorts"]

#: Methods of a TCP transport that write past TLS.
_PAST_TLS: Final = frozenset(("writeSomeData", "doWrite"))


@implementer(IHandshakeListener)
class _Connection(ProtocolWrapper):
    """A counted connection.

    ``handshake`` fires with None when TLS can be used, or fails with the reason why it cannot.
    """

    factory: _Connections

    def __init__(self, factory: _Connections, wrapped: IProtocol) -> None:
        super().__init__(factory, wrapped)
        self.handshake: Deferred[None] = Deferred()
        self._refused = ""

    def __getattr__(self, name: str) -> Any:
        # These methods write to the socket, past TLS.
        if name in _PAST_TLS and self.factory.tls is not None:
            raise AttributeError(name)
        return super().__getattr__(name)  # type: ignore[no-untyped-call]

    def makeConnection(self, transport: Any) -> None:
        transport.setTcpNoDelay(True)
        self.factory.count.add()
        super().makeConnection(transport)  # type: ignore[no-untyped-call]

    @property
    def layer(self) -> _Connection:
        """The object that the verifier informs when it refuses the peer's certificate."""
        return self

    def fail_verification(self, why: str) -> None:
        """Record why the peer's certificate is refused; the handshake then fails."""
        self._refused = self._refused or why

    def handshakeCompleted(self) -> None:
        self.handshake.callback(None)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.factory.count.remove()
        tls = self.factory.tls
        why = "" if tls is None else self._refused or tls.describe(reason)
        if why:
            reason = Failure(RemotingError(f"TLS: {why}"))
        if not self.handshake.called:
            self.handshake.addErrback(lambda _: None)
            self.handshake.errback(reason)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class _Connections(WrappingFactory[_Connection]):
    """The connections of one factory of a plugin.

    :param tls: encrypts the connections; None if they are plain.
    """

    noisy = False
    protocol = _Connection

    def __init__(
        self, factory: IProtocolFactory, count: ConnectionCount, tls: StreamTls | None
    ) -> None:
        super().__init__(factory)  # type: ignore[no-untyped-call]
        self.count = count
        self.tls = tls
        #: Whether it has not had a connection yet.
        self.is_new = True

    def buildProtocol(self, addr: IAddress | None) -> _Connection | None:  # type: ignore[override]
        """Make the protocol of a connection.

        :returns: None, so that Twisted closes the connection, if there are too many connections or
            the plugin's factory does not make a protocol.
        """
        if not self.count.may_add():
            return None
        self.is_new = False
        wrapped = self.wrappedFactory.buildProtocol(addr)
        return None if wrapped is None else self.protocol(self, wrapped)

    def abort(self) -> None:
        """Abort all connections."""
        for connection in list(self.protocols):
            cast(Any, connection.transport).abortConnection()


def _too_slow(result: Any, seconds: float) -> Any:
    """Return the result of a handshake that has ended or exceeded its time."""
    if isinstance(result, Failure) and result.check(CancelledError):
        raise RemotingError(f"TLS: the handshake takes more than {seconds:g} s")
    return result


class StreamPort(BoundPort):
    """A listening port for raw bytes.

    :param port: 0 lets the system choose; ``port`` then holds the actual number.
    :param interface: the address to bind to.
    :param tls: encrypts the connections; None if they are plain.
    :raises OSError: when the port cannot be bound.
    :raises SettingsError: when TLS cannot be used.
    """

    def __init__(
        self, reactor: Any, factory: IProtocolFactory, port: int, interface: str,
        count: ConnectionCount, tls: StreamTls | None,
    ) -> None:
        self._connections = _Connections(factory, count, tls)
        super().__init__(
            reactor, self._connections if tls is None else tls.serving(self._connections), port,
            interface)

    def stop(self) -> Deferred[None]:
        """Stop listening, and abort the connections; a second call does nothing."""
        stopped = super().stop()
        self._connections.abort()
        return stopped


class StreamPorts:
    """The ports and connections of one broker's plugins.

    :param interface: the address to bind to if a plugin does not name one.
    :param count: the connections of the process.
    :param tls: encrypts connections on request.
    """

    def __init__(
        self, reactor: Any, interface: str, count: ConnectionCount, tls: StreamTls
    ) -> None:
        self._reactor = reactor
        self._tls = tls
        self._interface = interface
        self._count = count
        self._ports: list[StreamPort] = []
        #: Outgoing connections; each of these has, or had, one connection.
        self._outgoing: list[_Connections] = []
        self._connecting: dict[Deferred[Any], None] = {}

    def serve(
        self, factory: IProtocolFactory, port: int, interface: str | None = None, *,
        encrypted: bool = False,
    ) -> StreamPort:
        """Listen; see :meth:`Host.serve_stream`."""
        opened = StreamPort(self._reactor, factory, port,
                            self._interface if interface is None else interface, self._count,
                            self._tls if encrypted else None)
        self._ports.append(opened)
        return opened

    def connect(
        self, factory: IProtocolFactory, address: str, timeout_ms: int, *, encrypted: bool = False
    ) -> Deferred[IProtocol]:
        """Connect; see :meth:`Host.connect_stream`."""
        try:
            host, port = split_address(address)
        except ValueError as error:
            return fail(RemotingConnectError(str(error)))
        connections = _Connections(factory, self._count, self._tls if encrypted else None)
        try:
            outer = self._tls.connecting(connections, host) if encrypted else connections
        except SettingsError as error:
            return fail(RemotingConnectError(f"TLS: {error}"))
        self._outgoing = [each for each in self._outgoing if each.protocols or each.is_new]
        self._outgoing.append(connections)
        attempt: Deferred[Any] = HostnameEndpoint(
               self._reactor, host, port, timeout=timeout_ms / 1000,
               attemptDelay=CONNECT_ATTEMPT_DELAY_S).connect(outer)
        if encrypted:
            attempt.addCallback(self._shake_hands, timeout_ms)
        self._connecting[attempt] = None

        def connected(connection: _Connection) -> IProtocol:
            del self._connecting[attempt]
            return connection.wrappedProtocol

        def failed(failure: Failure) -> NoReturn:
            del self._connecting[attempt]
            self._outgoing.remove(connections)
            raise RemotingConnectError(
                f"cannot connect to {address}: {failure.value}") from failure.value

        return attempt.addCallbacks(connected, failed)

    def _shake_hands(self, tls: Any, timeout_ms: int) -> Deferred[_Connection]:
        """Wait until TLS can be used.

        :param tls: Twisted's protocol around the connection.
        """
        connection: _Connection = tls.wrappedProtocol

        def abort(result: Failure) -> NoReturn:
            tls.abortConnection()
            why = result.value
            raise why if isinstance(why, RemotingError) else RemotingError(
                "TLS: the connection was closed during the handshake") from why

        handshake: Deferred[None] = connection.handshake
        handshake.addTimeout(timeout_ms / 1000, self._reactor, _too_slow)
        return handshake.addCallbacks(lambda _: connection, abort)

    async def stop(self) -> None:
        """Close all ports and connections that plugins left open."""
        for attempt in list(self._connecting):
            attempt.cancel()
        for connections in self._outgoing:
            connections.abort()
        ports, self._ports = self._ports, []
        await gatherResults([port.stop() for port in ports])
