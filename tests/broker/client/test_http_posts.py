"""HTTP requests that send data."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from twistmq.broker.client.http_posts import post_http
from twistmq.protocol.errors import RemotingConnectError, RemotingTimeout


class PostTests(TestCase):
    """Requests to a real HTTP server."""

    timeout = 30

    def setUp(self) -> None:
        """Start a server that answers with a long text."""
        self.bodies: list[tuple[str, str | None, bytes]] = []
        case = self

        class Handler(BaseHTTPRequestHandler):
            """Records each request."""

            def do_POST(self) -> None:
                """Refuse the request after reading it."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                case.bodies.append((self.path, self.headers["X-Token"], body))
                self.send_response(429)
                self.end_headers()
                self.wfile.write(b"x" * 100_000)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Log nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1?a=b"

    async def test_the_status_is_returned_and_the_text_is_not_read(self) -> None:
        """The server receives the body and the headers."""
        body = b"y" * 300_000
        self.assertEqual(await post_http(reactor, self.url, {"X-Token": "t"}, body, 20_000), 429)
        self.assertEqual(self.bodies, [("/v1?a=b", "t", body)])

    async def test_no_server(self) -> None:
        """The error gives the reason."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        error = await self.assertFailure(Deferred.fromCoroutine(
            post_http(reactor, f"http://127.0.0.1:{port}/", {}, b"", 20_000)), RemotingConnectError)
        self.assertIn("refused", str(error))

    async def test_a_server_that_does_not_answer(self) -> None:
        """The request ends after its time-out."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            error = await self.assertFailure(Deferred.fromCoroutine(post_http(
                reactor, f"http://127.0.0.1:{silent.getsockname()[1]}/", {}, b"", 100)),
                RemotingTimeout)
        self.assertEqual(str(error), "no answer within 0.1 s")
