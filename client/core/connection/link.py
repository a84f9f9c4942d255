"""One connection as bytes: requests are matched with responses, and server requests are decoded.

A :class:`Link` does not open a socket. Its owner passes in the received bytes
(:meth:`Link.received`), sends the bytes that the link returns (:meth:`Link.take_output`), and
reports the end of the connection (:meth:`Link.lost`). Links belong to the blocking
:class:`~twistmq.client.blocking.connection.Connection`, to the engine and to tests.

Responses may come in any order; their opaque numbers identify their requests. A response that
comes after its time-out is dropped. Deadlines are kept in buckets of ``DEADLINE_STEP_MS``, so that
a request does not need a timer of its own.

Source: NettyRemotingAbstract (responseTable, scanResponseTable), NettyRemotingClient,
AclClientRPCHook @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from twistmq.client.base.errors import RemotingError, RemotingSendError, RemotingTimeout
from twistmq.protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    VERSION,
    RemotingCommand,
    decode_command,
    encode_reply,
    encode_request,
)
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, FrameDecoder
from twistmq.protocol.header import CommandHeader, EmptyHeader, ext_fields_of, header_values
from twistmq.protocol.json_text import RequestTemplate, request_frame

if TYPE_CHECKING:
    from twistmq.protocol.signature import Credentials

__all__ = ["DEADLINE_STEP_MS", "Filled", "Link", "OnReply", "Outcome", "Request"]

#: A time-out may be late by at most this time, in ms.
DEADLINE_STEP_MS: Final = 16
#: The number of server requests in one piece of data; a server that sends more is disconnected.
SERVER_REQUESTS_MAX: Final = 1024
#: An opaque is an int32, and Apache's clients count up from 0.
_OPAQUE_MASK: Final = 0x7FFFFFFF

#: A response, or the error that occurred instead.
Outcome = RemotingCommand | RemotingError
OnReply = Callable[[Outcome], object]

_EMPTY: Final = EmptyHeader()


class Filled(msgspec.Struct, gc=False):
    """A header in which only some fields are new; for links without credentials.

    :param values: the values of these fields, as ``RequestTemplate.frame`` takes them.
    """

    template: RequestTemplate
    values: tuple[object, ...]


class Request(msgspec.Struct):
    """A request that waits for its response."""

    code: int
    opaque: int
    #: The encoded request, so that another connection can send it once more.
    frame: bytes
    on_reply: OnReply

    def replied(self, outcome: Outcome) -> None:
        """Handle the response, or the error that occurred instead."""
        self.on_reply(outcome)


class Link:
    """The state of one connection.

    :param address: "host:port", for error texts.
    :param credentials: the account with which requests are signed; None: they are not signed.
    :param opaques: the counter of opaques; links that share it can hand requests to each other.
    :param extra_fields: fields that every request has in addition to the fields of its header.
    """

    def __init__(
        self, address: str, credentials: Credentials | None = None,
        opaques: count[int] | None = None, extra_fields: dict[str, str] | None = None,
    ) -> None:
        self.address = address
        self.credentials = credentials
        self._extra_fields = extra_fields or {}
        #: The waiting requests by opaque, the oldest first.
        self.waiting: dict[int, Request] = {}
        #: Whether the connection is open. Until it is, requests are kept; a request that times out
        #: before that is never sent.
        self.is_open = False
        #: The error with which the connection ended.
        self.failure: RemotingError | None = None
        self._opaques = count(1) if opaques is None else opaques
        self._decoder = FrameDecoder()
        self._output: list[bytes] = []
        #: The opaques by the end of their time step.
        self._deadlines: dict[int, list[int]] = {}

    def opened(self) -> None:
        """Send the waiting requests, because the connection is open."""
        self.is_open = True
        self._output.extend([request.frame for request in self.waiting.values()])

    # --- out

    def request(
        self, code: int, header: CommandHeader | Filled | None, body: bytes, on_reply: OnReply,
        deadline_ms: float | None,
    ) -> Request:
        """Send a request.

        :param on_reply: called once, with the response or a ``RemotingError``.
        :param deadline_ms: by the clock of :meth:`expire`; None: the owner measures the time
            and calls :meth:`forget`.
        :returns: the request; its opaque is the argument of :meth:`forget`.
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
        """Send a request that is already encoded, perhaps by another link."""
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
        """Answer a request of the server; a one-way request does not get a response."""
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
            # Imported here, because most clients do not sign requests.
            from twistmq.protocol.signature import signed_fields

            fields = signed_fields(fields, body, VERSION, self.credentials)
        return encode_request(code, opaque, None, body, oneway=bool(flag & ONEWAY_FLAG),
                              serialize_type=JSON, extra_fields=fields)

    def take_output(self) -> bytes:
        """Return the bytes to send; each byte is returned only once."""
        output = self._output
        if not output:
            return b""
        data = output[0] if len(output) == 1 else b"".join(output)
        output.clear()
        return data

    @property
    def pending_bytes(self) -> int:
        """The number of received bytes that belong to an incomplete frame."""
        return self._decoder.pending_bytes

    @property
    def has_output(self) -> bool:
        """Whether there are bytes to send."""
        return bool(self._output)

    # --- in

    def received(self, data: bytes) -> list[RemotingCommand]:
        """Process bytes from the server, and call back for each response in them.

        If the bytes are not valid frames, :attr:`failure` is set and all requests fail; the owner
        then closes the connection.

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
        """Ignore the response to a request; :returns: the request if it is still waiting."""
        return self.waiting.pop(opaque, None)

    def lost(self, reason: str, kind: type[RemotingError] = RemotingSendError) -> None:
        """End the link: all waiting requests fail, and so do later requests.

        :param reason: the reason, which follows "ADDRESS: the connection was lost: " in the text.
        :param kind: the class of the error.
        """
        if self.failure is not None:
            return
        text = f"{self.address}: the connection was lost: {reason}"
        if kind is not RemotingSendError:
            text = f"connect to {self.address} failed: {reason}"
        from twistmq.protocol.printable import one_line

        # The address comes from a name server, and the reason may come from the server.
        self.failure = kind(one_line(text))
        self._output.clear()
        self._deadlines.clear()
        waiting, self.waiting = self.waiting, {}
        for request in waiting.values():
            request.replied(self._fault())

    def _fault(self) -> RemotingError:
        """Return a copy of the failure for one request, because raising adds to the traceback."""
        assert self.failure is not None
        return type(self.failure)(str(self.failure))

    # --- time

    @property
    def next_deadline_ms(self) -> float | None:
        """The time of the next call of :meth:`expire`."""
        return min(self._deadlines) * DEADLINE_STEP_MS if self._deadlines else None

    def expire(self, now_ms: float) -> int:
        """Fail the requests that have timed out; :returns: their number."""
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
        """Return the sizes of the link's containers, for tests of growth."""
        return {"waiting": len(self.waiting), "deadline_steps": len(self._deadlines),
                "pending_bytes": self._decoder.pending_bytes}
