"""The connections between members, in memory; a test moves their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from twistmq.broker.api import Setting, hookimpl
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.plugins.dledger.peer_settings import PEER_SETTINGS
from twistmq.plugins.dledger.peers import Peers, connect_group
from twistmq.protocol.errors import RemotingConnectError
from twistmq.raft.messages import Request, Response

__all__ = ["GROUP", "Collector", "MemberBox", "PeerNetwork", "Pipe", "WireTransport"]

GROUP = "G0"
_PORT = 40911


class _Settings:
    """The plugin with the settings of the port."""

    @staticmethod
    @hookimpl
    def register_settings() -> tuple[Setting, ...]:
        return PEER_SETTINGS


class WireTransport(StringTransport):
    """One end of a connection."""

    def __init__(self, peer: IPv4Address) -> None:
        super().__init__(peerAddress=peer, lenient=True)  # type: ignore[no-untyped-call]

    def take(self) -> bytes:
        """The bytes that were written since the last call."""
        data: bytes = self.value()  # type: ignore[no-untyped-call]
        self.clear()  # type: ignore[no-untyped-call]
        if self.producer is not None and not self.streaming:
            # All bytes are sent.
            self.producer.resumeProducing()
        return data


@dataclass(eq=False)
class Pipe:
    """A connection, with the protocols of its two ends; the first one is the client."""

    ends: tuple[Protocol, Protocol]
    wires: tuple[WireTransport, WireTransport]
    #: Whether bytes wait, and whether the connection is lost.
    is_cut: bool = False
    is_lost: bool = False

    def move(self) -> bool:
        """Move the bytes of both directions once; :returns: whether there were any."""
        if self.is_lost or self.is_cut:
            return False
        moved = False
        for here, there in ((0, 1), (1, 0)):
            if self.wires[there].producerState == "paused":
                continue
            data = self.wires[here].take()
            if data:
                moved = True
                self.ends[there].dataReceived(data)
        if any(wire.disconnecting for wire in self.wires):
            self.lose()
            moved = True
        return moved

    def lose(self) -> None:
        """Lose the connection, as when one process is killed."""
        if not self.is_lost:
            self.is_lost = True
            for end in self.ends:
                end.connectionLost(Failure(ConnectionDone()))


@dataclass
class MemberBox:
    """One member, with its broker, its connections, and the requests and answers
    that it received.
    """

    member: str
    box: KernelBox
    peers: Peers
    asked: list[tuple[Request, Deferred[Response]]] = field(default_factory=list)
    #: The members whose hosts refused a connection.
    gone: list[str] = field(default_factory=list)
    leader: str = ""

    @property
    def factory(self) -> Factory:
        """Return the factory of its port."""
        (factory,) = self.box.host.streams.values()
        assert isinstance(factory, Factory)
        return factory

    def answer(self, request: Request) -> Deferred[Response]:
        """Keep a request until the test answers it."""
        response: Deferred[Response] = Deferred()
        self.asked.append((request, response))
        return response


class PeerNetwork:
    """Members n0, n1 and so on, at 10.0.0.1, 10.0.0.2 and so on."""

    def __init__(self, count: int = 2, settings: Mapping[str, str] | None = None) -> None:
        self.addresses = {f"n{number}": f"10.0.0.{number + 1}:{_PORT + number}"
                          for number in range(count)}
        #: The members whose hosts refuse connections, and those that cannot be reached at all.
        self.refusing: set[str] = set()
        self.unreachable: set[str] = set()
        self.pipes: list[Pipe] = []
        self.members = {member: self._make(member, settings or {}) for member in self.addresses}

    def _make(self, member: str, settings: Mapping[str, str]) -> MemberBox:
        box = KernelBox([("dledger", _Settings())], settings)
        group = PeerGroup(GROUP, member, self.addresses)
        made: list[MemberBox] = []
        peers = connect_group(
            box.kernel, group, lambda request: made[0].answer(request),
            lambda peer: made[0].gone.append(peer), lambda: made[0].leader)
        made.append(MemberBox(member, box, peers))
        return made[0]

    def stop(self) -> None:
        """Stop the brokers."""
        for member in self.members.values():
            member.peers.close()
            member.box.stop()

    def pass_ms(self, ms: int) -> None:
        """Let time pass at all members."""
        for member in self.members.values():
            member.box.now_ms += ms
            member.box.host.timers.advance(ms / 1000)
            member.peers.tick()

    def pump(self) -> None:
        """Make the waiting connections, and move bytes until no more are sent."""
        while self._connect() or any(pipe.move() for pipe in self.pipes):
            pass

    def _connect(self) -> bool:
        for member in self.members.values():
            if member.box.host.connecting:
                factory, address, waiting = member.box.host.connecting.pop(0)
                self._connect_one(member, factory, address, waiting)
                return True
        return False

    def _connect_one(self, member: MemberBox, factory: Any, address: str,
                     waiting: Deferred[IProtocol]) -> None:
        target = next(each for each, at in self.addresses.items() if at == address)
        if waiting.called:
            return
        if target in self.refusing or target in self.unreachable:
            cause = (ConnectionRefusedError() if target in self.refusing
                     else OSError("no route to host"))
            error = RemotingConnectError(f"cannot connect to {address}: {cause}")
            error.__cause__ = cause
            waiting.errback(Failure(error))
            return
        client = factory.buildProtocol(None)
        pipe = self.join(client, self.members[target],
                         self.addresses[member.member].partition(":")[0])
        if pipe is None:
            client.makeConnection(WireTransport(IPv4Address("TCP", "10.0.0.99", 1)))
            waiting.callback(client)
            client.connectionLost(Failure(ConnectionDone()))
        else:
            waiting.callback(client)

    def join(self, client: Protocol, member: MemberBox, host: str) -> Pipe | None:
        """Connect a protocol to the port of a member; :returns: None if it closes at once."""
        here = IPv4Address("TCP", host, 50_000 + len(self.pipes))
        server = member.factory.buildProtocol(here)
        if server is None:
            return None
        wires = (WireTransport(IPv4Address("TCP", "10.0.0.1", _PORT)), WireTransport(here))
        assert isinstance(server, Protocol)
        pipe = Pipe((client, server), wires)
        self.pipes.append(pipe)
        client.makeConnection(wires[0])
        server.makeConnection(wires[1])
        return pipe


class Collector(Protocol):
    """A client of the port that keeps the bytes that it receives."""

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.is_lost = True

