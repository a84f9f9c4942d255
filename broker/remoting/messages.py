"""Requests and replies as handlers see them, and the rows of the handler table.

A handler is a plain function. It gets a :class:`Request` and returns one of these: a
:class:`Reply`; a Deferred of a Reply that is not known yet (long polling); a
:class:`DeferredReply`, which is known but must wait (for a flush); or None if the request has no
reply. To refuse a request, it raises a :class:`~twistmq.protocol.errors.BrokerError`.

Source: NettyRequestProcessor, NettyRemotingAbstract @5.3.3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.broker.constants import BODY_SIZE_MAX, HEADER_SIZE_MAX
from twistmq.broker.remoting.request import Request
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_reply
from twistmq.protocol.errors import ReplyTooLong
from twistmq.protocol.frame import FRAME_SIZE_MAX
from twistmq.protocol.header import CommandHeader, EmptyHeader

__all__ = ["AnyHandler", "Channel", "DeferredReply", "Handled", "Reply", "Request",
           "RequestHandler", "UnmadeReplies", "defer_until", "now_or_later", "reply_too_long"]

H = TypeVar("H", bound=CommandHeader)


class Channel(Protocol):
    """A live connection, as handlers and plugins see it."""

    #: Unique among the connections of this process.
    channel_id: int
    #: "ip:port" of the other side; IPv6 as "[ip]:port".
    remote_address: str
    #: The peer's address as a record stores it: ip (4 or 16 bytes) and int32 port.
    remote_host: bytes
    #: The port this connection was accepted on.
    local_port: int
    #: False once the connection is lost.
    active: bool

    @property
    def charged_address(self) -> str:
        """The address that is charged for the memory that this connection uses.

        This is the address of the peer. If there is a proxy that no setting names, it is the
        address of the proxy.
        """

    def send_oneway(self, code: int, header: CommandHeader | None, body: bytes = b"") -> None:
        """Send a one-way request to the peer; it is lost if the connection is lost."""

    def call(
        self, code: int, header: CommandHeader | None, body: bytes = b"", *, timeout_ms: int
    ) -> Deferred[RemotingCommand]:
        """Send a request to the peer.

        :returns: a Deferred of its reply, which fails with RemotingTimeout or RemotingSendError.
        """

    def close(self) -> None:
        """Close the connection after the buffered data was sent."""


class Reply:
    """The answer to a request; the connection adds the opaque and writes it."""

    __slots__ = ("body", "code", "header", "remark")

    def __init__(
        self, code: int = ResponseCode.SUCCESS, header: CommandHeader | None = None,
        body: bytes = b"", remark: str | None = None,
    ) -> None:
        #: A response code.
        self.code = code
        #: Becomes the extFields; None for no fields.
        self.header = header
        #: The bytes after the header.
        self.body = body
        #: The reason why it is not a success, as a text for people.
        self.remark = remark

    def frame(self, opaque: int) -> bytes:
        """Write the reply as one frame.

        :param opaque: the opaque of the request, by which the sender matches the reply.
        :raises ReplyTooLong: when the frame is too long for any peer.
        """
        frame = encode_reply(self.code, opaque, self.header, self.body, self.remark)
        # Apache's decoder counts the four bytes of the length as well.
        if len(frame) > FRAME_SIZE_MAX:
            raise reply_too_long(len(frame))
        return frame

    def __repr__(self) -> str:
        return f"Reply(code={self.code}, header={self.header!r}, remark={self.remark!r})"


def reply_too_long(size: int) -> ReplyTooLong:
    """Make the error for a reply that is too long for any peer.

    :param size: the size of its frame in bytes.
    """
    return ReplyTooLong(f"the reply has {size} bytes, a frame may have {FRAME_SIZE_MAX}: "
                        "ask for less")


class DeferredReply:
    """A reply that is sent once a Deferred has fired.

    Replies of one batch that wait for the same Deferred leave together in one write.

    :param until: its result is ignored; if it fails, its error is the reply.
    """

    __slots__ = ("reply", "until")

    def __init__(self, reply: Reply, until: Deferred[Any]) -> None:
        self.reply = reply
        self.until = until


#: The values that a handler may return.
Handled: TypeAlias = Reply | DeferredReply | Deferred[Reply] | None


class UnmadeReplies(Sequence[Handled]):
    """The replies of a batch, written without an object for each, unless one is requested.

    A batch handler may return it. Each access to an item makes a new object.
    """

    #: The frames may be sent once it fires, with any result; None if they may be sent at once.
    until: Deferred[Any] | None = None

    @abstractmethod
    def frames(self, requests: Sequence[Request[Any]]) -> list[bytes]:
        """Return the frames of the replies, in order, without the replies to one-way requests."""

    @abstractmethod
    def part(self, begin: int, end: int) -> UnmadeReplies:
        """Return the replies to requests ``begin`` to ``end``, which are all of one connection."""


def defer_until(until: Deferred[None], answers: list[Handled]) -> None:
    """Make replies with SUCCESS, and deferred replies, wait for another Deferred as well.

    :param until: a Deferred that does not fail.
    """
    chained: set[Deferred[Any]] = set()
    for index, answer in enumerate(answers):
        if isinstance(answer, Reply) and answer.code == ResponseCode.SUCCESS:
            answers[index] = DeferredReply(answer, until)
        elif isinstance(answer, DeferredReply) and answer.until not in chained:
            chained.add(answer.until)
            answer.until.addCallback(lambda _: _as_well(until))


def _as_well(until: Deferred[None]) -> Deferred[None]:
    """Make a new Deferred that fires when another one does, so that several can wait for it."""
    done: Deferred[None] = Deferred()

    def fire(result: None) -> None:
        done.callback(None)

    until.addCallback(fire)
    return done


@dataclass(frozen=True, slots=True)
class RequestHandler(Generic[H]):
    """One row of the handler table.

    :param code: the request code it serves.
    :param handle: called for each request of that code.
    :param header: the class as which its extFields are read before ``handle`` is called.
    :param on_vip_port: False for the pull-type requests, which the VIP port does not serve.
    :param waits: whether an answer may wait for an event such as a new message. It then does not
        count as a slow request.
    :param handle_batch: if given, it is called instead of ``handle`` with requests of this code
        that arrived together, the requests of each connection in order. It returns as many answers,
        in the same order.
    :param joins_connections: whether ``handle_batch`` may be called with the requests of several
        connections, one connection after another. Otherwise it gets the requests of one read.
    :param header_size_max: the maximum size of a request's header, bytes; a longer header is not
        parsed.
    :param body_size_max: the maximum size of a request's body, bytes; with a longer body the
        request is not handled.
    :param decodes_body: whether a waiting request keeps its decoded body, which then counts for
        ``DECODED_BYTES_PER_BYTE`` times its bytes.
    :param too_long: the response code for a request that exceeds these limits.
    """

    code: int
    handle: Callable[[Request[H]], Handled]
    header: type[H] = EmptyHeader  # type: ignore[assignment]
    on_vip_port: bool = True
    handle_batch: Callable[[Sequence[Request[H]]], Sequence[Handled]] | None = None
    joins_connections: bool = False
    waits: bool = False
    header_size_max: int = HEADER_SIZE_MAX
    body_size_max: int = BODY_SIZE_MAX
    decodes_body: bool = False
    too_long: ResponseCode = ResponseCode.INVALID_PARAMETER


#: A row with any header class.
AnyHandler = RequestHandler[Any]


def now_or_later(reply: Deferred[Any]) -> Handled:
    """Return the result of a Deferred if it has fired, and otherwise the Deferred itself.

    If a handler returns its reply, not a Deferred of it, the request is answered in its turn.

    :raises Exception: the failure of a Deferred that has fired.
    """
    results: list[Any] = []

    def keep(result: Any) -> Any:
        results.append(result)
        return result

    reply.addBoth(keep)
    if not results:
        return reply
    if isinstance(results[0], Failure):
        reply.addErrback(lambda _: None)
        results[0].raiseException()
    answer: Reply = results[0]
    return answer
