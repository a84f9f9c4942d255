"""A client that speaks TLS in memory, for tests of a server without a network."""

from __future__ import annotations

import ssl
from pathlib import Path

from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.testing.conversation import Conversation, read_commands
from twistmq.protocol.command import RemotingCommand

__all__ = ["TlsPeer", "client_context"]


def client_context(
    trusts: Path | None = None, shows: tuple[Path, Path] | None = None,
    version: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    """Return the context of a client.

    :param trusts: the authority servers must be of; None: any server will do.
    :param shows: certificate and key of its own.
    :param version: the only version it speaks.
    """
    context = ssl.create_default_context(cafile=trusts)
    context.check_hostname = False
    if trusts is None:
        context.verify_mode = ssl.CERT_NONE
    if shows is not None:
        context.load_cert_chain(*shows)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


class TlsPeer:
    """One client and its connection.

    :param cut: bytes that arrive in one read; 0: as many as there are.
    """

    def __init__(
        self, server: RemotingFactory, context: ssl.SSLContext | None = None, cut: int = 0,
        first: bytes = b"",
    ) -> None:
        self.conversation = Conversation(server)
        self.cut = cut
        self._from_server, self._to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or client_context()).wrap_bio(self._from_server, self._to_server)
        self._clear = b""
        self.done = False
        if first:
            self.conversation.says(first)

    def shake_hands(self) -> None:
        """Make the handshake, as far as the server does.

        :raises ssl.SSLError: when this side refuses, or hears an alert.
        """
        while not self.done:
            try:
                self.tls.do_handshake()
                self.done = True
            except ssl.SSLWantReadError:
                pass
            finally:
                self.flush()
            if not self.done and not self._hear():
                return
        self._hear()

    def says(self, *frames: bytes) -> None:
        """Send bytes by TLS."""
        self.tls.write(b"".join(frames))
        self.flush()

    def flush(self) -> None:
        """Deliver the waiting bytes to the server."""
        data = self._to_server.read()
        size = self.cut or len(data)
        for begin in range(0, len(data), max(size, 1)):
            if not self.conversation.connection.is_reading:
                return
            self.conversation.says(data[begin:begin + size])

    def _hear(self) -> bool:
        """Read the bytes of the server; :returns: whether there were any."""
        connection = self.conversation.connection
        connection.pump()
        data, connection.received = connection.received, b""
        self._from_server.write(data)
        return bool(data)

    def heard(self) -> list[RemotingCommand]:
        """Return the commands that arrived since the last call."""
        self._hear()
        try:
            while data := self.tls.read(1 << 20):
                self._clear += data
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        data, self._clear = self._clear, b""
        return read_commands(data)

    def hears(self) -> list[tuple[int, int]]:
        """Return the same commands as (opaque, code)."""
        return [(command.opaque, command.code) for command in self.heard()]

    @property
    def is_closed(self) -> bool:
        return self.conversation.is_closed
