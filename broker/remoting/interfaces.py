"""The interfaces that a dispatcher depends on: ports, access control and flow control."""

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
    """A listening port."""

    #: The actual port number.
    port: int

    def stop(self) -> Deferred[None]:
        """Stop listening, and abort the existing connections."""


#: A port that serves a resource of twisted.web.
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
        """:raises RemotingError: when the server cannot be reached or does not answer in time."""


class IAccessValidator(Interface):
    """Decides whether a request may be served. Source: AccessValidator @5.2.0."""

    def validate(request: Request[Any]) -> None:
        """Let the request pass by returning.

        :raises BrokerError: to refuse it; any other exception refuses it as well.
        """


class IRunValidator(IAccessValidator):
    """A validator that examines the requests of one read together."""

    def passing(requests: Sequence[Request[Any]]) -> int:
        """Count the requests at the beginning that pass for certain; all others are validated.

        :param requests: requests of one connection and one code.
        """


class IResourceValidator(IAccessValidator):
    """A validator that handlers call as well, once they know the resources of a request."""

    def require(
        request: Request[Any], publishes: Collection[str], consumes: Collection[str],
        groups: Collection[str],
    ) -> None:
        """Check that a request which passed ``validate`` may use these topics and groups.

        :param publishes: topics to which it writes, or where it ends or deletes a message.
        :param consumes: topics whose messages it reads.
        :param groups: consumer groups for which it acts.
        :raises BrokerError: to refuse it; any other exception refuses it as well.
        """


class IClientValidator(IAccessValidator):
    """A validator that knows a client's account, for messages that the broker sends unasked."""

    def owner_of(request: Request[Any]) -> str | None:
        """Return the account that sent a request which passed; None if it needs no account."""

    def may_publish(owner: str | None, address: str, topic: str) -> bool:
        """Return whether a client may send to a topic now.

        :param owner: the result of ``owner_of`` for the client's heartbeat.
        :param address: the address of its connection, ``host:port``.
        """


class WaitingRequests(Protocol):
    """The requests of all connections that wait for their turn."""

    #: The number of requests, and their size in bytes.
    request_count: int
    size_bytes: int

    @property
    def connection_count(self) -> int:
        """The number of connections with waiting requests."""

    def head_wait_ms(self) -> int:
        """The time for which the oldest request has waited, ms."""

    def frames(self) -> Iterator[Frame]:
        """Iterate over the requests, grouped by connection."""


class IFlowControl(Interface):
    """Refuses requests when more arrive than can be served.

    Each call gets frames of one connection, in order. It returns the frames that may be served, and
    the frames of the refusals of all others. Source: BrokerFastFailure,
    NettyRemotingAbstract.processRequestCommand @5.3.3.
    """

    rejects: bool = Attribute("Whether `reject` is called for all requests that are about to run.")

    def begin_round(waiting: WaitingRequests) -> None:
        """The reactor begins a round; called at least every 10 ms during the round."""

    def arrived(
        frames: Sequence[Frame], own_count: int, waiting: WaitingRequests
    ) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames are about to wait for their turn.

        :param own_count: the number of the connection's requests that wait before them.
        :param waiting: all waiting requests.
        """

    def due(
        frames: Sequence[Frame], waited_ms: int, waiting: WaitingRequests
    ) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames have waited, and it would be their turn now.

        :param waited_ms: the time since they were read.
        :param waiting: the requests that wait after them.
        """

    def reject(frames: Sequence[Frame]) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames are about to run while ``rejects`` is true."""


class RequestHooks(Protocol):
    """The hooks that a dispatcher runs around each handler, for plugins that implement them."""

    @property
    def before_request(self) -> Collection[object]:
        """The hooks that run before a handler; empty if no plugin has any."""

    @property
    def after_response(self) -> Collection[object]:
        """The hooks that run after a response; empty if no plugin has any."""

    def refuse_request(self, request: Request[Any]) -> Reply | BrokerError | None:
        """Run the hooks before a handler; :returns: a response that refuses the request, if any."""

    def responded(self, request: Request[Any], reply: Reply) -> None:
        """Run the hooks after a response."""
