"""The TLS layer between a connection's transport and its protocol.

Twisted's ``TLSMemoryBIOProtocol`` encrypts and decrypts in memory. Here it works next to the
protocol, not as its transport: the protocol still pauses, counts and closes the socket itself,
because a TLS transport has no event for an empty write buffer and would poll a pull producer.

The bytes of one read are decrypted together before the protocol receives them. Requests sent
together are therefore one batch, as without TLS, and the layer buffers no input when ``IdleSpin``
asks the reactor which sockets are readable.

Source: NettyRemotingServer.TlsModeHandler, NettyRemotingClient @5.3.3; twisted.protocols.tls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IHandshakeListener
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twistmq.broker.constants import TLS_HANDSHAKE_SECONDS

if TYPE_CHECKING:
    from twistmq.broker.net.protocol import RemotingProtocol

__all__ = ["TlsLayer"]

#: The error of a handshake that did not end in time.
TOO_SLOW: Final = "the handshake takes too long"


class TlsLayer(Protocol):
    """The layer of one connection; it is the transport's protocol.

    ``failure`` states why TLS ended the connection, or is empty.
    ``handshake`` fires with None when the handshake is done, or fails with the reason it ended.

    :param connection: the connection to encrypt.
    :param make: makes Twisted's protocol around another one.
    :param describe: describes why TLS ended the connection; "" if it was not an error of TLS.
    :param fail: called with a connection that TLS ended, and the reason.
    """

    def __init__(
        self, connection: RemotingProtocol, make: Callable[[Protocol], Any],
        describe: Callable[[Failure], str], fail: Callable[[RemotingProtocol, str], None],
    ) -> None:
        self.connection = connection
        self.failure = ""
        self.handshake: Deferred[None] = Deferred()
        self._describe = describe
        self._fail = fail
        self._tls = make(_Inside(self))
        self._timeout: IDelayedCall | None = None
        #: Decrypted and encrypted bytes of the current call; None outside of a call.
        self._plain: list[bytes] | None = None
        self._encrypted: list[bytes] | None = None
        self._ended = False

    def begin(self, data: bytes) -> None:
        """Begin the handshake.

        :param data: bytes that the peer has sent already.
        """
        self._timeout = self.connection.factory.reactor.callLater(
            TLS_HANDSHAKE_SECONDS, self._too_slow)
        self._tls.makeConnection(_Outside(self))
        if data:
            self.dataReceived(data)

    # --- the transport's side

    def dataReceived(self, data: bytes) -> None:
        """Decrypt the bytes of a read, and pass them on in one piece."""
        connection = self.connection
        plain: list[bytes] = []
        self._plain = plain
        try:
            self._tls.dataReceived(data)
        finally:
            self._plain = None
        if plain and connection.active and not connection.closing:
            connection.dataReceived(b"".join(plain))
        if self._ended:
            connection.close()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._tls.connectionLost(reason)

    # --- the protocol's side

    def encrypt(self, data: bytes) -> bytes:
        """:returns: the encrypted bytes to send."""
        encrypted: list[bytes] = []
        self._encrypted = encrypted
        try:
            self._tls.write(data)
        finally:
            self._encrypted = None
        return b"".join(encrypted)

    def end(self) -> None:
        """Send the peer a TLS close alert; the connection is being closed."""
        if not self._ended:
            self._ended = True
            self._tls.loseConnection()

    def fail_verification(self, why: str) -> None:
        """Record why the peer's certificate is refused; the handshake then fails."""
        self.failure = self.failure or why

    # --- called by Twisted's protocol for the two sides

    def send(self, data: bytes) -> None:
        if self._encrypted is not None:
            self._encrypted.append(data)
        else:
            self.connection.write_encrypted(data)

    def end_layer(self) -> None:
        """TLS has ended: by the peer's close alert, or by an error."""
        self._ended = True
        if self._plain is None:
            self.connection.close()

    def receive(self, data: bytes) -> None:
        # Bytes decrypted after the connection is lost are dropped.
        if self._plain is not None:
            self._plain.append(data)

    def handshake_done(self) -> None:
        self._stop_timeout()
        self.connection.handshake_done()
        self.handshake.callback(None)

    def lost(self, reason: Failure) -> None:
        self._stop_timeout()
        if not self.failure:
            self.failure = self._describe(reason)
        if self.failure:
            self._fail(self.connection, self.failure)
        if not self.handshake.called:
            self.handshake.errback(reason)
            # A client that waits for the handshake has its own errback; a server does not wait.
            self.handshake.addErrback(lambda _: None)
        self.connection.connectionLost(reason)

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _too_slow(self) -> None:
        self._timeout = None
        self.failure = TOO_SLOW
        self.connection.cut_off()


@implementer(IHandshakeListener)
class _Inside(Protocol):
    """The protocol inside Twisted's TLS protocol: receives decrypted bytes."""

    def __init__(self, layer: TlsLayer) -> None:
        self.layer = layer

    def handshakeCompleted(self) -> None:
        self.layer.handshake_done()

    def dataReceived(self, data: bytes) -> None:
        self.layer.receive(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.layer.lost(reason)


class _Outside:
    """The transport of Twisted's TLS protocol: sends encrypted bytes."""

    def __init__(self, layer: TlsLayer) -> None:
        self.layer = layer

    def write(self, data: bytes) -> None:
        self.layer.send(data)

    def loseConnection(self) -> None:
        self.layer.end_layer()

    def abortConnection(self) -> None:
        """Abort a handshake in progress; the connection is then closed by the protocol."""
        self.layer.end_layer()
