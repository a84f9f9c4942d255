"""Requests and replies as handlers see them, and the rows of the handler table.

A handler is a plain function. It gets a :class:`Request` and returns one of these: a
:class:`Reply`; a Deferred of a Reply that is not yet known (long poll); a :class:`DeferredReply`
that is known but must wait (flush); None if the request has no reply.
To refuse, it raises a :class:`~twistmq.protocol.errors.BrokerError`.

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

        That of the other side, but of a proxy in between that no setting names the proxy's.
        """

    def send_oneway(self, code: int, header: CommandHeader | None, body: bytes = b"") -> None:
        """Send a request the peer does not answer; lost when the connection is."""

    def call(
        self, code: int, header: CommandHeader | None, body: bytes = b"", *, timeout_ms: int
    ) -> Deferred[RemotingCommand]:
        """Send a request to the peer.

        :returns: its reply; fails with RemotingTimeout or RemotingSendError.
        """

    def close(self) -> None:
        """Close the connection after what is buffered was sent."""


class Reply:
    """The answer to a request; the edge adds the opaque and writes it."""

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
        #: Why it is no success; a text for people.
        self.remark = remark

    def frame(self, opaque: int) -> bytes:
        """Write the reply as one frame.

        :param opaque: the request's, by which its sender finds it.
        :raises ReplyTooLong: when no peer would take it.
        """
        frame = encode_reply(self.code, opaque, self.header, self.body, self.remark)
        # Apache's decoder counts the four bytes of the length too.
        if len(frame) > FRAME_SIZE_MAX:
            raise reply_too_long(len(frame))
        return frame

    def __repr__(self) -> str:
        return f"Reply(code={self.code}, header={self.header!r}, remark={self.remark!r})"


def reply_too_long(size: int) -> ReplyTooLong:
    """The error of a reply that no peer would take.

    :param size: of its frame, bytes.
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
    """The replies of a batch that are written without an object for each, unless one is asked for.

    A batch handler may return it; each look at an item makes another object.
    """

    #: The frames may go once it fires, with whatever result; None: at once.
    until: Deferred[Any] | None = None

    @abstractmethod
    def frames(self, requests: Sequence[Request[Any]]) -> list[bytes]:
        """The frames of the replies, in order, without those to one-way requests."""

    @abstractmethod
    def part(self, begin: int, end: int) -> UnmadeReplies:
        """The replies to the requests from ``begin`` to ``end``, all those of one connection."""


def defer_until(until: Deferred[None], answers: list[Handled]) -> None:
    """Make replies with SUCCESS, and deferred replies, wait for another Deferred as well.

    :param until: does not fail.
    """
    chained: set[Deferred[Any]] = set()
    for index, answer in enumerate(answers):
        if isinstance(answer, Reply) and answer.code == ResponseCode.SUCCESS:
            answers[index] = DeferredReply(answer, until)
        elif isinstance(answer, DeferredReply) and answer.until not in chained:
            chained.add(answer.until)
            answer.until.addCallback(lambda _: _as_well(until))


def _as_well(until: Deferred[None]) -> Deferred[None]:
    """A Deferred of its own that fires when another one does: only one can wait for each."""
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
    :param header: the class its extFields are read as, before ``handle`` is called.
    :param on_vip_port: False for the pull-type requests, which the VIP port does not serve.
    :param waits: whether an answer may wait for something to come, such as a message: then it is no
        slow one.
    :param handle_batch: when given, called instead of ``handle`` with requests of this code that
        came together, those of each connection in order; returns as many answers, in the same
        order.
    :param joins_connections: whether ``handle_batch`` may be called with requests of several
        connections, those of one behind those of another; else with those of one read.
    :param header_size_max: bytes a request's header may have; a longer one is not read.
    :param body_size_max: bytes a request's body may have; with a longer one it is not handled.
    :param decodes_body: whether a request waits with what was read of its body, which then counts
        for ``DECODED_BYTES_PER_BYTE`` times its bytes.
    :param too_long: the response code of what is too long.
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


#: A row whatever its header class.
AnyHandler = RequestHandler[Any]


def now_or_later(reply: Deferred[Any]) -> Handled:
    """The result of a Deferred if it has fired, else the Deferred itself.

    A handler that returns its reply, not a Deferred of it, is answered in its request's turn.

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
