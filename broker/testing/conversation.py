"""Conversations for tests: a client that sends frames and receives replies without a network.

A :class:`Conversation` joins a :class:`RemotingProtocol` to a connection in memory that buffers,
pauses and closes like a connection of Twisted (it is Twisted's class without the socket). Time is a
``Clock`` that the test advances. A test consists of frames that the client says and replies that it
hears:

    server = make_server([RequestHandler(RequestCode.HEART_BEAT, lambda request: Reply())])
    client = Conversation(server)
    client.says(encode_request(RequestCode.HEART_BEAT, 7))
    assert client.hears() == [(7, ResponseCode.SUCCESS)]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from twistmq.broker.net.factory import InFlight, RemotingFactory
from twistmq.broker.net.limits import ConnectionCount, KeptBytes
from twistmq.broker.net.protocol_detection import FirstBytesStage, TlsRefused
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.interfaces import IAccessValidator
from twistmq.broker.remoting.messages import AnyHandler
from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.frame import FrameDecoder

__all__ = ["Conversation", "MemoryConnection", "make_server", "read_commands"]

#: The time at which conversations begin, Unix ms; it is arbitrary.
BEGIN_MS = 1_700_000_000_000


def read_commands(data: bytes) -> list[RemotingCommand]:
    """Decode complete frames; :raises AssertionError: when bytes are left over."""
    decoder = FrameDecoder()
    commands = [decode_command(frame) for frame in decoder.feed(data)]
    assert not decoder.failure, decoder.failure
    assert not decoder.pending_bytes, f"{decoder.pending_bytes} bytes are not a complete frame"
    return commands


def make_server(
    handlers: Iterable[AnyHandler] = (), *, plugins: Iterable[tuple[str, object]] = (),
    validators: Sequence[IAccessValidator] = (), in_flight: InFlight | None = None,
    first_bytes: Sequence[FirstBytesStage] | None = None, clock: Clock | None = None,
    kept: KeptBytes | None = None, connections: ConnectionCount | None = None,
) -> RemotingFactory:
    """Make the factory of a port; its reactor, ``factory.reactor``, is a ``Clock``."""
    time = clock or Clock()
    dispatcher = Dispatcher({row.code: row for row in handlers}, Hooks(plugins), validators)
    return RemotingFactory(
        time, dispatcher, ChannelTable(), lambda: BEGIN_MS + round(time.seconds() * 1000),
        time.seconds, in_flight,
        first_bytes=(TlsRefused(),) if first_bytes is None else first_bytes,
        kept=kept, connections=connections)


class _Selector:
    """The part of a reactor that a descriptor uses: notification of readiness to read and write."""

    def __init__(self) -> None:
        self.reading = False
        self.writing = False

    def addReader(self, descriptor: object) -> None:
        self.reading = True

    def removeReader(self, descriptor: object) -> None:
        self.reading = False

    def addWriter(self, descriptor: object) -> None:
        self.writing = True

    def removeWriter(self, descriptor: object) -> None:
        self.writing = False

    def callLater(self, delay: float, function: Any, *arguments: Any) -> None:
        """Call at once; Twisted closes the connection of a stopped producer one turn later."""
        function(*arguments)


class MemoryConnection(FileDescriptor):
    """A connection in memory to a peer.

    If ``peer_reads`` is set to False, the peer does not read; ``taken`` contains the bytes that it
    has read. ``writes`` contains the data of each write call of the protocol.
    """

    def __init__(self, protocol: Any, peer: str, peer_port: int, local_port: int) -> None:
        self._selector = _Selector()
        super().__init__(self._selector)  # type: ignore[arg-type]
        # An attribute like that of Twisted's transports: an intermediate layer replaces it.
        self.protocol = protocol
        address = IPv6Address if ":" in peer else IPv4Address
        self._peer = address("TCP", peer, peer_port)
        self._host = address("TCP", peer, local_port)
        self.peer_reads = True
        self._pumping = False
        self.received = b""
        self.writes: list[bytes] = []
        self.lost: Failure | None = None
        self.connected = 1
        self.startReading()  # type: ignore[no-untyped-call]
        protocol.makeConnection(self)

    @property
    def is_reading(self) -> bool:
        """Whether the protocol reads the data of the peer."""
        return self._selector.reading

    def deliver(self, data: bytes) -> None:
        """Deliver the data of a read; :raises AssertionError: when the protocol does not read."""
        assert self.is_reading, "reading is paused"
        self.protocol.dataReceived(data)
        self.pump()

    def pump(self) -> None:
        """Let the peer read the waiting data."""
        while self._selector.writing and self.peer_reads:
            self._pumping = True
            result = self.doWrite()  # type: ignore[no-untyped-call]
            self._pumping = False
            if isinstance(result, Exception):
                self.drop(ConnectionDone())

    def drop(self, why: Exception | None = None) -> None:
        """Break the connection."""
        if self.lost is None:
            self.lost = Failure(why or ConnectionDone())
            self.connectionLost(self.lost)  # type: ignore[no-untyped-call]
            self.protocol.connectionLost(self.lost)

    # # --- called by the protocol and by Twisted

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        super().write(data)

    def writeSomeData(self, data: bytes) -> int:
        if not self.peer_reads:
            return 0
        if not self._pumping:
            self.writes.append(data)
        self.received += data
        return len(data)

    def abortConnection(self) -> None:
        self.drop(ConnectionAborted())

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Do nothing: a connection in memory has no Nagle algorithm."""

    def getPeer(self) -> IPv4Address | IPv6Address:
        return self._peer

    def getHost(self) -> IPv4Address | IPv6Address:
        return self._host


class Conversation:
    """A client of a server that :func:`make_server` made, or of the factory of a broker."""

    def __init__(
        self, server: RemotingFactory, *, peer: str = "10.1.2.3", peer_port: int = 40_000,
        local_port: int = 10_911,
    ) -> None:
        self.server = server
        protocol = server.buildProtocol(None)
        assert protocol is not None, "the server refuses the connection"
        self.protocol = protocol
        self.connection = MemoryConnection(self.protocol, peer, peer_port, local_port)

    def says(self, *frames: bytes) -> None:
        """Send frames or parts of frames that arrive in a single read."""
        self.connection.deliver(b"".join(frames))

    def heard(self) -> list[RemotingCommand]:
        """Return the replies and requests that have arrived since the last call."""
        self.connection.pump()
        data, self.connection.received = self.connection.received, b""
        return read_commands(data)

    def hears(self) -> list[tuple[int, int]]:
        """Return the same as :meth:`heard`, as pairs of (opaque, code)."""
        return [(command.opaque, command.code) for command in self.heard()]

    @property
    def is_closed(self) -> bool:
        return self.connection.lost is not None
