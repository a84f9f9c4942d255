"""The attacker's side of a connection, which sends any bytes."""

from __future__ import annotations

import socket
import struct
import time

from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.frame import FrameDecoder

__all__ = ["Closed", "RawConnection", "json_frame", "raw_frame"]

#: How long a reply or the end of a connection is waited for, seconds.
WAIT_SECONDS = 30.0


class Closed(Exception):
    """The server has closed the connection."""


def raw_frame(
    header: bytes, body: bytes = b"", *, total: int | None = None, header_size: int | None = None,
    serialize_type: int = 0,
) -> bytes:
    """Return a frame with right or wrong lengths.

    :param total: what the frame says its length is; None: the truth.
    :param header_size: what it says its header's length is; None: the truth.
    """
    size = len(header) if header_size is None else header_size
    length = 4 + len(header) + len(body) if total is None else total
    return struct.pack(">iI", length, serialize_type << 24 | size) + header + body


def json_frame(code: object, ext_fields: str = "{}", body: bytes = b"", *, opaque: int = 7,
               flag: int = 0, more: str = "") -> bytes:
    """Return a frame whose JSON header is joined from texts.

    :param code: as it stands in the JSON.
    :param more: members of the header after the others: ``,"remark":"x"``.
    """
    header = (f'{{"code":{code},"flag":{flag},"language":"JAVA","opaque":{opaque},'
              f'"version":479,"extFields":{ext_fields}{more}}}')
    return raw_frame(header.encode("utf-8", "surrogatepass"), body)


class RawConnection:
    """A connection that sends the given bytes.

    :param address: "host:port".
    :param receive_bytes: size of the receive buffer; small for a peer that takes little.
    """

    def __init__(self, address: str, receive_bytes: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.socket()
        if receive_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.settimeout(WAIT_SECONDS)
        self._socket.connect((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self._commands: list[RemotingCommand] = []
        #: As the server's log names this side.
        self.name = "{}:{}".format(*self._socket.getsockname())

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def says(self, data: bytes) -> None:
        """Send bytes; :raises Closed: when the server takes no more."""
        try:
            self._socket.settimeout(WAIT_SECONDS)
            self._socket.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from None

    def says_what_it_can(self, data: bytes, seconds: float = 0.2) -> int:
        """Send until the server takes no more for a while.

        :returns: bytes sent.
        :raises Closed: when the server closed the connection.
        """
        self._socket.settimeout(seconds)
        sent = 0
        try:
            while sent < len(data):
                sent += self._socket.send(data[sent : sent + 65536])
        except TimeoutError:
            pass
        except OSError as error:
            raise Closed(str(error)) from None
        return sent

    def hears(self, seconds: float = WAIT_SECONDS) -> RemotingCommand:
        """Wait for the next command.

        :raises Closed: when the connection ends first.
        :raises TimeoutError: when none comes.
        """
        deadline = time.monotonic() + seconds
        while not self._commands:
            self._receive(deadline)
        return self._commands.pop(0)

    def hears_nothing(self, seconds: float) -> bool:
        """Whether nothing arrives for a while; :raises Closed: when the connection ends."""
        try:
            self._commands.insert(0, self.hears(seconds))
        except TimeoutError:
            return True
        return False

    def is_closed(self, seconds: float = WAIT_SECONDS) -> bool:
        """Whether the server closes the connection in time; earlier bytes are kept."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                self._receive(deadline)
        except TimeoutError:
            return False
        except Closed:
            return True

    @property
    def heard(self) -> list[RemotingCommand]:
        """Return the bytes that :meth:`hears` has not returned."""
        return self._commands

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("nothing more comes")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(262_144)
        except TimeoutError:
            raise TimeoutError("nothing more comes") from None
        except OSError as error:
            raise Closed(str(error)) from None
        if not data:
            raise Closed("the server closed the connection")
        self._commands += [decode_command(frame) for frame in self._decoder.feed(data)]
        assert not self._decoder.failure, self._decoder.failure
