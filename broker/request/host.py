"""The environment of a broker: clocks, the reactor, other servers, and ports for HTTP.

The kernel does not use a reactor directly. It is given a :class:`Host`: ``edge.reactor_host``
provides the host of a running process, and ``testing.local_host`` a host without a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from twistmq.broker.scheduling.steady_clock import SteadyClock

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IProtocol, IProtocolFactory

    from twistmq.broker.namesrv.requests import NameServer
    from twistmq.broker.remoting.interfaces import OpenHttpPort, OpenPort
    from twistmq.protocol.bodies import TopicRouteData
    from twistmq.protocol.command import RemotingCommand
    from twistmq.protocol.header import CommandHeader

__all__ = ["Host"]


class Host(Protocol):
    """The services that a process provides to its broker."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """Returns the wall-clock time, Unix ms. It may jump."""

    @property
    def steady(self) -> SteadyClock:
        """The clock for durations: ``now_ms()``, and ``awake_ms()`` for the silence of peers."""

    @property
    def name_server(self) -> NameServer | None:
        """The name server in the same process, or None."""

    @property
    def has_name_servers(self) -> bool:
        """Whether the broker is configured with any name server."""

    @property
    def figures(self) -> dict[str, Callable[[], float]]:
        """Metrics of the process by name; each function is called when its value is read."""

    @property
    def health_checks(self) -> dict[str, Callable[[], str]]:
        """Checks of the process by name; each returns a fault, or an empty text."""

    def run_soon(self, run: Callable[[], None]) -> object:
        """Call a function after the reactor has served other events."""

    def call_later(self, delay: float, run: Callable[[], object]) -> IDelayedCall:
        """Call a function after a delay in seconds, on a clock that never jumps."""

    def register_soon(self) -> Deferred[None] | None:
        """Register the topics with the name servers, because they changed.

        :returns: a Deferred that fires once this is done, and never fails; None if the broker has
            no name servers.
        """

    def serve_http(self, resource: Any, port: int, interface: str) -> OpenHttpPort:
        """Serve a resource of twisted.web on a separate port.

        :raises OSError: when the port cannot be opened.
        """

    async def post_http(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_ms: int
    ) -> int:
        """Send a body by an HTTP request to another server.

        :param url: an address that begins with http: or https:; the latter needs pyOpenSSL.
        :returns: the HTTP status of the answer.
        :raises RemotingError: when there is no answer in time.
        """

    def serve_stream(
        self, factory: IProtocolFactory, port: int, interface: str | None = None, *,
        encrypted: bool = False,
    ) -> OpenPort:
        """Listen for connections that carry raw bytes; they close with the broker at the latest.

        They count as connections of the process, and new ones beyond the limit are closed.

        :param factory: makes the protocol of each connection.
        :param port: the port; 0 lets the system choose one.
        :param interface: the address to bind to; None for ``bindAddress``.
        :param encrypted: whether TLS is used, with the settings ``tls.server``. The factory's
            protocols must then register push producers, not pull producers.
        :raises OSError: when the port cannot be opened.
        :raises SettingsError: when encryption is requested and the settings do not allow it.
        """

    def connect_stream(
        self, factory: IProtocolFactory, address: str, timeout_ms: int, *, encrypted: bool = False
    ) -> Deferred[IProtocol]:
        """Connect to another server, for raw bytes; see :meth:`serve_stream`.

        :param address: "host:port".
        :param encrypted: whether TLS is used, with the settings ``tls.client``.
        :returns: a Deferred that fires with the factory's protocol once it is connected, or fails
            with RemotingConnectError. Cancel it to give up.
        """

    async def find_route(self, topic: str) -> TopicRouteData | None:
        """Ask the name servers for the route of a topic.

        :returns: the route; None if the topic is unknown to them.
        :raises BrokerError: when no name server answers.
        """

    async def find_broker(self, broker_name: str) -> str | None:
        """Ask the name servers for the address of the master of a broker name.

        :returns: "host:port"; None if they do not know a master of this name.
        :raises BrokerError: when no name server answers.
        """

    async def find_members(self, broker_name: str) -> dict[int, str]:
        """Ask the name servers for the addresses of all brokers with a name.

        :returns: "host:port" by broker id.
        :raises BrokerError: when no name server answers.
        """

    async def ask_name_server(
        self, code: int, header: CommandHeader, *, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request to the name servers, one at a time, until one replies.

        :returns: the reply, whatever its code.
        :raises BrokerError: when no name server answers.
        """

    async def tell_name_servers(
        self, code: int, header: CommandHeader, body: bytes = b"", *, timeout_ms: int
    ) -> None:
        """Send a one-way request to all name servers; unreachable ones do not get it.

        :param timeout_ms: how long it may take to connect.
        """

    async def ask_server(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """Send a request to another server and return its reply.

        :raises RemotingError: when there is no reply.
        """
