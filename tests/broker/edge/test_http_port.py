"""A port that speaks HTTP: what of it is bounded."""

from __future__ import annotations

import socket
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource

from twistmq.broker.edge import http_port
from twistmq.broker.edge.http_port import HttpPort
from twistmq.broker.testing.running import ReactorThread


class _Echo(Resource):
    """Says what it got."""

    isLeaf = True

    def render_POST(self, request: Any) -> bytes:
        return b"got %d" % len(request.content.read())


class HttpPortTests(SynchronousTestCase):
    """A port on a reactor of its own."""

    timeout = 60

    def setUp(self) -> None:
        thread = ReactorThread()
        self.addCleanup(thread.stop)
        self.port: HttpPort = thread.call(HttpPort, thread.reactor, _Echo(), 0, "127.0.0.1")
        self.addCleanup(thread.call, self.port.stop)

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port.port), 10)
        self.addCleanup(connection.close)
        return connection

    def asks(self, connection: socket.socket, body: bytes = b"") -> bytes:
        """Send a body; :returns: the answer's last line."""
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                           + body)
        return connection.recv(1 << 16).rpartition(b"\n")[2]

    def test_bodies_are_not_kept(self) -> None:
        """Megabytes are read and forgotten; the connection goes on."""
        connection = self.connect()
        for size in (0, 10, 4 << 20):
            self.assertEqual(self.asks(connection, bytes(size)), b"got 0", msg=str(size))

    def test_connections(self) -> None:
        """One too many is closed, the others go on, and one that ends makes room."""
        self.patch(http_port, "_CONNECTIONS_MAX", 3)
        connections = [self.connect() for _ in range(3)]
        for connection in connections:
            self.assertEqual(self.asks(connection), b"got 0")
        self.assertEqual(self.connect().recv(1), b"")
        self.assertEqual(self.asks(connections[0]), b"got 0")
        connections[0].close()
        while True:
            try:
                if self.asks(self.connect()) == b"got 0":
                    return
            except (ConnectionResetError, BrokenPipeError):
                continue

    def test_port_in_use(self) -> None:
        """An error of the system's, which says why."""
        thread = ReactorThread()
        self.addCleanup(thread.stop)
        error = self.assertRaises(OSError, thread.call, HttpPort, thread.reactor, _Echo(),
                                  self.port.port, "127.0.0.1")
        self.assertTrue(error.strerror)
