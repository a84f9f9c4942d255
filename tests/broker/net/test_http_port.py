"""The limits of a port that speaks HTTP."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from twistmq.broker.net import http_port
from twistmq.broker.net.http_port import HttpPort
from twistmq.broker.testing.in_process_broker import ReactorThread


class _Echo(Resource):
    """Answers with the data that it got, immediately or when the test asks for it."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self._came = threading.Semaphore(0)
        self._waiting: list[Any] = []

    def render_GET(self, request: Any) -> int:
        self._waiting.append(request)
        self._came.release()
        return NOT_DONE_YET

    def wait_for(self, count: int) -> None:
        """Wait until so many have asked."""
        for _ in range(count):
            assert self._came.acquire(timeout=20)

    def answer(self) -> None:
        """Answer the waiting requests."""
        for request in self._waiting:
            request.write(b"late")
            request.finish()
        self._waiting.clear()

    def render_POST(self, request: Any) -> bytes:
        return b"got %d" % len(request.content.read())


class HttpPortTests(SynchronousTestCase):
    """A port on its own reactor."""

    def setUp(self) -> None:
        self.thread = thread = ReactorThread()
        self.addCleanup(thread.stop)
        self.page = _Echo()
        self.port: HttpPort = thread.call(HttpPort, thread.reactor, self.page, 0, "127.0.0.1")
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
        """Megabytes are read and discarded; the connection continues."""
        connection = self.connect()
        for size in (0, 10, 4 << 20):
            self.assertEqual(self.asks(connection, bytes(size)), b"got 0", msg=str(size))

    def test_a_length_of_many_digits_ends_the_connection_and_nothing_else(self) -> None:
        """Otherwise each such request would write a traceback to the log."""
        other = self.connect()
        for digits in (4000, 5000):
            connection = self.connect()
            connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: "
                               + b"9" * digits + b"\r\n\r\n")
            if digits == 5000:
                self.assertIsEnded(connection)
        self.assertEqual(self.asks(other), b"got 0")
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_the_longest_waiting_connection_is_closed_beyond_the_limit(self) -> None:
        """The connection that has been idle longest is closed for a new one."""
        self.patch(http_port, "_CONNECTIONS_MAX", 3)
        first, half, third = (self.connect() for _ in range(3))
        for connection in (third, first):
            self.assertEqual(self.asks(connection), b"got 0")
        half.sendall(b"GET / HTTP/1.1\r\n")
        for ended in (half, third):
            self.assertEqual(self.asks(self.connect()), b"got 0")
            self.assertIsEnded(ended)
        self.assertEqual(self.asks(first), b"got 0")

    def test_all_are_answered(self) -> None:
        """A connection whose response is being prepared is not closed for a new one."""
        self.patch(http_port, "_CONNECTIONS_MAX", 3)
        connections = [self.connect() for _ in range(3)]
        for connection in connections:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.page.wait_for(3)
        self.assertIsEnded(self.connect())
        self.thread.call(self.page.answer)
        for connection in connections:
            self.assertIn(b"late", connection.recv(1 << 16))
            self.assertEqual(self.asks(connection), b"got 0")

    def test_many_at_a_time(self) -> None:
        """Some are answered; of more than that the rest is not even looked at."""
        one = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
        connection = self.connect()
        connection.sendall(one * http_port._REQUESTS_MAX)
        answers = b""
        while answers.count(b"got 0") < http_port._REQUESTS_MAX:
            answers += connection.recv(1 << 16)
        self.assertEqual(self.asks(connection), b"got 0")
        served: list[object] = []
        self.patch(self.page, "render_POST", lambda request: served.append(request) or b"")
        connection.sendall(one * 500)
        self.assertTrue(self.is_ended_soon(connection))
        self.assertLessEqual(len(served), http_port._REQUESTS_MAX)
        # Those that wait for an answer count as well.
        waiting = self.connect()
        waiting.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + one * 500)
        self.page.wait_for(1)
        self.thread.call(self.page.answer)
        self.assertTrue(self.is_ended_soon(waiting))
        self.assertLessEqual(len(served), 2 * http_port._REQUESTS_MAX)

    def is_ended_soon(self, connection: socket.socket) -> bool:
        """Whether the server ends a connection; its response is read before."""
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1 << 16):
                pass
        return True

    def test_slow_request(self) -> None:
        """A request must be complete in time, however often a part of it arrives."""
        self.patch(http_port, "_REQUEST_SECONDS", 0.2)
        for beginning in (b"GET / HTTP/1.1\r\n",
                          b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n"):
            slow, quick = self.connect(), self.connect()
            self.assertEqual(self.asks(slow), b"got 0")
            slow.sendall(beginning)
            slow.setblocking(False)
            deadline = time.monotonic() + 20
            while not self.is_ended(slow):
                self.assertLess(time.monotonic(), deadline)
                self.assertEqual(self.asks(quick), b"got 0")
                with contextlib.suppress(OSError):
                    slow.sendall(b"a: b\r\n")
            self.assertEqual(self.asks(quick), b"got 0")

    def test_slow_answer(self) -> None:
        """The time-out is for the request only, and not for its response."""
        self.patch(http_port, "_REQUEST_SECONDS", 0.1)
        connection = self.connect()
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.page.wait_for(1)
        passed = threading.Event()
        self.thread.call(self.thread.reactor.callLater, 0.3, passed.set)
        self.assertTrue(passed.wait(20))
        self.thread.call(self.page.answer)
        self.assertIn(b"late", connection.recv(1 << 16))

    def assertIsEnded(self, connection: socket.socket) -> None:
        """Check that the server ends a connection."""
        with contextlib.suppress(ConnectionResetError):
            self.assertEqual(connection.recv(1), b"")

    def is_ended(self, connection: socket.socket) -> bool:
        """Whether the server has ended one that does not block."""
        try:
            return connection.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def test_port_in_use(self) -> None:
        """The error of the system gives the reason."""
        thread = ReactorThread()
        self.addCleanup(thread.stop)
        error = self.assertRaises(OSError, thread.call, HttpPort, thread.reactor, _Echo(),
                                  self.port.port, "127.0.0.1")
        self.assertTrue(error.strerror)
