"""A socket of the blocking client, with optional TLS, which is read and written without blocking.

A :class:`ClientSocket` is made when the engine requests a connection. It is registered in the
selector of ``twistmq.client.blocking.loop`` as soon as it begins to connect, and it passes the
received bytes to the engine.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twistmq.client.core.connection.engine import Engine

if TYPE_CHECKING:
    import ssl

__all__ = ["ClientSocket"]

log = logging.getLogger("twistmq.client")

#: The number of bytes per read.
_READ_SIZE: Final = 1 << 18
#: The bytes that may wait for a server that does not read; beyond that the connection is closed.
_UNSENT_MAX: Final = 256 << 20
#: Errors of a socket that has nothing to read or no room to write. They are given by name, so that
#: a program without TLS does not load the TLS module, which takes five MiB.
_NOT_READY: Final = frozenset({"BlockingIOError", "SSLWantReadError", "SSLWantWriteError"})


def _is_not_ready(error: OSError) -> bool:
    return type(error).__name__ in _NOT_READY


class ClientSocket:
    """The socket of one connection.

    :param number: the number that the engine gave the connection.
    :param host: the server's name, which its certificate must match.
    :param tls: the TLS context; None: the connection does not use TLS.
    :param dropped: is called when the socket is closed.
    """

    __slots__ = ("_dropped", "_host", "_is_connected", "_offset", "_secure", "_selector",
                 "_socket", "_tls", "_unsent", "_unsent_bytes", "_watched_events", "engine",
                 "number")

    def __init__(
        self, engine: Engine, number: int, host: str, tls: ssl.SSLContext | None,
        selector: selectors.BaseSelector, dropped: Callable[[ClientSocket], object],
    ) -> None:
        self.engine = engine
        self.number = number
        self._host = host
        self._tls = tls
        self._selector = selector
        self._dropped = dropped
        self._socket: socket.socket | None = None
        #: The same socket, once it uses TLS.
        self._secure: ssl.SSLSocket | None = None
        self._is_connected = False
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        #: How many bytes of the first unsent part have been sent.
        self._offset = 0
        #: The events that the selector waits for.
        self._watched_events = 0

    # --- the beginning

    def open(self, addresses: Sequence[Any]) -> None:
        """Begin to connect to the first address that accepts an attempt.

        :param addresses: in the form that ``getaddrinfo`` returns.
        """
        reason = "the name has no address"
        for family, kind, protocol, _, socket_address in addresses:
            try:
                opening = socket.socket(family, kind, protocol)
            except OSError as error:
                # For example, the process has reached its limit of open files.
                reason = str(error)
                continue
            opening.setblocking(False)
            opening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = opening.connect_ex(socket_address)
            if code in (0, errno.EINPROGRESS):
                self._socket = opening
                self._watch(selectors.EVENT_WRITE)
                return
            opening.close()
            reason = os.strerror(code)
        self.lost(reason)

    def _connected(self, opening: socket.socket) -> None:
        """Continue after the socket has connected; the TLS handshake may take several events."""
        if self._secure is None:
            code = opening.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            if self._tls is not None:
                self._unwatch()
                try:
                    opening = self._socket = self._secure = self._tls.wrap_socket(
                        opening, server_hostname=self._host, do_handshake_on_connect=False)
                except ValueError as error:
                    raise OSError(f"no certificate can have the name {self._host!r}: {error}"
                                  ) from None
        if self._secure is not None and not self._shook_hands(self._secure):
            return
        self._is_connected = True
        self._watch(selectors.EVENT_READ)
        host, port = opening.getsockname()[:2]
        self.engine.connected(self.number, f"{host}:{port}")

    def _shook_hands(self, secure: ssl.SSLSocket) -> bool:
        """Continue the TLS handshake; :returns: whether it is complete."""
        from ssl import SSLWantReadError, SSLWantWriteError

        try:
            secure.do_handshake()
        except SSLWantReadError:
            self._watch(selectors.EVENT_READ)
            return False
        except SSLWantWriteError:
            self._watch(selectors.EVENT_WRITE)
            return False
        return True

    # --- events

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that wait to be sent."""
        return self._unsent_bytes

    def ready(self, mask: int) -> None:
        """Handle an event of the selector: the socket can be read or written."""
        own = self._socket
        if own is None:
            return
        try:
            if not self._is_connected:
                self._connected(own)
                return
            if mask & selectors.EVENT_WRITE:
                self._send_unsent(own)
            if mask & selectors.EVENT_READ:
                self._read(own)
        except OSError as error:
            if not _is_not_ready(error):
                self.lost(error.strerror or str(error))
        except Exception as error:
            # A bug in the client. Unless the connection ends, the selector reports it again at
            # once.
            log.exception("the connection to %s ends: the client failed", self._host)
            self.lost(f"the client failed: {error!r}")

    def _read(self, own: socket.socket) -> None:
        data = own.recv(_READ_SIZE)
        if not data:
            self.lost("the server closed it")
            return
        self.engine.received(self.number, data)
        secure = self._secure
        if secure is not None:
            # The TLS layer may hold bytes that the selector does not see.
            while self._socket is own and secure.pending():
                self.engine.received(self.number, secure.recv(_READ_SIZE))

    def write(self, data: bytes) -> None:
        """Send bytes; bytes that the system does not take now are sent later."""
        if self._unsent:
            self._unsent.append(data)
            self._unsent_bytes += len(data)
            if self._unsent_bytes > _UNSENT_MAX:
                self.lost(f"it reads nothing, and {_UNSENT_MAX} bytes wait for it")
            return
        assert self._socket is not None
        try:
            sent = self._socket.send(data)
        except OSError as error:
            if not _is_not_ready(error):
                self.lost(str(error))
                return
            sent = 0
        if sent < len(data):
            self._unsent.append(data)
            self._unsent_bytes = len(data) - sent
            self._offset = sent
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _send_unsent(self, own: socket.socket) -> None:
        while self._unsent:
            part = memoryview(self._unsent[0])[self._offset:]
            sent = own.send(part)
            self._unsent_bytes -= sent
            if sent < len(part):
                self._offset += sent
                return
            self._unsent.popleft()
            self._offset = 0
        self._watch(selectors.EVENT_READ)

    # --- the end

    def lost(self, reason: str) -> None:
        """Close a socket whose connection ended or could not be opened, and inform the engine."""
        self.drop()
        self.engine.lost(self.number, reason)

    def drop(self) -> None:
        """Close the socket without informing the engine."""
        self._dropped(self)
        self._unwatch()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def abandon(self) -> None:
        """Close a forked child's copy without sending anything to the server."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                os.close(self._socket.detach())

    def _watch(self, events: int) -> None:
        if self._watched_events == events or self._socket is None:
            return
        if self._watched_events:
            self._selector.modify(self._socket, events, self)
        else:
            self._selector.register(self._socket, events, self)
        self._watched_events = events

    def _unwatch(self) -> None:
        if self._watched_events and self._socket is not None:
            self._selector.unregister(self._socket)
            self._watched_events = 0
