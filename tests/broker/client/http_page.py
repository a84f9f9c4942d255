"""A real HTTP server with one page, on its own thread."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

__all__ = ["HttpPage"]


class _Server(ThreadingHTTPServer):
    """A server whose connections end when the client's do, or when ``is_over`` says so."""

    block_on_close = True
    daemon_threads = True

    def __init__(self, page: HttpPage) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page = page

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error, because some tests are about clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.page.requests.append(self.path)
        self.server.page.answer(self)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


class HttpPage:
    """The server; ``stop`` ends it.

    :param text: what the page says.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.status = 200
        #: Headers beside the length.
        self.headers: dict[str, str] = {}
        #: Paths that were asked for.
        self.requests: list[str] = []
        #: Answers a request; a test may put its own here.
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self._say
        self.is_over = Event()
        self._server = _Server(self)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _say(self, handler: BaseHTTPRequestHandler) -> None:
        data = self.text.encode()
        handler.send_response(self.status)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)
