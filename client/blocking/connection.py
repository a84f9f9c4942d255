"""A blocking connection to one server, without a thread, for tests, tools and checks.

A connection belongs to the thread that uses it. Several requests may be sent before their responses
arrive (:meth:`Connection.begin`). The connection stays usable after a time-out.

Source: NettyRemotingClient.invokeSync @5.3.3.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

from twistmq.client.base.errors import (
    ConnectTimeout,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
)
from twistmq.client.core.connection.link import Link, Outcome, Request
from twistmq.protocol.addresses import split_address
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.frame import JSON
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.signature import Credentials

__all__ = ["Connection"]

#: The number of bytes per read; the response to a pull then arrives in few pieces.
_READ_SIZE: Final = 1 << 20


class Connection:
    """A connection to a broker or a name server.

    :param address: "host:port".
    :param timeout_s: the time-out of each response, seconds.
    :param connect_timeout_s: the time-out of connecting, including TLS; None: ``timeout_s``.
    :param credentials: the account that signs the requests; None: requests are not signed.
    :param tls: the TLS context that wraps the connection; None: the connection is not encrypted.
    :raises RemotingConnectError: when no connection can be made; the text states the reason.

    ``requests`` holds the requests that the server sent in the meantime.
    """

    def __init__(
        self, address: str, timeout_s: float = 10.0, *, connect_timeout_s: float | None = None,
        credentials: Credentials | None = None, tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.requests: list[RemotingCommand] = []
        self._socket = _connect(
            address, timeout_s if connect_timeout_s is None else connect_timeout_s, tls)
        self._link = Link(address, credentials)
        self._link.opened()
        self._replies: dict[int, Outcome] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def begin(
        self, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        oneway: bool = False, serialize_type: int = JSON,
    ) -> int:
        """Send a request.

        :returns: the opaque of the request, for :meth:`reply`.
        :raises RemotingSendError: when the connection is lost.
        """
        if oneway:
            self._link.send_oneway(code, header, body)
            self._send(self._link.take_output())
            return 0
        opaques: list[int] = []

        def replied(outcome: Outcome) -> None:
            if opaques:
                self._replies[opaques[0]] = outcome

        opaques.append(self._link.request(code, header, body, replied, None).opaque)
        data = self._link.take_output()
        if serialize_type != JSON:
            data = encode_request(code, opaques[0], header, body, serialize_type=serialize_type)
        self._send(data)
        return opaques[0]

    def begin_frames(self, frames: bytes, opaques: Iterable[int]) -> None:
        """Send frames that are already encoded, and keep the responses with these opaques.

        :raises RemotingSendError: when the connection is lost.
        """
        for opaque in opaques:
            def replied(outcome: Outcome, opaque: int = opaque) -> None:
                self._replies[opaque] = outcome

            self._link.waiting[opaque] = Request(0, opaque, b"", replied)
        self._send(frames)

    def reply(self, opaque: int, timeout_s: float | None = None) -> RemotingCommand:
        """Wait for the response to a request.

        :raises RemotingTimeout: when the response does not arrive in time.
        :raises RemotingSendError: when the connection is lost first.
        """
        try:
            self._receive_until(lambda: opaque in self._replies, timeout_s)
        except RemotingTimeout:
            self.forget(opaque)
            raise
        outcome = self._replies.pop(opaque)
        if isinstance(outcome, RemotingCommand):
            return outcome
        raise outcome

    def forget(self, opaque: int) -> None:
        """Discard the response to a request, now or when it arrives."""
        if self._replies.pop(opaque, None) is None:
            self._link.forget(opaque)

    def request(
        self, code: int, header: CommandHeader | None = None, body: bytes = b"",
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request and wait for its response, which is returned whatever its code is."""
        return self.reply(self.begin(code, header, body), timeout_s)

    def wait_for_request(self, code: int) -> RemotingCommand:
        """Wait until the server sends a request with this code; :returns: the request."""
        matching: list[RemotingCommand] = []

        def take() -> bool:
            matching.extend([command for command in self.requests if command.code == code][:1])
            return bool(matching)

        self._receive_until(take, None)
        self.requests.remove(matching[0])
        return matching[0]

    def answer(self, request: RemotingCommand, code: int, body: bytes = b"") -> None:
        """Answer a request that the server sent.

        :raises RemotingSendError: when the connection is lost.
        """
        self._link.answer(request, code, None, body)
        self._send(self._link.take_output())

    def _send(self, data: bytes) -> None:
        if self._link.failure is not None:
            raise self._link.failure
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            raise RemotingSendError(f"the connection was lost: {error}") from None

    def _receive_until(self, is_there: Callable[[], bool], timeout_s: float | None) -> None:
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while not is_there():
            if self._link.failure is not None:
                raise self._link.failure
            self._receive(deadline)

    def _receive(self, deadline: float) -> None:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise RemotingTimeout("no reply in time")
        try:
            self._socket.settimeout(remaining_s)
            data = self._socket.recv(_READ_SIZE)
        except TimeoutError:
            raise RemotingTimeout("no reply in time") from None
        except OSError as error:
            raise RemotingSendError(f"the connection was lost: {error}") from None
        if not data:
            raise RemotingSendError("the server closed the connection")
        self.requests += self._link.received(data)


def _connect(address: str, timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    try:
        host, port = split_address(address)
        connection = socket.create_connection((host, port), timeout_s)
    except TimeoutError:
        raise ConnectTimeout(f"connect to {address} failed: it takes too long") from None
    except (OSError, ValueError) as error:
        raise RemotingConnectError(f"connect to {address} failed: {error}") from None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection if tls is None else tls.wrap_socket(connection, server_hostname=host)
    except OSError as error:
        connection.close()
        raise RemotingConnectError(f"TLS with {address} failed: {error}") from None
