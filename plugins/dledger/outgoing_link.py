"""A connection to another member of the group, which is made again when it is lost.

A connection that does not answer although the member should have is closed, because a host that has
lost its power, or a network that drops packets, leaves connections open.

An answer to a push lets the core read, encode and send the next one, and a member that is
far behind gets large pushes. Several answers may arrive together. A link that has sent a large
request therefore holds further answers back until the reactor has served clients and other members.
It holds them longer if all entries of the request are committed, because such a request serves only
the member that lags.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IAddress, IProtocol
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.wire import FRAME_SIZE_MAX, Frame, RemotingCommand, decode_command
from twistmq.plugins.dledger.translation import read_response, write_request
from twistmq.plugins.replica.link import Link
from twistmq.protocol.bodies.dledger import ANSWER_CODE
from twistmq.protocol.command import encode_request
from twistmq.protocol.errors import RemotingError, WireError
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.printable import one_line
from twistmq.raft.messages import PushRequest, Request, Response

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["OutgoingLink"]

#: How long a connection may take to be made, and how long no other one is tried after a failure.
CONNECT_MS: Final = 1000
RETRY_MS: Final = 200
#: The time after the start of this member within which the others may start too, ms: the members of
#: a group are usually started together.
START_MS: Final = 10_000
#: How often a lost connection is made again to find out whether the member's process has ended.
LOOKS_MAX: Final = 3
#: How long a member may take to answer. The core gives up earlier, after 3 s.
ANSWER_MS: Final = 4000
#: The limits of requests that wait for their answers. The core's own window is smaller, but it does
#: not count the pushes that it has given up.
UNANSWERED_MAX: Final = 1024
UNANSWERED_BYTES_MAX: Final = 16 * 1024**2
#: The frame of a large request has at least this size, in bytes. A full push has 256 KiB of bodies
#: and a frame of about 350 KiB.
LARGE_BYTES: Final = 192 * 1024
#: How long a link holds answers back after a large push of committed entries, ms. With
#: this pause, a member that lags receives about 50 MB a second, and a send takes less than twice
#: its usual time while the member catches up.
CATCH_UP_REST_MS: Final = 3
#: The largest opaque, after which the numbers begin again.
_OPAQUE_MAX: Final = 2**31 - 1
#: The largest number of characters of a remark that an error shows.
_SHOWN_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class _Call:
    """A request that waits for its answer. ``size`` counts the bytes of its frame."""

    request: Request
    answer: Deferred[Response]
    sent_ms: int
    size: int


class _Connection(Link):
    """One TCP connection of a link."""

    def __init__(self, owner: OutgoingLink) -> None:
        super().__init__()
        self._owner = owner
        self._decoder = FrameDecoder()
        self._waiting: deque[bytes] = deque()

    def send(self, frame: bytes) -> None:
        """Send a frame, which waits here while earlier bytes wait in the transport.

        The transport would copy all large frames that wait into one buffer.
        """
        if self.is_full:
            self._waiting.append(frame)
        else:
            self.write_soon(frame)

    def resumeProducing(self) -> None:
        """Send the frames that wait, as far as the transport has room."""
        super().resumeProducing()
        while self._waiting and not self.is_full:
            self.write_soon(self._waiting.popleft())

    def dataReceived(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            self._owner.frame_arrived(frame)
        if self._decoder.failure:
            self._owner.close(f"it does not answer as a member: {self._decoder.failure}")

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self._owner.connection_lost(self, reason.getErrorMessage())


class _Factory(Factory):
    """Makes the protocol of one connection."""

    noisy = False

    def __init__(self, owner: OutgoingLink) -> None:
        self._owner = owner

    def buildProtocol(self, addr: IAddress | None) -> _Connection:
        return _Connection(self._owner)


class OutgoingLink:
    """A link to one member, for requests of one kind.

    :param address: "host:port".
    :param is_encrypted: whether TLS is used.
    :param refused: called when the host of the member refuses a connection.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, member: str, address: str, *, is_encrypted: bool,
        refused: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._now_ms = broker.steady.now_ms
        self.member = member
        self.address = address
        self._is_encrypted = is_encrypted
        self._refused = refused
        self._lines = LimitedLog(self.log)
        #: Whether it was logged that the member cannot be reached.
        self._is_out = False
        #: Until this time, a member that was never reached may still be starting.
        self._start_end_ms = self._now_ms() + START_MS
        self._connection: _Connection | None = None
        self._attempt: Deferred[IProtocol] | None = None
        #: When the next connection may be tried.
        self._retry_ms = 0
        self._last_opaque = 0
        #: The requests that wait for their answers, by opaque, the oldest first.
        self._calls: dict[int, _Call] = {}
        self._calls_bytes = 0
        #: The frames that wait until the connection is made.
        self._frames: list[bytes] = []
        #: Whether a response has come over the present connection, and when the last one came.
        self._is_heard = False
        self._heard_ms = 0
        self._is_closed = False
        #: Whether a large request was sent in this turn, and the answers that wait because of it.
        self._holds_answers = False
        self._answers: deque[tuple[Deferred[Response], Response]] = deque()
        #: How many further connections may be made to find out whether the member still runs.
        self._looks_left = 0

    # --- requests

    def ask(self, request: Request) -> Deferred[Response]:
        """Send a request; see ``GroupLinks.ask``."""
        why = self._find_obstacle()
        if why:
            return fail(RemotingError(why))
        code, body = write_request(request)
        opaque = self._last_opaque = self._last_opaque % _OPAQUE_MAX + 1
        frame = encode_request(code, opaque, None, body)
        if len(frame) > FRAME_SIZE_MAX:
            why = f"a request of {len(frame)} bytes is longer than a frame may be"
            self._lines.error(self._now_ms(), "the member {member} does not get {why}",
                              member=self.member, why=why)
            return fail(RemotingError(why))
        answer: Deferred[Response] = Deferred()
        self._calls[opaque] = _Call(request, answer, self._now_ms(), len(frame))
        self._calls_bytes += len(frame)
        if self._connection is None:
            self._frames.append(frame)
            self.connect()
        else:
            self._connection.send(frame)
        if len(frame) >= LARGE_BYTES and not self._holds_answers:
            self._holds_answers = True
            rest_ms = CATCH_UP_REST_MS if _is_catch_up(request) else 0
            self._broker.host.call_later(rest_ms / 1000, self._release_answers)
        return answer

    def _release_answers(self) -> None:
        """Pass on the answers that have waited, until one of them leads to a large request."""
        self._holds_answers = False
        while self._answers and not self._holds_answers:
            answer, response = self._answers.popleft()
            answer.callback(response)

    def _find_obstacle(self) -> str:
        """Return why no request can be sent now; empty if one can."""
        if self._is_closed:
            return "this member stops"
        if (len(self._calls) >= UNANSWERED_MAX or self._calls_bytes >= UNANSWERED_BYTES_MAX):
            return f"the member {self.member} has {len(self._calls)} requests to answer"
        if self._connection is None and self._attempt is None and self._now_ms() < self._retry_ms:
            return f"the member {self.member} cannot be reached"
        return ""

    def rest_ms(self) -> int | None:
        """Return how long :meth:`tick` has nothing to do, ms; None while no request waits."""
        first = next(iter(self._calls.values()), None)
        return None if first is None else max(first.sent_ms + ANSWER_MS - self._now_ms(), 0)

    def tick(self) -> None:
        """Give up requests that are not answered in time."""
        now_ms = self._now_ms()
        late: list[_Call] = []
        while self._calls:
            opaque = next(iter(self._calls))
            if now_ms - self._calls[opaque].sent_ms < ANSWER_MS:
                break
            late.append(self._take_call(opaque))
        for call in late:
            call.answer.errback(RemotingError(f"the member {self.member} does not answer"))
        if late and self._heard_ms <= late[-1].sent_ms:
            self.close(f"it has not answered for {ANSWER_MS // 1000} s")

    def _take_call(self, opaque: int) -> _Call:
        call = self._calls.pop(opaque)
        self._calls_bytes -= call.size
        return call

    # --- answers

    def frame_arrived(self, frame: Frame) -> None:
        """Pass the response in a frame to the request that it answers."""
        self._heard_ms = self._now_ms()
        self._is_heard = True
        try:
            command = decode_command(frame)
        except WireError as error:
            self.close(f"it sends a header that cannot be read: {error}")
            return
        if not command.is_response or command.opaque not in self._calls:
            # The request was given up, and its answer is late.
            return
        call = self._take_call(command.opaque)
        try:
            response = self._read_response(call.request, command)
        except WireError as error:
            self._lines.warn(
                self._now_ms(), "the member {member} at {address} does not answer as a member: "
                "{why}", member=self.member, address=self.address, why=str(error))
            call.answer.errback(error)
            return
        if self._holds_answers:
            self._answers.append((call.answer, response))
        else:
            call.answer.callback(response)

    def _read_response(self, request: Request, command: RemotingCommand) -> Response:
        """:raises WireError: when it is not a response of a member."""
        if command.code != ANSWER_CODE:
            remark = one_line((command.remark or "")[:_SHOWN_MAX])
            raise WireError(f"the code {command.code}, {remark}")
        return read_response(request, command.body)

    # --- connections

    @property
    def is_connected(self) -> bool:
        """Whether a connection exists."""
        return self._connection is not None

    def connect(self) -> None:
        """Make a connection, unless there is one, one is being made, or this link is closed."""
        if self._connection is not None or self._attempt is not None or self._is_closed:
            return
        self._attempt = self._broker.host.connect_stream(
            _Factory(self), self.address, CONNECT_MS, encrypted=self._is_encrypted)
        self._attempt.addCallbacks(self._connected, self._not_connected)

    def allow_attempt(self) -> None:
        """Let the next request try a connection, however short ago the last one failed."""
        self._retry_ms = 0

    def look(self) -> None:
        """Find out whether the process of a member that has lost a connection has ended.

        A process that ends closes its connections and its port one after the other, so the port may
        still take a connection that is lost a moment later. The next attempt is refused then.
        """
        self._looks_left = LOOKS_MAX
        self.connect()

    def _connected(self, connection: IProtocol) -> None:
        assert isinstance(connection, _Connection)
        self._attempt = None
        self._connection = connection
        self._is_heard = False
        self._start_end_ms = 0
        if self._is_out:
            self._is_out = False
            self.log.info("the member {member} at {address} can be reached again",
                          member=self.member, address=self.address)
        frames, self._frames = self._frames, []
        if frames:
            connection.send(b"".join(frames))

    def _not_connected(self, failure: Failure) -> None:
        self._attempt = None
        if self._is_closed:
            return
        self._retry_ms = self._now_ms() + RETRY_MS
        why = failure.getErrorMessage()
        if not self._is_out and self._now_ms() >= self._start_end_ms:
            # The line is written once for each time in which the member cannot be reached.
            self._is_out = True
            self.log.warn("the member {member} at {address} cannot be reached: {why}",
                          member=self.member, address=self.address, why=why)
        self._fail_calls(why)
        error = failure.value
        if error is not None and isinstance(error.__cause__, ConnectionRefusedError):
            self._refused(self.member)
        elif self._looks_left:
            # A process that ends may also reset an attempt that it has not accepted.
            self._look_again()

    def connection_lost(self, connection: _Connection, why: str) -> None:
        """Fail the requests that were not answered, and find out whether the member still runs."""
        if connection is not self._connection:
            return
        is_heard = self._is_heard
        self._drop_connection(why)
        if is_heard:
            self.look()
        elif self._looks_left:
            # A member that has never answered may close every connection, so there are few attempts
            # without a request.
            self._look_again()

    def _look_again(self) -> None:
        self._looks_left -= 1
        self._broker.host.call_later(RETRY_MS / 1000, self.connect)

    def close(self, why: str) -> None:
        """Close the connection, because the other side does not behave as a member."""
        connection = self._connection
        if connection is not None:
            self._lines.warn(
                self._now_ms(), "the connection to the member {member} at {address} is closed: "
                "{why}", member=self.member, address=self.address, why=why)
            self._drop_connection(why)
            connection.transport.abortConnection()

    def stop(self) -> None:
        """Close the connection for good."""
        self._is_closed = True
        connection, attempt = self._connection, self._attempt
        self._drop_connection("this member stops")
        if connection is not None:
            connection.transport.abortConnection()
        if attempt is not None:
            attempt.cancel()

    def _drop_connection(self, why: str) -> None:
        self._connection = None
        self._fail_calls(f"the connection to the member {self.member} is lost: {why}")

    def _fail_calls(self, why: str) -> None:
        answers = [answer for answer, _ in self._answers]
        answers += [call.answer for call in self._calls.values()]
        self._answers.clear()
        self._calls.clear()
        self._calls_bytes = 0
        self._frames.clear()
        for answer in answers:
            answer.errback(RemotingError(why))


def _is_catch_up(request: Request) -> bool:
    """Return whether a request has nothing but committed entries, for which no send waits."""
    return (isinstance(request, PushRequest) and bool(request.entries)
            and request.entries[-1].index <= request.commit_index)
