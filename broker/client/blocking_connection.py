"""One connection for code that has no reactor: plain calls, replies matched by opaque.

Requests may be sent ahead of their replies (:meth:`BlockingConnection.begin`), which is what makes
it fast. It belongs to one thread. A time-out leaves the connection usable: a reply that comes too
late is dropped.

Source: NettyRemotingClient.invokeSync, AclClientRPCHook @5.3.3.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Final, Self

from twistmq.broker.errors import (
    HeaderError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
)
from twistmq.broker.wire.addresses import split_address
from twistmq.broker.wire.command import (
    VERSION,
    RemotingCommand,
    decode_command,
    encode_reply,
    encode_request,
)
from twistmq.broker.wire.frame import JSON, FrameDecoder
from twistmq.broker.wire.header import CommandHeader, ext_fields_of
from twistmq.broker.wire.signature import Credentials, signed_fields

__all__ = ["BlockingConnection"]

#: Bytes one read asks for: a pull's reply comes in few pieces.
_READ_SIZE: Final = 1 << 20


class BlockingConnection:
    """One connection to a broker or a name server.

    :param address: "host:port".
    :param timeout_s: bound on each reply, seconds.
    :param connect_timeout_s: bound on connecting, TLS included; None: ``timeout_s``.
    :param credentials: what requests are signed with.
    :param tls: what the connection is wrapped in.
    :raises RemotingConnectError: when no connection can be made; the text says why.

    ``requests`` holds what the server asked or told meanwhile.
    """

    def __init__(
        self, address: str, timeout_s: float = 10.0, *, connect_timeout_s: float | None = None,
        credentials: Credentials | None = None, tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.requests: list[RemotingCommand] = []
        self._credentials = credentials
        self._socket = _connect(
            address, timeout_s if connect_timeout_s is None else connect_timeout_s, tls)
        self._decoder = FrameDecoder()
        self._replies: dict[int, RemotingCommand] = {}
        #: Opaques of replies that are not wanted any more.
        self._given_up: set[int] = set()
        self._opaques = count(1)

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

        :returns: its opaque, for :meth:`reply`.
        :raises RemotingSendError: when the connection is lost.
        """
        opaque = next(self._opaques)
        if self._credentials is None:
            frame = encode_request(code, opaque, header, body, oneway=oneway,
                                   serialize_type=serialize_type)
        else:
            fields = signed_fields(ext_fields_of(header) if header else {}, body, VERSION,
                                   self._credentials)
            frame = encode_request(code, opaque, None, body, oneway=oneway,
                                   serialize_type=serialize_type, extra_fields=fields)
        self._send(frame)
        return opaque

    def reply(self, opaque: int, timeout_s: float | None = None) -> RemotingCommand:
        """Wait for the reply to a request.

        :raises RemotingTimeout: when it does not come in time.
        :raises RemotingSendError: when the connection is lost first.
        """
        try:
            self._receive_until(lambda: opaque in self._replies, timeout_s)
        except RemotingTimeout:
            self.forget(opaque)
            raise
        return self._replies.pop(opaque)

    def forget(self, opaque: int) -> None:
        """Drop the reply to a request, now or when it comes."""
        if self._replies.pop(opaque, None) is None:
            self._given_up.add(opaque)

    def request(
        self, code: int, header: CommandHeader | None = None, body: bytes = b"",
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request and wait for its reply, whatever its code."""
        return self.reply(self.begin(code, header, body), timeout_s)

    def wait_for_request(self, code: int) -> RemotingCommand:
        """Wait until the server sends a request of this code; :returns: it."""
        found: list[RemotingCommand] = []

        def take() -> bool:
            found.extend([command for command in self.requests if command.code == code][:1])
            return bool(found)

        self._receive_until(take, None)
        self.requests.remove(found[0])
        return found[0]

    def answer(self, request: RemotingCommand, code: int, body: bytes = b"") -> None:
        """Answer a request that the server sent.

        :raises RemotingSendError: when the connection is lost.
        """
        self._send(encode_reply(code, request.opaque, None, body, None))

    def _send(self, frame: bytes) -> None:
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(frame)
        except OSError as error:
            raise RemotingSendError(f"the connection was lost: {error}") from None

    def _receive_until(self, is_there: Callable[[], bool], timeout_s: float | None) -> None:
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while not is_there():
            self._receive(deadline)

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RemotingTimeout("no reply in time")
        try:
            self._socket.settimeout(left)
            data = self._socket.recv(_READ_SIZE)
        except TimeoutError:
            raise RemotingTimeout("no reply in time") from None
        except OSError as error:
            raise RemotingSendError(f"the connection was lost: {error}") from None
        if not data:
            raise RemotingSendError("the server closed the connection")
        for frame in self._decoder.feed(data):
            try:
                command = decode_command(frame)
            except HeaderError as error:
                raise RemotingSendError(f"the server's answer cannot be read: {error}") from None
            if not command.is_response:
                self.requests.append(command)
            elif command.opaque in self._given_up:
                self._given_up.remove(command.opaque)
            else:
                self._replies[command.opaque] = command
        if self._decoder.failure:
            raise RemotingSendError(self._decoder.failure)


def _connect(address: str, timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    try:
        host, port = split_address(address)
        connection = socket.create_connection((host, port), timeout_s)
    except TimeoutError:
        raise RemotingConnectError(f"connect to {address} failed: timed out") from None
    except (OSError, ValueError) as error:
        raise RemotingConnectError(f"connect to {address} failed: {error}") from None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection if tls is None else tls.wrap_socket(connection, server_hostname=host)
    except OSError as error:
        connection.close()
        raise RemotingConnectError(f"TLS with {address} failed: {error}") from None
