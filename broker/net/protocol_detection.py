"""The first bytes of a connection: stages look at them, and then step aside.

Stages follow each other: a proxy's header comes before TLS, TLS before frames. Once the last has
looked, a connection's bytes go to the frame decoder, or to what a stage put in its place, and
nothing of this is asked again.

Source: NettyRemotingServer.HandshakeHandler @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Protocol as Interface

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from twistmq.broker.constants import FIRST_BYTES_SECONDS

if TYPE_CHECKING:
    from twistmq.broker.net.protocol import RemotingProtocol

__all__ = ["FirstBytes", "FirstBytesStage", "TlsRefused"]


class FirstBytesStage(Interface):
    """Looks at a new connection's first bytes: TLS, the PROXY protocol."""

    def recognise(self, data: bytes) -> bool | None:
        """:returns: whether the connection is this stage's; None when more bytes are needed."""

    def take(self, connection: RemotingProtocol, data: bytes) -> bytes:
        """Do the stage's work; :returns: the bytes that are for the next."""


class TlsRefused:
    """Says clearly why a TLS client gets nowhere, instead of calling its hello a bad frame."""

    log = Logger()

    def recognise(self, data: bytes) -> bool | None:
        # 0x16 is a TLS handshake record; as a frame's length it would be 369 MB.
        return data[:1] == b"\x16"

    def take(self, connection: RemotingProtocol, data: bytes) -> bytes:
        self.log.warn("connection of {peer} closed: it speaks TLS, which is not enabled",
                      peer=connection.remote_address)
        connection.close()
        return b""


class FirstBytes:
    """Those of one connection.

    ``done`` is True once all stages have looked.

    :param stages: in their order.
    """

    def __init__(self, connection: RemotingProtocol, stages: Sequence[FirstBytesStage]) -> None:
        self.done = not stages
        self._connection = connection
        self._stages = stages
        self._data = b""
        self._end: IDelayedCall | None = None

    def look(self, data: bytes) -> bytes:
        """Ask the stages, each in turn, whether this connection is theirs.

        :returns: what is left for the frame decoder; nothing while a stage needs more.
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
        self._connection.abort("takes too long over its first bytes")
