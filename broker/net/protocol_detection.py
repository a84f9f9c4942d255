"""Protocol detection: stages examine the first bytes of a connection.

The stages run in order: the PROXY header comes before TLS, and TLS before frames. After the last
stage, the bytes of the connection go to the frame decoder, or to the layer that a stage put in
front of it, and no stage runs again.

Source: NettyRemotingServer.HandshakeHandler @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Protocol as Interface

from twisted.internet.interfaces import IDelayedCall

from twistmq.broker.constants import FIRST_BYTES_SECONDS

if TYPE_CHECKING:
    from twistmq.broker.net.protocol import RemotingProtocol

__all__ = ["FirstBytes", "FirstBytesStage", "TlsRefused"]


class FirstBytesStage(Interface):
    """Detects one protocol, such as TLS or PROXY, by the first bytes of a connection."""

    def recognise(self, data: bytes) -> bool | None:
        """:returns: whether the bytes are of this stage's protocol; None if more are needed."""

    def take(self, connection: RemotingProtocol, data: bytes) -> bytes:
        """Do the stage's work; :returns: the bytes for the next stage."""


class TlsRefused:
    """Closes TLS clients of a port without TLS, and logs the reason."""

    def recognise(self, data: bytes) -> bool | None:
        # 0x16 begins a TLS handshake record. As a frame's length it would be 369 MB.
        return data[:1] == b"\x16"

    def take(self, connection: RemotingProtocol, data: bytes) -> bytes:
        connection.factory.lines.warn(
            connection.factory.now_ms(),
            "connection of {peer} closed: it speaks TLS, which is not enabled",
            peer=connection.remote_address)
        connection.close()
        return b""


class FirstBytes:
    """Protocol detection of one connection.

    ``done`` is True after the last stage.

    :param stages: the stages in the order in which they run.
    """

    def __init__(self, connection: RemotingProtocol, stages: Sequence[FirstBytesStage]) -> None:
        self.done = not stages
        self._connection = connection
        self._stages = stages
        self._data = b""
        self._end: IDelayedCall | None = None

    def check(self, data: bytes) -> bytes:
        """Run the stages on the bytes received so far.

        :returns: the bytes for the frame decoder; empty while a stage needs more bytes.
        """
        data, self._data = self._data + data, b""
        while self._stages and data:
            stage = self._stages[0]
            answer = stage.recognise(data)
            if answer is None:
                self._data = data
                self._start_timeout()
                return b""
            self.stop_timeout()
            self._stages = self._stages[1:]
            if answer:
                data = stage.take(self._connection, data)
        self.done = not self._stages
        return data

    def _start_timeout(self) -> None:
        if self._end is None:
            self._end = self._connection.factory.reactor.callLater(
                FIRST_BYTES_SECONDS, self._too_slow)

    def stop_timeout(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _too_slow(self) -> None:
        self._end = None
        self._connection.abort("sends its first bytes too slowly")
