"""The network of a cluster in memory: connections with delays, faults and reordered responses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from twistmq.broker.testing.conversation import MemoryConnection

if TYPE_CHECKING:
    from twistmq.broker.net.factory import RemotingFactory
    from twistmq.client.core.connection.engine import Engine

__all__ = ["Faults", "MemoryServer", "Pipe", "frames_of"]

#: Calls a function after some milliseconds.
Later = Callable[..., object]


class MemoryServer(Protocol):
    """A server that accepts connections."""

    address: str
    is_up: bool
    factory: RemotingFactory


class Faults:
    """The faults of the network.

    ``latency_ms`` is the time that bytes take in each direction, and ``delay_ms`` is the maximum
    random delay that is added to it. With ``reorders``, the responses on one connection overtake
    each other.
    """

    def __init__(self, chance: random.Random) -> None:
        self.latency_ms = 1.0
        self.delay_ms = 0.0
        self.reorders = False
        self._chance = chance

    def wait_ms(self) -> float:
        """The time that bytes take in one direction, including a random delay."""
        if self.delay_ms:
            return self.latency_ms + self._chance.random() * self.delay_ms
        return self.latency_ms


def frames_of(data: bytes) -> list[bytes]:
    """Split bytes that consist of whole frames."""
    frames = []
    position = 0
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position:position + 4], "big")
        frames.append(data[position:end])
        position = end
    return frames


class Pipe:
    """A connection of a client.

    :param client: the engine, its "ip:port" at this connection, and when it may run again.
    :param number: the number that the engine gave the connection.
    :param server: the server, or None if there is no server at the address.
    :param later: calls a function after some milliseconds.
    """

    def __init__(
        self, client: Any, number: int, address: str, server: MemoryServer | None,
        faults: Faults, later: Later,
    ) -> None:
        self.client = client
        self.number = number
        self.address = address
        self.is_over = False
        self._engine: Engine = client.engine
        self._server = server
        self._faults = faults
        self._later = later
        self._connection: MemoryConnection | None = None
        #: The minimum time that bytes are in flight in each direction, which keeps their order.
        self._out_ms = 0.0
        self._in_ms = 0.0
        self._now_ms: Callable[[], float] = client.clock.monotonic_ms
        later(2 * faults.wait_ms(), self._open)

    # --- to the client; a stopped client is notified when it runs again

    def _tell(self, function: Callable[..., object], *arguments: Any) -> None:
        wait_ms = self.client.stopped_until_ms - self._now_ms()
        if wait_ms > 0:
            self._later(wait_ms, self._tell, function, *arguments)
        elif self.client.is_up:
            function(*arguments)

    def _open(self) -> None:
        server = self._server
        if self.is_over or not self.client.is_up:
            return
        protocol = server.factory.buildProtocol(None) if server and server.is_up else None
        if protocol is None:
            self.is_over = True
            self._tell(self._engine.lost, self.number, "connection refused")
            return
        host, _, port = self.client.address(self.number).rpartition(":")
        self._connection = MemoryConnection(
            protocol, host, int(port), int(self.address.rpartition(":")[2]))
        self._tell(self._engine.connected, self.number, f"{host}:{port}")

    def to_server(self, data: bytes) -> None:
        """Send bytes from the client to the server; they arrive in order."""
        now_ms = self._now_ms()
        self._out_ms = max(self._out_ms, now_ms + self._faults.wait_ms())
        self._later(self._out_ms - now_ms, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        connection = self._connection
        if connection is None or connection.lost is not None:
            return
        if connection.is_reading:
            connection.deliver(data)
        else:
            self._later(1, self._arrive, data)

    def pump(self) -> None:
        """Send the bytes that the server wrote to the client."""
        connection = self._connection
        if connection is None:
            return
        connection.pump()
        data, connection.received = connection.received, b""
        if data and not self.is_over:
            now_ms = self._now_ms()
            for part in frames_of(data) if self._faults.reorders else [data]:
                due_ms = now_ms + self._faults.wait_ms()
                if not self._faults.reorders:
                    due_ms = max(due_ms, self._in_ms)
                self._in_ms = max(self._in_ms, due_ms)
                self._later(due_ms - now_ms, self._tell, self._receive, part)
        if connection.lost is not None and not self.is_over:
            self._end("the server closed it")

    def _receive(self, data: bytes) -> None:
        if not self.is_over:
            self._engine.received(self.number, data)

    # --- the end

    def _end(self, reason: str) -> None:
        self.is_over = True
        self._later(self._faults.latency_ms, self._tell, self._engine.lost, self.number, reason)

    def cut(self, reason: str = "connection reset") -> None:
        """Lose the connection on both sides, with all bytes in flight."""
        if not self.is_over:
            self._end(reason)
        self._drop()

    @property
    def is_drained(self) -> bool:
        """Whether nothing more will happen on the connection."""
        return self.is_over and self._connection is None

    def close(self) -> None:
        """Close it from the client's side; the server still gets the bytes sent before."""
        self.is_over = True
        now_ms = self._now_ms()
        self._later(max(self._out_ms - now_ms, 0) + self._faults.latency_ms, self._drop)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.drop()
            self._connection = None
