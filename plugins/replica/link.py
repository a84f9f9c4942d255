"""A connection of replication that writes its bytes to the socket in the same turn.

A replica waits for each report of another one, so a write that waits for the next round of the
reactor delays the acknowledgement of messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPushProducer, ISSLTransport
from twisted.internet.protocol import Protocol
from zope.interface import implementer

__all__ = ["Link"]


@implementer(IPushProducer)
class Link(Protocol):
    """A connection whose bytes are passed to the operating system at once, as far as it takes them.

    Over TLS they wait in the transport until the reactor has served other connections.
    """

    transport: Any

    def __init__(self) -> None:
        #: Whether bytes wait in the transport, and whether it encrypts them.
        self.is_full = False
        self.is_encrypted = False
        #: Writes as many bytes as the socket takes; see twisted.internet.tcp.Connection.
        self._write_some: Callable[[bytes], int | Exception] | None = None

    def connectionMade(self) -> None:
        # A transport that wraps another one, as TLS does, lacks this method.
        self._write_some = getattr(self.transport, "writeSomeData", None)
        # A plain transport calls its producer when all bytes are sent. A TLS transport does not
        # know that; it calls its producer when too many bytes wait, and when enough of them left.
        self.is_encrypted = ISSLTransport.providedBy(self.transport)
        self.transport.registerProducer(self, self.is_encrypted)

    def write_soon(self, data: bytes) -> None:
        """Send bytes; the ones that the socket does not take wait in the transport."""
        if not self.is_full and self._write_some is not None:
            # Writing directly saves another round of the reactor.
            written_size = self._write_some(data)
            if written_size == len(data):
                return
            if isinstance(written_size, int):
                data = data[written_size:]
        self.is_full = not self.is_encrypted
        self.transport.write(data)

    def pauseProducing(self) -> None:
        """Called when too many bytes wait in a TLS transport."""
        self.is_full = True

    def resumeProducing(self) -> None:
        """Called when the transport has sent all its bytes, or enough of them."""
        self.is_full = False

    def stopProducing(self) -> None:
        """Called when the connection is lost."""
        self.is_full = True
