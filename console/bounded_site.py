"""The bounds of what a stranger can send: connections, and the time, size and fields of a request.

The reactor reads requests before anything is known about their sender, and ``twistmq up --console``
shares it with the broker.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.server import Request, Site

__all__ = ["CONNECTIONS_MAX", "FIELDS_MAX", "REQUEST_BYTES_MAX", "REQUEST_S", "BoundedSite"]

#: The size of the body of a request, bytes: a message of 256 KiB in which each byte is escaped.
REQUEST_BYTES_MAX: Final = 1024 * 1024
#: The fields of a form or an address. A form has 500 selected messages at most; a body full of
#: separators would occupy the reactor for half a second.
FIELDS_MAX: Final = 1_000
#: The open connections. Further ones are closed, so that files are left for the broker.
CONNECTIONS_MAX: Final = 500
#: The time in which a request must be complete, and after which an idle connection is closed,
#: seconds.
REQUEST_S: Final = 60


class _BoundedRequest(Request):
    """A request that is refused before its body is in memory, or its fields are read."""

    _body_bytes = 0

    def gotLength(self, length: int | None) -> None:
        if length is not None and length > REQUEST_BYTES_MAX:
            self._refuse(b"413 Content Too Large")
        else:
            super().gotLength(length)  # type: ignore[no-untyped-call]

    def handleContentChunk(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes <= REQUEST_BYTES_MAX:
            super().handleContentChunk(data)  # type: ignore[no-untyped-call]
        elif self._body_bytes - len(data) <= REQUEST_BYTES_MAX:
            self._refuse(b"413 Content Too Large")

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        content: Any = self.content
        content_type: Any = self.requestHeaders.getRawHeaders(b"content-type", [b""])
        if content_type[0].strip().lower().startswith(b"multipart/"):
            # The forms of the console have another type.
            self._refuse(b"415 Unsupported Media Type")
            return
        content.seek(0)
        body = content.read() if command == b"POST" else b""
        if body.count(b"&") + path.count(b"&") >= FIELDS_MAX:
            self._refuse(b"413 Content Too Large")
            return
        super().requestReceived(command, path, version)  # type: ignore[no-untyped-call]

    def _refuse(self, status: bytes) -> None:
        self._body_bytes = REQUEST_BYTES_MAX
        transport: Any = self.channel.transport
        transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
        transport.loseConnection()


class _Channel(HTTPChannel):
    """A connection whose requests have a time in which they must be complete.

    Twisted begins to count anew with each line, so a sender of single lines could stay for hours.
    """

    site: Any = None

    def resetTimeout(self) -> None:
        pass

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.site.connection_count -= 1
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class BoundedSite(Site):
    """A site that answers with a resource, within the bounds of this module.

    :ivar connection_count: the open connections.
    """

    displayTracebacks = False
    noisy = False
    protocol: Any = _Channel

    def __init__(self, resource: Any, reactor: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            resource, requestFactory=_BoundedRequest, timeout=REQUEST_S, reactor=reactor)
        self.connection_count = 0

    def log(self, request: Any) -> None:
        """Log nothing: the access log of Twisted would contain the token of the login address."""

    def buildProtocol(self, addr: Any) -> Any:
        if self.connection_count >= CONNECTIONS_MAX:
            return None
        self.connection_count += 1
        return super().buildProtocol(addr)  # type: ignore[no-untyped-call]
