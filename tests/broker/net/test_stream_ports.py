"""Connections of raw bytes that belong to plugins."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred, maybeDeferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.certificates import Authority
from twistmq.broker.config.port_checks import LISTENING
from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.clock import now_ms
from twistmq.broker.errors import SettingsError
from twistmq.broker.net.limits import ConnectionCount
from twistmq.broker.net.stream_ports import StreamPort, StreamPorts
from twistmq.broker.net.tls import PortSecurity, StreamTls
from twistmq.broker.testing.in_process_broker import ReactorThread
from twistmq.protocol.addresses import CONNECT_ATTEMPT_DELAY_S
from twistmq.protocol.errors import RemotingConnectError, RemotingError


class _Echo(Protocol):
    """Sends back the bytes that it receives."""

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class _RefusingReactor(MemoryReactorClock):
    """Refuses each connection at once."""

    def connectTCP(self, host: str, port: int, factory: Any, *arguments: Any) -> Any:
        connector = super().connectTCP(host, port, factory, *arguments)
        factory.clientConnectionFailed(connector, Failure(ConnectionRefusedError()))
        return connector


class RefusalTests(SynchronousTestCase):
    """A connection that the other host refuses."""

    def test_it_is_reported_at_once(self) -> None:
        """Twisted's usual delay between attempts, 0.3 s, would delay each fail-over."""
        reactor = _RefusingReactor()
        settings = Settings.load(broker_rows(), None, {})
        tls = StreamTls(reactor, settings, PortSecurity(reactor, settings, now_ms, maybeDeferred))
        streams = StreamPorts(reactor, "127.0.0.1", ConnectionCount(lambda: 10), tls)
        attempt = streams.connect(Factory.forProtocol(_Echo), "127.0.0.1:9", 3000)
        reactor.advance(CONNECT_ATTEMPT_DELAY_S)
        self.failureResultOf(attempt, RemotingConnectError)


class _Hearing(Protocol):
    """Fires when a number of bytes was received, and when the connection is lost."""

    def __init__(self) -> None:
        self.heard = b""
        self.waiting: tuple[int, Deferred[bytes]] | None = None
        self.lost: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.heard += data
        self._look()

    def wait(self, size: int) -> Deferred[bytes]:
        done: Deferred[bytes] = Deferred()
        self.waiting = size, done
        self._look()
        return done

    def _look(self) -> None:
        if self.waiting is not None and len(self.heard) >= self.waiting[0]:
            (_, done), self.waiting = self.waiting, None
            done.callback(self.heard)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.lost.callback(None)


class _Flood(Protocol):
    """A producer of many bytes that never sends more than the transport accepts."""

    PIECE = b"a piece of a flood of bytes " * 1000

    def __init__(self) -> None:
        self.left = 60
        self.is_paused = False
        self.pauses = 0
        self.lost: Deferred[BaseException | None] = Deferred()

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.registerProducer(self, True)
        self.resumeProducing()

    def resumeProducing(self) -> None:
        self.is_paused = False
        assert self.transport is not None
        while self.left and not self.is_paused:
            self.left -= 1
            self.transport.write(self.PIECE)

    def pauseProducing(self) -> None:
        self.is_paused = True
        self.pauses += 1

    def stopProducing(self) -> None:
        self.left = 0

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.lost.callback(reason.value)


class StreamPortsCase(SynchronousTestCase):
    """Ports and connections on a reactor of their own."""

    encrypted = False
    settings: Mapping[str, str] = {}

    def setUp(self) -> None:
        self.thread = thread = ReactorThread()
        self.addCleanup(thread.stop)
        self.maximum = 100
        self.count = ConnectionCount(lambda: self.maximum)
        self.streams = StreamPorts(
            thread.reactor, "127.0.0.1", self.count, self.tls(thread.reactor))
        self.addCleanup(self.stop)
        self.port: StreamPort = self.serve(Factory.forProtocol(_Echo))

    def serve(self, factory: Any) -> Any:
        return self.thread.call(lambda: self.streams.serve(factory, 0, encrypted=self.encrypted))

    def tls(self, reactor: Any) -> StreamTls:
        """The TLS of a broker with this test's settings."""
        settings = Settings.load(broker_rows(), None, self.settings)
        return StreamTls(reactor, settings, PortSecurity(reactor, settings, now_ms, maybeDeferred))

    def stop(self) -> None:
        self.thread.call(lambda: ensureDeferred(self.streams.stop()))

    def connect(self, port: int | None = None, timeout_ms: int = 5000) -> Any:
        address = f"127.0.0.1:{self.port.port if port is None else port}"
        return self.thread.call(lambda: self.streams.connect(
            Factory.forProtocol(_Hearing), address, timeout_ms, encrypted=self.encrypted))


class StreamPortsTests(StreamPortsCase):
    """Ports without TLS."""

    def test_both_ends_are_connected_and_counted(self) -> None:
        """The port is bound with the broker's address; both connections are of this process."""
        self.assertIn(self.port.port, LISTENING)
        protocol = self.connect()
        self.thread.call(protocol.transport.write, b"hello")
        self.assertEqual(self.thread.call(protocol.wait, 5), b"hello")
        self.assertEqual(self.thread.call(lambda: self.count.count), 2)
        self.thread.call(protocol.transport.loseConnection)
        self.thread.call(lambda: protocol.lost)
        again = self.connect()
        self.thread.call(again.transport.write, b"again")
        self.assertEqual(self.thread.call(again.wait, 5), b"again")
        self.assertEqual(self.thread.call(lambda: self.count.count), 2)

    def test_a_stop_closes_all_that_is_open(self) -> None:
        """Ports, connections to them and connections that were made."""
        protocol = self.connect()
        self.stop()
        self.thread.call(lambda: protocol.lost)
        self.assertNotIn(self.port.port, LISTENING)
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.1", self.port.port), 5).close()
        error = self.assertRaises(RemotingConnectError, self.connect)
        self.assertIn(f"cannot connect to 127.0.0.1:{self.port.port}", str(error))

    def test_a_port_that_stops_closes_its_connections(self) -> None:
        """A plugin stops its own connections; a second stop does nothing."""
        protocol = self.connect()
        for _ in range(2):
            self.thread.call(self.port.stop)
        self.thread.call(lambda: protocol.lost)

    def test_beyond_the_limit_connections_are_closed(self) -> None:
        """The limit is for accepted and for outgoing connections."""
        self.maximum = 0
        with socket.create_connection(("127.0.0.1", self.port.port), 20) as client:
            self.assertEqual(client.recv(1), b"")
        self.assertRaises(RemotingConnectError, self.connect)
        self.assertEqual(self.thread.call(lambda: self.count.count), 0)

    def test_a_factory_may_refuse_a_peer(self) -> None:
        """A peer that is on no list, for one: its connection is closed without a byte."""

        class Picky(Factory):
            def buildProtocol(self, addr: IAddress | None) -> None:
                return None

        port = self.thread.call(self.streams.serve, Picky(), 0, "127.0.0.1")
        with socket.create_connection(("127.0.0.1", port.port), 20) as client:
            self.assertEqual(client.recv(1), b"")

    def test_a_port_that_is_taken(self) -> None:
        """The error of the system is raised."""
        self.assertRaises(OSError, self.thread.call, self.streams.serve,
                          Factory.forProtocol(_Echo), self.port.port)

    def test_an_address_that_is_none(self) -> None:
        """The address is refused before a look-up."""
        for address in ("", "host", "host:", "host:x", ":1", "host:70000"):
            error = self.assertRaises(
                RemotingConnectError, self.thread.call, self.streams.connect,
                Factory.forProtocol(_Hearing), address, 1000)
            self.assertIn("is not host:port", str(error))


class EncryptedStreamTests(StreamPortsCase):
    """Ports and connections with TLS."""

    encrypted = True

    def setUp(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        self.authority, self.other = Authority(folder), Authority(folder, "other")
        pair = self.authority.pair("server")
        self.settings = {
            "tls.server.certPath": str(pair.cert), "tls.server.keyPath": str(pair.key),
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(self.authority.cert)}
        super().setUp()

    def trust(self, authority: Authority) -> None:
        """Let connections that are made trust an authority from now on."""
        self.settings = {**self.settings, "tls.client.trustCertPath": str(authority.cert)}
        self.streams._tls = self.tls(self.thread.reactor)

    def test_bytes_are_encrypted(self) -> None:
        """The other end receives the bytes, and nothing writes them past TLS."""
        protocol = self.connect()
        self.thread.call(protocol.transport.write, b"hello")
        self.assertEqual(self.thread.call(protocol.wait, 5), b"hello")
        self.assertEqual(self.thread.call(lambda: self.count.count), 2)
        # A method of TCP's transport would send them as they are.
        self.assertRaises(AttributeError, getattr, protocol.transport, "writeSomeData")
        self.assertEqual(protocol.transport.getPeer().port, self.port.port)

    def test_a_producer_is_paused_and_goes_on(self) -> None:
        """All bytes arrive in order, and most of them waited at their producer."""
        floods: list[_Flood] = []

        class Floods(Factory):
            def buildProtocol(self, addr: IAddress | None) -> _Flood:
                floods.append(_Flood())
                return floods[0]

        protocol = self.connect(self.serve(Floods()).port)
        size = 60 * len(_Flood.PIECE)
        self.assertEqual(self.thread.call(protocol.wait, size), _Flood.PIECE * 60)
        self.assertGreater(floods[0].pauses, 5)

    def test_a_certificate_that_is_not_trusted(self) -> None:
        """The connection fails with the reason; the next one is served."""
        self.trust(self.other)
        error = self.assertRaises(RemotingConnectError, self.connect)
        self.assertIn("TLS: its certificate CN=server is refused: its issuer is not trusted",
                      str(error))
        self.trust(self.authority)
        self.connect()

    def test_a_peer_without_tls(self) -> None:
        """It gets no byte of the protocol, and the error gives the reason."""
        flood = _Flood()

        class One(Factory):
            def buildProtocol(self, addr: IAddress | None) -> _Flood:
                return flood

        port = self.serve(One())
        with socket.create_connection(("127.0.0.1", port.port), 20) as client:
            client.sendall(bytes(100))
            said = b""
            while data := client.recv(1000):
                said += data
        self.assertNotIn(b"flood", said)
        reason = self.thread.call(lambda: flood.lost)
        self.assertIsInstance(reason, RemotingError)
        self.assertIn("TLS: ", str(reason))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_a_server_that_does_not_answer_a_handshake(self) -> None:
        """The connection fails after its time-out; one to a server without TLS fails at once."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            error = self.assertRaises(
                RemotingConnectError, self.connect, silent.getsockname()[1], 200)
        self.assertIn("TLS: the handshake takes more than 0.2 s", str(error))
        self.encrypted = False
        plain = self.serve(Factory.forProtocol(_Flood))
        self.encrypted = True
        error = self.assertRaises(RemotingConnectError, self.connect, plain.port)
        self.assertIn("TLS: ", str(error))

    def test_a_factory_may_refuse_a_peer(self) -> None:
        class Picky(Factory):
            def buildProtocol(self, addr: IAddress | None) -> None:
                return None

        with socket.create_connection(("127.0.0.1", self.serve(Picky()).port), 20) as client:
            self.assertEqual(client.recv(1), b"")
        self.assertEqual(self.thread.call(lambda: self.count.count), 0)

    def test_a_stop_closes_all_that_is_open(self) -> None:
        protocol = self.connect()
        self.stop()
        self.thread.call(lambda: protocol.lost)
        self.assertEqual(self.thread.call(lambda: self.count.count), 0)

    def test_settings_that_do_not_allow_it(self) -> None:
        """A port is not opened; a connection is not made."""
        self.settings = {"tls.server.mode": "disabled", "tls.client.authServer": "true",
                         "tls.client.trustCertPath": "/no/such/file"}
        self.streams._tls = self.tls(self.thread.reactor)
        self.assertRaises(SettingsError, self.serve, Factory.forProtocol(_Echo))
        error = self.assertRaises(RemotingConnectError, self.connect)
        self.assertIn("/no/such/file", str(error))
