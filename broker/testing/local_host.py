"""A host without a reactor and without a network, for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from twistmq.broker.scheduling.steady_clock import SteadyClock
from twistmq.protocol.errors import BrokerError, RemotingConnectError

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall, IProtocol, IProtocolFactory

    from twistmq.broker.remoting.interfaces import OpenHttpPort, OpenPort
    from twistmq.protocol.bodies import TopicRouteData
    from twistmq.protocol.command import RemotingCommand
    from twistmq.protocol.header import CommandHeader

__all__ = ["LocalHost"]


class _ClosedPort:
    """A port that does not listen."""

    def __init__(self, port: int) -> None:
        self.port = port

    def stop(self) -> Deferred[None]:
        return succeed(None)


class LocalHost:
    """A host whose clock the test controls; see :class:`twistmq.broker.request.host.Host`.

    It has no name servers and knows no other server. A test changes that with an attribute or a
    subclass.

    :param now_ms: the wall clock, Unix ms.
    :param steady_ms: the clock for durations.
    """

    def __init__(self, now_ms: Callable[[], int], steady_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.steady = SteadyClock(steady_ms)
        self.name_server = None
        self.has_name_servers = False
        self.figures: dict[str, Callable[[], float]] = {}
        self.health_checks: dict[str, Callable[[], str]] = {}
        #: The clock of ``call_later``.
        self.timers = Clock()
        self._soon: deque[Callable[[], None]] = deque()
        self._is_running = False
        #: The served resources by port.
        self.pages: dict[int, Any] = {}
        #: The served factories by port.
        self.streams: dict[int, IProtocolFactory] = {}
        #: The requested connections: the factory, "host:port", and a Deferred that fires with the
        #: protocol.
        self.connecting: list[tuple[IProtocolFactory, str, Deferred[IProtocol]]] = []
        #: Called after topics changed; each function may return a Deferred, for which the answer
        #: waits.
        self.on_topic_change: list[Callable[[], Deferred[None] | None]] = []

    def run_soon(self, run: Callable[[], None]) -> None:
        """Run a function at once, or after the function that is running."""
        self._soon.append(run)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._soon:
                self._soon.popleft()()
        finally:
            self._is_running = False

    def call_later(self, delay: float, run: Callable[[], object]) -> IDelayedCall:
        """Call a function when the test advances ``timers``."""
        return self.timers.callLater(delay, run)

    def register_soon(self) -> Deferred[None] | None:
        waiting = None
        for listener in self.on_topic_change:
            waiting = listener() or waiting
        return waiting

    def serve_http(self, resource: Any, port: int, interface: str) -> OpenHttpPort:
        """Keep the resource in ``pages``; no port is opened."""
        self.pages[port] = resource
        return _ClosedPort(port)

    async def post_http(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_ms: int
    ) -> int:
        """:raises RemotingConnectError: always, because it has no network."""
        raise RemotingConnectError("there is no network")

    def serve_stream(
        self, factory: IProtocolFactory, port: int, interface: str | None = None, *,
        encrypted: bool = False,
    ) -> OpenPort:
        """Keep the factory in ``streams``; no port is opened."""
        self.streams[port] = factory
        return _ClosedPort(port)

    def connect_stream(
        self, factory: IProtocolFactory, address: str, timeout_ms: int, *, encrypted: bool = False
    ) -> Deferred[IProtocol]:
        """Keep the request in ``connecting``; a test makes the connection, or lets it fail."""
        connection: Deferred[IProtocol] = Deferred()
        self.connecting.append((factory, address, connection))
        return connection

    async def find_route(self, topic: str) -> TopicRouteData | None:
        """:raises BrokerError: always, because it has no name servers."""
        raise BrokerError("there are no name servers")

    async def find_broker(self, broker_name: str) -> str | None:
        """:raises BrokerError: always, because it has no name servers."""
        raise BrokerError("there are no name servers")

    async def find_members(self, broker_name: str) -> dict[int, str]:
        """:raises BrokerError: always, because it has no name servers."""
        raise BrokerError("there are no name servers")

    async def ask_name_server(
        self, code: int, header: CommandHeader, *, timeout_ms: int
    ) -> RemotingCommand:
        """:raises BrokerError: always, because it has no name servers."""
        raise BrokerError("there are no name servers")

    async def tell_name_servers(
        self, code: int, header: CommandHeader, body: bytes = b"", *, timeout_ms: int
    ) -> None:
        """Do nothing, because it has no name servers."""

    async def ask_server(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """:raises BrokerError: always, because it knows no other server."""
        raise BrokerError(f"there is no server at {address}")
