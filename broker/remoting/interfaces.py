"""The interfaces of what a dispatcher is given: ports, access control and flow control."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from twistmq.broker.remoting.messages import Reply, Request
    from twistmq.protocol.command import RemotingCommand
    from twistmq.protocol.errors import BrokerError
    from twistmq.protocol.frame import Frame
    from twistmq.protocol.header import CommandHeader

__all__ = [
    "AskServer",
    "IAccessValidator",
    "IClientValidator",
    "IFlowControl",
    "IResourceValidator",
    "IRunValidator",
    "OpenHttpPort",
    "OpenPort",
    "RequestHooks",
    "ServeHttp",
    "WaitingRequests",
]


class OpenPort(Protocol):
    """A port that listens."""

    #: The real one.
    port: int

    def stop(self) -> Deferred[None]:
        """Listen no more, and cut off the connections there are."""


#: One that serves a resource of twisted.web.
OpenHttpPort = OpenPort


class ServeHttp(Protocol):
    """Serves a resource of twisted.web on the broker's reactor."""

    def __call__(self, resource: Any, port: int, interface: str) -> OpenHttpPort:
        """:raises OSError: when the port cannot be opened."""


class AskServer(Protocol):
    """Sends a request to another server of the protocol."""

    async def __call__(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """:raises RemotingError: when it cannot be asked, or does not answer in time."""


class IAccessValidator(Interface):
    """Decides whether a request may be served. Source: AccessValidator @5.2.0."""

    def validate(request: Request[Any]) -> None:
        """Let the request pass by returning.

        :raises BrokerError: to refuse it; any other exception refuses it as well.
        """


class IRunValidator(IAccessValidator):
    """A validator that looks at requests of one read together."""

    def passing(requests: Sequence[Request[Any]]) -> int:
        """Count the first of them that certainly pass; ``validate`` is called for the others.

        :param requests: of one connection and one code.
        """


class IResourceValidator(IAccessValidator):
    """A validator that handlers ask as well, when they see what a request touches."""

    def require(
        request: Request[Any], publishes: Collection[str], consumes: Collection[str],
        groups: Collection[str],
    ) -> None:
        """Check that a request which passed ``validate`` may use these topics and groups.

        :param publishes: topics that it writes to, or where it ends or deletes a message.
        :param consumes: topics whose messages it reads.
        :param groups: consumer groups that it acts for.
        :raises BrokerError: to refuse it; any other exception refuses it as well.
        """


class IClientValidator(IAccessValidator):
    """A validator that knows whose a client is, for what the broker sends to it unasked."""

    def owner_of(request: Request[Any]) -> str | None:
        """Return the name of the account that sent a request which passed; None: it needs none."""

    def may_publish(owner: str | None, address: str, topic: str) -> bool:
        """Return whether a client may send to a topic now.

        :param owner: what ``owner_of`` returned for its heartbeat.
        :param address: of its connection, ``host:port``.
        """


class WaitingRequests(Protocol):
    """The requests of all connections that wait for their turn."""

    #: Requests, and their bytes.
    request_count: int
    size_bytes: int

    @property
    def connection_count(self) -> int:
        """Connections that have some of them."""

    def head_wait_ms(self) -> int:
        """How long the oldest request has waited, ms."""

    def frames(self) -> Iterator[Frame]:
        """The requests, each connection's by themselves."""


class IFlowControl(Interface):
    """Refuses requests when more come than can be served.

    Each call gets frames of one connection, in order. It returns the frames that may be served and,
    as frames, the refusals of the rest. Source: BrokerFastFailure,
    NettyRemotingAbstract.processRequestCommand @5.3.3.
    """

    rejects: bool = Attribute("Whether `reject` is asked about everything that is about to run.")

    def begin_round(waiting: WaitingRequests) -> None:
        """The reactor begins a round; called at least every 10 ms while it does."""

    def arrived(
        frames: Sequence[Frame], own_count: int, waiting: WaitingRequests
    ) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames are about to wait for their turn.

        :param own_count: requests of the connection that wait before them.
        :param waiting: what waits in all.
        """

    def due(
        frames: Sequence[Frame], waited_ms: int, waiting: WaitingRequests
    ) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames waited, and would have their turn now.

        :param waited_ms: how long, since they were read.
        :param waiting: what waits behind them.
        """

    def reject(frames: Sequence[Frame]) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames are about to run while ``rejects`` is true."""


class RequestHooks(Protocol):
    """What a dispatcher runs around each handler, for the plugins that have asked for it."""

    @property
    def before_request(self) -> Collection[object]:
        """Those that are run before a handler; empty where there are none."""

    @property
    def after_response(self) -> Collection[object]:
        """Those that are run after a response; empty where there are none."""

    def refuse_request(self, request: Request[Any]) -> Reply | BrokerError | None:
        """Run those before a handler; :returns: a response that refuses the request, if any."""

    def responded(self, request: Request[Any], reply: Reply) -> None:
        """Run those after a response."""
