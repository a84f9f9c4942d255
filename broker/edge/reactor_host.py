"""The host of a broker in a process: the reactor, a remoting client and the name servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twistmq.broker.edge.clock import monotonic_ms, now_ms
from twistmq.broker.edge.process_metrics import serve_http
from twistmq.broker.scheduling.steady_clock import SteadyClock

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IProtocol, IProtocolFactory

    from twistmq.broker.client.name_servers import NameServers
    from twistmq.broker.client.remoting_client import RemotingClient
    from twistmq.broker.namesrv.requests import NameServer
    from twistmq.broker.net.stream_ports import StreamPorts
    from twistmq.broker.remoting.interfaces import OpenHttpPort, OpenPort
    from twistmq.protocol.bodies import TopicRouteData
    from twistmq.protocol.command import RemotingCommand
    from twistmq.protocol.header import CommandHeader

__all__ = ["ReactorHost"]

#: How long a name server may take to answer a route request, ms. Source:
#: TopicRouteInfoManager.GET_TOPIC_ROUTE_TIMEOUT.
_ROUTE_TIMEOUT_MS = 3000


class ReactorHost:
    """The services of one process; see :class:`twistmq.broker.request.host.Host`.

    :param name_servers: the name servers with which the broker registers; the list may change.
    :param register_soon: registers the topics with them.
    :param name_server: the name server in the same process, or None.
    :param streams: connections for raw bytes; their owner closes them.
    """

    def __init__(
        self, reactor: Any, client: RemotingClient, name_servers: NameServers,
        register_soon: Callable[[], Deferred[None] | None], name_server: NameServer | None,
        figures: dict[str, Callable[[], float]], health_checks: dict[str, Callable[[], str]],
        streams: StreamPorts,
    ) -> None:
        self._reactor = reactor
        self._streams = streams
        self._client = client
        self._name_servers = name_servers
        self._register_soon = register_soon
        self.name_server = name_server
        self.figures = figures
        self.health_checks = health_checks
        self.now_ms = now_ms
        self.steady = SteadyClock(monotonic_ms)

    @property
    def has_name_servers(self) -> bool:
        return bool(self._name_servers.addresses)

    def run_soon(self, run: Callable[[], None]) -> object:
        return self._reactor.callLater(0, run)

    def call_later(self, delay: float, run: Callable[[], object]) -> IDelayedCall:
        call: IDelayedCall = self._reactor.callLater(delay, run)
        return call

    def register_soon(self) -> Deferred[None] | None:
        return self._register_soon()

    def serve_http(self, resource: Any, port: int, interface: str) -> OpenHttpPort:
        return serve_http(self._reactor, resource, port, interface)

    async def post_http(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_ms: int
    ) -> int:
        from twistmq.broker.client.http_posts import post_http  # twisted.web uses much memory

        return await post_http(self._reactor, url, headers, body, timeout_ms)

    def serve_stream(
        self, factory: IProtocolFactory, port: int, interface: str | None = None, *,
        encrypted: bool = False,
    ) -> OpenPort:
        return self._streams.serve(factory, port, interface, encrypted=encrypted)

    def connect_stream(
        self, factory: IProtocolFactory, address: str, timeout_ms: int, *, encrypted: bool = False
    ) -> Deferred[IProtocol]:
        return self._streams.connect(factory, address, timeout_ms, encrypted=encrypted)

    async def find_route(self, topic: str) -> TopicRouteData | None:
        return await self._name_servers.find_route(topic, timeout_ms=_ROUTE_TIMEOUT_MS)

    async def find_broker(self, broker_name: str) -> str | None:
        return await self._name_servers.find_broker(broker_name, timeout_ms=_ROUTE_TIMEOUT_MS)

    async def find_members(self, broker_name: str) -> dict[int, str]:
        return await self._name_servers.find_members(broker_name, timeout_ms=_ROUTE_TIMEOUT_MS)

    async def ask_name_server(
        self, code: int, header: CommandHeader, *, timeout_ms: int
    ) -> RemotingCommand:
        return await self._name_servers.ask(code, header, timeout_ms=timeout_ms)

    async def tell_name_servers(
        self, code: int, header: CommandHeader, body: bytes = b"", *, timeout_ms: int
    ) -> None:
        await self._name_servers.notify(code, header, body, timeout_ms=timeout_ms)

    async def ask_server(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        return await self._client.invoke(address, code, header, body, timeout_ms=timeout_ms)
