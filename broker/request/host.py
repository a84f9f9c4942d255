"""The surroundings of a broker: clocks, the reactor, other servers, ports for HTTP.

The kernel has no reactor. It is given a :class:`Host`: ``edge.reactor_host`` provides the one of a
running process, ``testing.local_host`` one without a network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from twistmq.broker.scheduling.steady_clock import SteadyClock

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IProtocol, IProtocolFactory

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
        """Returns the wall clock, Unix ms. It may jump."""

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
        """Figures of the process by name, for metrics; each is called when it is read."""

    @property
    def health_checks(self) -> dict[str, Callable[[], str]]:
        """Checks of the process by name; each returns the fault, or an empty text."""

    def run_soon(self, run: Callable[[], None]) -> object:
        """Call a function once the reactor has served other events."""

    def register_soon(self) -> Deferred[None] | None:
        """Register the topics with the name servers, because they changed.

        :returns: fires once that is done, and never fails; None when no name server is to be
            informed.
        """

    def serve_http(self, resource: Any, port: int, interface: str) -> OpenHttpPort:
        """Serve a resource of twisted.web on a port of its own.

        :raises OSError: when the port cannot be opened.
        """

    def serve_stream(
        self, factory: IProtocolFactory, port: int, interface: str | None = None, *,
        encrypted: bool = False,
    ) -> OpenPort:
        """Listen for connections of raw bytes; they are closed with the broker at the latest.

        They count as connections of the process; beyond the limit new ones are closed.

        :param factory: makes the protocol of each connection.
        :param port: 0 lets the system choose.
        :param interface: the address to bind to; None: ``bindAddress``.
        :param encrypted: by TLS, with the settings ``tls.server``; the factory's protocols then
            register producers that are paused, not ones that are pulled from.
        :raises OSError: when the port cannot be opened.
        :raises SettingsError: when it is to be encrypted, and the settings do not allow it.
        """

    def connect_stream(
        self, factory: IProtocolFactory, address: str, timeout_ms: int, *, encrypted: bool = False
    ) -> Deferred[IProtocol]:
        """Connect to another server, for raw bytes; see :meth:`serve_stream`.

        :param address: "host:port".
        :param encrypted: by TLS, with the settings ``tls.client``.
        :returns: fires with the factory's protocol once it is connected, or fails with
            RemotingConnectError. Cancel it to give up.
        """

    async def find_route(self, topic: str) -> TopicRouteData | None:
        """Ask the name servers for the route of a topic.

        :returns: None when they know no such topic.
        :raises BrokerError: when no name server answers.
        """

    async def find_broker(self, broker_name: str) -> str | None:
        """Ask the name servers for the address of the master of a broker name.

        :returns: "host:port"; None when they know no such master.
        :raises BrokerError: when no name server answers.
        """

    async def find_members(self, broker_name: str) -> dict[int, str]:
        """Ask the name servers for the addresses of all brokers of a name.

        :returns: "host:port" by broker id.
        :raises BrokerError: when no name server answers.
        """

    async def ask_name_server(
        self, code: int, header: CommandHeader, *, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request to one name server after the other, until one replies.

        :returns: the reply, whatever its code.
        :raises BrokerError: when no name server answers.
        """

    async def tell_name_servers(
        self, code: int, header: CommandHeader, body: bytes = b"", *, timeout_ms: int
    ) -> None:
        """Send all name servers a request that is not answered; those that are away get none.

        :param timeout_ms: how long a connection may take.
        """

    async def ask_server(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """Send a request to another server and return its reply.

        :raises RemotingError: when no reply comes.
        """
