"""One connection, as bytes: requests and their replies matched by opaque, requests of the server.

A :class:`Link` opens no socket. Its owner gives it the bytes that came (:meth:`Link.received`),
sends the bytes that it has (:meth:`Link.take_output`), and tells it when the connection ends
(:meth:`Link.lost`). The blocking :class:`~twistmq.client.connection.Connection`, the engine and the
tests own links.

Replies may come in any order. A reply that comes after its time-out is dropped. Deadlines are kept
in buckets of ``DEADLINE_STEP_MS``, so that a request costs no timer of its own.

Source: NettyRemotingAbstract (responseTable, scanResponseTable), NettyRemotingClient,
AclClientRPCHook @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from twistmq.broker.errors import HeaderError, RemotingError, RemotingSendError, RemotingTimeout
from twistmq.broker.wire.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    VERSION,
    RemotingCommand,
    decode_command,
    encode_reply,
    encode_request,
)
from twistmq.broker.wire.frame import JSON, FrameDecoder
from twistmq.broker.wire.header import CommandHeader, EmptyHeader, ext_fields_of, header_values
from twistmq.broker.wire.json_text import RequestTemplate, request_frame

if TYPE_CHECKING:
    from twistmq.broker.wire.signature import Credentials

__all__ = ["DEADLINE_STEP_MS", "Filled", "Link", "OnReply", "Outcome", "Request"]

#: A time-out comes at most this much late, ms.
DEADLINE_STEP_MS: Final = 16
#: Requests of the server that wait for their owner; a server that sends more is cut off.
SERVER_REQUESTS_MAX: Final = 1024
#: An opaque is an int32, and Apache's clients count up from 0.
_OPAQUE_MASK: Final = 0x7FFFFFFF

#: A reply, or the error that came in its place.
Outcome = RemotingCommand | RemotingError
OnReply = Callable[[Outcome], object]

_EMPTY: Final = EmptyHeader()


class Filled(msgspec.Struct, gc=False):
    """A header of which only some fields are new; for links without credentials.

    :param values: as ``RequestTemplate.frame`` takes them.
    """

    template: RequestTemplate
    values: tuple[object, ...]


class Request(msgspec.Struct):
    """A request that waits for its reply."""

    code: int
    opaque: int
    #: As it was sent, so that it can be sent once more by another connection.
    frame: bytes
    on_reply: OnReply

    def replied(self, outcome: Outcome) -> None:
        """The reply came, or an error in its place."""
        self.on_reply(outcome)


class Link:
    """The state of one connection.

    :param address: "host:port", for errors.
    :param credentials: the account that requests are signed with; None: they are not.
    :param opaques: the counter of opaques; links that share it can hand requests to each other.
    :param extra_fields: fields that every request has beside those of its header.
    """

    def __init__(
        self, address: str, credentials: Credentials | None = None,
        opaques: count[int] | None = None, extra_fields: dict[str, str] | None = None,
    ) -> None:
        self.address = address
        self.credentials = credentials
        self._extra_fields = extra_fields or {}
        #: Requests that wait, by opaque, the oldest first.
        self.waiting: dict[int, Request] = {}
        #: Whether the connection is open. Until then requests are kept, so that one whose time ends
        #: before is never sent.
        self.is_open = False
        #: The error by which the connection ended.
        self.failure: RemotingError | None = None
        self._opaques = count(1) if opaques is None else opaques
        self._decoder = FrameDecoder()
        self._output: list[bytes] = []
        #: Opaques by the end of their step of time.
        self._deadlines: dict[int, list[int]] = {}

    def opened(self) -> None:
        """The connection is open: what waits is sent."""
        self.is_open = True
        self._output.extend([request.frame for request in self.waiting.values()])

    # --- out

    def request(
        self, code: int, header: CommandHeader | Filled | None, body: bytes, on_reply: OnReply,
        deadline_ms: float | None,
    ) -> Request:
        """Send a request.

        :param on_reply: called once, with the reply or a ``RemotingError``.
        :param deadline_ms: of the clock that :meth:`expire` is called with; None: the owner itself
            waits, and forgets it.
        :returns: the request; its opaque is for :meth:`forget`.
        """
        opaque, frame = self.encode(code, header, body)
        request = Request(code, opaque, frame, on_reply)
        self.send(request, deadline_ms)
        return request

    def encode(
        self, code: int, header: CommandHeader | Filled | None, body: bytes
    ) -> tuple[int, bytes]:
        """Encode a request for :meth:`send`; :returns: its opaque and its bytes."""
        opaque = next(self._opaques) & _OPAQUE_MASK
        if isinstance(header, Filled):
            return opaque, header.template.frame(opaque, header.values, body)
        return opaque, self.frame(code, opaque, header, body, 0)

    def send(self, request: Request, deadline_ms: float | None) -> None:
        """Send a request that is encoded already, perhaps by another link."""
        if self.failure is not None:
            request.replied(self._fault())
            return
        self.waiting[request.opaque] = request
        if self.is_open:
            self._output.append(request.frame)
        if deadline_ms is None:
            return
        step = int(deadline_ms) // DEADLINE_STEP_MS + 1
        opaques = self._deadlines.get(step)
        if opaques is None:
            self._deadlines[step] = [request.opaque]
        else:
            opaques.append(request.opaque)

    def send_oneway(self, code: int, header: CommandHeader | None, body: bytes) -> None:
        """Send a request that is not answered.

        :raises RemotingError: when the connection has ended.
        """
        if self.failure is not None:
            raise self._fault()
        opaque = next(self._opaques) & _OPAQUE_MASK
        self._output.append(self.frame(code, opaque, header, body, ONEWAY_FLAG))

    def answer(
        self, request: RemotingCommand, code: int, header: CommandHeader | None = None,
        body: bytes = b"", remark: str | None = None,
    ) -> None:
        """Answer a request of the server; a one-way request gets no answer."""
        if self.failure is None and not request.is_oneway:
            self._output.append(encode_reply(code, request.opaque, header, body, remark))

    def frame(
        self, code: int, opaque: int, header: CommandHeader | None, body: bytes, flag: int
    ) -> bytes:
        """Encode a request, signed if there are credentials."""
        if self.credentials is None and not self._extra_fields:
            prefixes, values = header_values(header or _EMPTY)
            return request_frame(code, opaque, flag, prefixes, values, body)
        fields = {**(ext_fields_of(header) if header else {}), **self._extra_fields}
        if self.credentials is not None:
            # Most clients sign nothing, and do not load it.
            from twistmq.broker.wire.signature import signed_fields

            fields = signed_fields(fields, body, VERSION, self.credentials)
        return encode_request(code, opaque, None, body, oneway=bool(flag & ONEWAY_FLAG),
                              serialize_type=JSON, extra_fields=fields)

    def take_output(self) -> bytes:
        """The bytes that are to be sent; they are sent once."""
        output = self._output
        if not output:
            return b""
        data = output[0] if len(output) == 1 else b"".join(output)
        output.clear()
        return data

    @property
    def pending_bytes(self) -> int:
        """Bytes that came of a frame that is not whole."""
        return self._decoder.pending_bytes

    @property
    def has_output(self) -> bool:
        """Whether there are bytes to send."""
        return bool(self._output)

    # --- in

    def received(self, data: bytes) -> list[RemotingCommand]:
        """Take bytes of the server, and call back for each reply among them.

        After bytes that are no frames :attr:`failure` is set, and all requests have failed: the
        owner closes the connection.

        :returns: the server's own requests, in order.
        """
        requests: list[RemotingCommand] = []
        if self.failure is not None:
            return requests
        for frame in self._decoder.feed(data):
            try:
                command = decode_command(frame)
            except HeaderError as error:
                self.lost(f"its answer cannot be read: {error}")
                return requests
            if command.flag & RESPONSE_FLAG:
                request = self.waiting.pop(command.opaque, None)
                if request is not None:
                    request.replied(command)
            elif len(requests) < SERVER_REQUESTS_MAX:
                requests.append(command)
            else:
                self.lost(f"it sent {SERVER_REQUESTS_MAX} requests at once")
                return requests
        if self._decoder.failure:
            self.lost(self._decoder.failure)
        return requests

    def forget(self, opaque: int) -> Request | None:
        """Drop the reply to a request when it comes; :returns: the request, if it waits still."""
        return self.waiting.pop(opaque, None)

    def lost(self, reason: str, kind: type[RemotingError] = RemotingSendError) -> None:
        """End: every request that waits fails, as do later ones.

        :param reason: why, as it stands behind "the connection to ADDRESS was lost: ".
        :param kind: the class of the error.
        """
        if self.failure is not None:
            return
        text = f"{self.address}: the connection was lost: {reason}"
        if kind is not RemotingSendError:
            text = f"connect to {self.address} failed: {reason}"
        from twistmq.broker.printable import one_line

        # The address is a name server's word, and the reason may be the server's.
        self.failure = kind(one_line(text))
        self._output.clear()
        self._deadlines.clear()
        waiting, self.waiting = self.waiting, {}
        for request in waiting.values():
            request.replied(self._fault())

    def _fault(self) -> RemotingError:
        """The failure, a new object for each request: raising one adds to its traceback."""
        assert self.failure is not None
        return type(self.failure)(str(self.failure))

    # --- time

    @property
    def next_deadline_ms(self) -> float | None:
        """When :meth:`expire` should be called next."""
        return min(self._deadlines) * DEADLINE_STEP_MS if self._deadlines else None

    def expire(self, now_ms: float) -> int:
        """Fail the requests whose time is over; :returns: how many."""
        step = int(now_ms) // DEADLINE_STEP_MS
        over = [each for each in self._deadlines if each <= step]
        failed = 0
        for each in sorted(over):
            for opaque in self._deadlines.pop(each, ()):
                request = self.waiting.pop(opaque, None)
                if request is not None:
                    failed += 1
                    request.replied(RemotingTimeout(f"{self.address} did not answer in time"))
        return failed

    def debug_counts(self) -> dict[str, Any]:
        """Sizes of what the link keeps, for tests of growth."""
        return {"waiting": len(self.waiting), "deadline_steps": len(self._deadlines),
                "pending_bytes": self._decoder.pending_bytes}
