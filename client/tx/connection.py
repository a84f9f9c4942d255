"""A Twisted connection: the socket, with optional TLS on top of it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twistmq.client.event_loop.driver import Driver
from twistmq.client.shell.tls import TlsPipe
from twistmq.protocol.addresses import CONNECT_ATTEMPT_DELAY_S

__all__ = ["ConnectionAttempt"]


class ConnectionAttempt:
    """A connection that is being opened, starting with :meth:`begin`.

    :param number: the number that the engine gave the connection.
    :param tls: the TLS context; None: the connection does not use TLS.
    :param ended: is called once, when the connection is open or has failed.

    The engine cancels the opening when it takes too long, including TLS.
    """

    def __init__(
        self, reactor: Any, driver: Driver, number: int, host_port: tuple[str, int],
        tls: ssl.SSLContext | None, ended: Callable[[], object],
    ) -> None:
        self._driver = driver
        self._number = number
        self._ended = ended
        self._is_over = False
        self._stream: Stream | None = None
        self._host = host_port[0]
        self._tls = tls
        self._endpoint = HostnameEndpoint(reactor, *host_port,
                                          attemptDelay=CONNECT_ATTEMPT_DELAY_S)
        self._connecting: Deferred[Any] | None = None

    def begin(self) -> None:
        """Connect."""
        factory = Factory.forProtocol(self._new_stream)
        factory.noisy = False
        self._connecting = self._endpoint.connect(factory)
        self._connecting.addErrback(lambda failure: self.failed(failure.getErrorMessage()))

    def _new_stream(self) -> Stream:
        pipe = None if self._tls is None else TlsPipe(self._tls, self._host)
        self._stream = Stream(self._driver, self._number, pipe, self)
        return self._stream

    def opened(self, stream: Stream, local_address: str) -> None:
        """The connection is open, including TLS."""
        if self._end():
            self._driver.connected(self._number, stream, local_address)

    def failed(self, reason: str) -> None:
        """The connection could not be opened."""
        if self._end():
            self._give_up()
            self._driver.lost(self._number, reason)

    def cancel(self) -> None:
        """Stop opening the connection."""
        if self._end():
            self._give_up()

    def _end(self) -> bool:
        if self._is_over:
            return False
        self._is_over = True
        self._ended()
        return True

    def _give_up(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        transport: Any = None if self._stream is None else self._stream.transport
        if transport is not None and self._stream is not None:
            if transport.connected:
                self._driver.closing(self._number, self._stream)
            transport.abortConnection()


@implementer(IPushProducer)
class _Unsent:
    """Counts the bytes given to a transport since its buffer became too full.

    A transport notifies its producer when the buffer is too full, and when all bytes are sent.
    """

    def __init__(self) -> None:
        self.is_full = False
        self.byte_count = 0

    def pauseProducing(self) -> None:
        """See ``IPushProducer``."""
        self.is_full = True

    def resumeProducing(self) -> None:
        """See ``IPushProducer``."""
        self.is_full = False
        self.byte_count = 0

    def stopProducing(self) -> None:
        """See ``IPushProducer``."""


class Stream(Protocol):
    """One connection, with or without TLS."""

    def __init__(
        self, driver: Driver, number: int, pipe: TlsPipe | None, opening: ConnectionAttempt
    ) -> None:
        self._driver = driver
        self._number = number
        self._pipe = pipe
        #: The opening of this connection; None once it is open.
        self._opening: ConnectionAttempt | None = opening
        self._unsent = _Unsent()

    def connectionMade(self) -> None:
        """See ``Protocol``."""
        transport: Any = self.transport
        transport.registerProducer(self._unsent, True)
        if self._pipe is None:
            self._opened()
        else:
            self._write(self._pipe.begin())

    def _opened(self) -> None:
        assert self.transport is not None
        address: Any = self.transport.getHost()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.opened(self, f"{address.host}:{address.port}")

    def dataReceived(self, data: bytes) -> None:
        """See ``Protocol``."""
        if self._pipe is None:
            self._driver.received(self._number, data)
            return
        try:
            plain, answer = self._pipe.received(data)
        except ssl.SSLError as error:
            self._failed(str(error))
            self.abort()
            return
        self._write(answer)
        if self._pipe.is_open:
            self._opened()
        if plain:
            self._driver.received(self._number, plain)

    def _failed(self, reason: str) -> None:
        if self._opening is None:
            self._driver.lost(self._number, reason)
        else:
            self._opening.failed(reason)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See ``Protocol``."""
        self._failed(reason.getErrorMessage())
        self._driver.closed(self._number)

    def _write(self, data: bytes) -> None:
        assert self.transport is not None
        if data:
            self.transport.write(data)
            if self._unsent.is_full:
                self._unsent.byte_count += len(data)

    def write(self, data: bytes) -> None:
        """See ``Stream`` of the driver."""
        self._write(data if self._pipe is None else self._pipe.sent(data))

    def unsent_bytes(self) -> int:
        """See ``Stream``."""
        return self._unsent.byte_count

    def abort(self) -> None:
        """See ``Stream``."""
        transport: Any = self.transport
        if transport is None:
            return
        transport.unregisterProducer()
        if self._unsent.is_full:
            # A close would wait for a server that does not read.
            transport.abortConnection()
        else:
            transport.loseConnection()

    def kill(self) -> None:
        """See ``Stream``."""
        transport: Any = self.transport
        if transport is not None:
            transport.abortConnection()
