"""Connections of raw bytes that plugins own."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.port_checks import LISTENING
from twistmq.broker.errors import RemotingConnectError
from twistmq.broker.net.limits import ConnectionCount
from twistmq.broker.net.stream_ports import StreamPort, StreamPorts
from twistmq.broker.testing.running import ReactorThread


class _Echo(Protocol):
    """Says what it hears."""

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class _Hearing(Protocol):
    """Fires when so many bytes were heard, and when the connection is lost."""

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


class StreamPortsTests(SynchronousTestCase):
    """Ports and connections on a reactor of their own."""

    timeout = 60

    def setUp(self) -> None:
        self.thread = thread = ReactorThread()
        self.addCleanup(thread.stop)
        self.maximum = 100
        self.count = ConnectionCount(lambda: self.maximum)
        self.streams = StreamPorts(thread.reactor, "127.0.0.1", self.count)
        self.addCleanup(self.stop)
        self.port: StreamPort = thread.call(
            self.streams.serve, Factory.forProtocol(_Echo), 0)

    def stop(self) -> None:
        self.thread.call(lambda: ensureDeferred(self.streams.stop()))

    def connect(self, port: int | None = None) -> Any:
        address = f"127.0.0.1:{self.port.port if port is None else port}"
        return self.thread.call(
            self.streams.connect, Factory.forProtocol(_Hearing), address, 5000)

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
        """A plugin stops its own; a second time does nothing."""
        protocol = self.connect()
        for _ in range(2):
            self.thread.call(self.port.stop)
        self.thread.call(lambda: protocol.lost)

    def test_beyond_the_limit_connections_are_closed(self) -> None:
        """Those that come and those that are to be made."""
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
        """It is refused before anything is looked up."""
        for address in ("", "host", "host:", "host:x", ":1", "host:70000"):
            error = self.assertRaises(
                RemotingConnectError, self.thread.call, self.streams.connect,
                Factory.forProtocol(_Hearing), address, 1000)
            self.assertIn("is no host:port", str(error))
