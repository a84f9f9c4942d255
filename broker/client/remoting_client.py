"""A client for other servers of the protocol, with one shared connection to each address.

Source: NettyRemotingClient (invokeSync, getAndCreateChannel, createChannel), AclClientRPCHook
@5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IReactorPluggableNameResolver, IReactorTCP, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.net.connection_close import close_connection
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.protocol import RemotingProtocol
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.messages import Channel
from twistmq.protocol.addresses import CONNECT_ATTEMPT_DELAY_S, split_address
from twistmq.protocol.command import VERSION, RemotingCommand
from twistmq.protocol.errors import RemotingConnectError, RemotingTimeout
from twistmq.protocol.header import CommandHeader, ext_fields_of
from twistmq.protocol.signature import Credentials, signed_fields

if TYPE_CHECKING:
    from twistmq.broker.net.tls import TlsClient

__all__ = ["RemotingClient"]


class IClientReactor(IReactorTCP, IReactorTime, IReactorPluggableNameResolver):
    """The parts of a reactor that the client needs."""


class RemotingClient:
    """Sends requests to addresses.

    :param dispatcher: serves requests that the peer sends over these connections.
    :param connect_timeout_ms: the time-out of a connection attempt, including the TLS handshake.
    :param tls: encrypts the connections; None if they are plain.
    :param credentials: the account that signs the requests; None if they are not signed.
    """

    log = Logger()

    def __init__(
        self, reactor: IClientReactor, now_ms: Callable[[], int], monotonic: Callable[[], float],
        dispatcher: Dispatcher, connect_timeout_ms: int = 3000,
        tls: TlsClient | None = None, credentials: Credentials | None = None,
    ) -> None:
        self._reactor = reactor
        self._connect_timeout_ms = connect_timeout_ms
        self._tls = tls
        self._credentials = credentials
        self._factory = RemotingFactory(reactor, dispatcher, ChannelTable(), now_ms, monotonic,
                                        first_bytes=(), passes_over_long_replies=True)
        self._factory.channels.on_lost.append(self._lost)
        self._connections: dict[str, RemotingProtocol] = {}
        self._connecting: dict[str, list[Deferred[RemotingProtocol]]] = {}
        #: The connection attempts in progress, by address.
        self._attempts: dict[str, Deferred[Any]] = {}
        self._closed = False

    async def invoke(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """Send a request and wait for its reply; the time-out includes the connection attempt.

        :raises RemotingConnectError: when no connection can be made.
        :raises RemotingTimeout: when the reply does not come in time.
        :raises RemotingSendError: when the connection is lost first.
        :raises RemotingTooLong: when request or reply is longer than a frame. The connection stays
            open, because a name server takes it as a sign that the broker lives.
        """
        begin = self._reactor.seconds()
        connection = await self._connection(address)
        left_ms = timeout_ms - int((self._reactor.seconds() - begin) * 1000)
        if left_ms <= 0:
            raise RemotingTimeout(f"{address} did not answer in time")
        header, fields = self._signed(header, body)
        return await connection.call(code, header, body, timeout_ms=left_ms, extra_fields=fields)

    async def invoke_oneway(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a one-way request.

        :param timeout_ms: the request is not sent if the connection takes longer than this.
        :raises RemotingConnectError: when the connection cannot be made.
        :raises RemotingTimeout: when it takes too long.
        """
        begin = self._reactor.seconds()
        connection = await self._connection(address)
        if timeout_ms is not None and (self._reactor.seconds() - begin) * 1000 > timeout_ms:
            raise RemotingTimeout(f"the connection to {address} was not made in time")
        header, fields = self._signed(header, body)
        connection.send_oneway(code, header, body, extra_fields=fields)

    def _signed(
        self, header: CommandHeader | None, body: bytes
    ) -> tuple[CommandHeader | None, dict[str, str] | None]:
        """Return the header of a request, or all its fields including the signature."""
        if self._credentials is None:
            return header, None
        fields = ext_fields_of(header) if header is not None else {}
        return None, signed_fields(fields, body, VERSION, self._credentials)

    def close(self) -> Deferred[list[None]]:
        """Close all connections and cancel connection attempts; fires when all are closed.

        A server that does not read cannot delay this, see ``close_connection``.
        """
        self._closed = True
        for attempt in list(self._attempts.values()):
            attempt.cancel()
        return gatherResults([close_connection(connection, self._factory)
                              for connection in list(self._connections.values())])

    async def _connection(self, address: str) -> RemotingProtocol:
        """Return the live connection to an address; several callers share one attempt."""
        if self._closed:
            raise RemotingConnectError(f"connect to {address} failed: the client is closed")
        connection = self._connections.get(address)
        if connection is not None and connection.active and not connection.closing:
            return connection
        waiting: Deferred[RemotingProtocol] = Deferred()
        first = address not in self._connecting
        self._connecting.setdefault(address, []).append(waiting)
        if first:
            self._connect(address)
        return await waiting

    def _connect(self, address: str) -> None:
        try:
            host, port = split_address(address)
        except ValueError as error:
            self._failed(Failure(error), address)
            return
        endpoint = HostnameEndpoint(self._reactor, host, port,
                                    timeout=self._connect_timeout_ms / 1000,
                                    attemptDelay=CONNECT_ATTEMPT_DELAY_S)
        attempt: Deferred[Any] = endpoint.connect(self._factory)
        if self._tls is not None:
            attempt.addCallback(self._tls.secure, address)
        timeout = self._reactor.callLater(self._connect_timeout_ms / 1000, attempt.cancel)
        self._attempts[address] = attempt

        def finished(result: RemotingProtocol | Failure) -> RemotingProtocol | Failure:
            del self._attempts[address]
            if timeout.active():
                timeout.cancel()
            return result

        attempt.addBoth(finished)
        attempt.addCallbacks(self._connected, self._failed, callbackArgs=(address,),
                             errbackArgs=(address,))

    def _connected(self, connection: RemotingProtocol, address: str) -> None:
        self._connections[address] = connection
        for waiting in self._connecting.pop(address):
            waiting.callback(connection)

    def _failed(self, failure: Failure, address: str) -> None:
        reason = failure.getErrorMessage()
        if failure.check(CancelledError, ConnectingCancelledError):
            reason = "the client is closed" if self._closed else "timed out"
        for waiting in self._connecting.pop(address):
            waiting.errback(RemotingConnectError(f"connect to {address} failed: {reason}"))

    def _lost(self, channel: Channel) -> None:
        for address, connection in list(self._connections.items()):
            if connection is channel:
                del self._connections[address]
