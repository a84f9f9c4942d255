"""The client without sockets: connections by address, requests, and the effects for a shell.

A shell owns the sockets and the clock. It reports events to the engine
(:meth:`Engine.connected`, :meth:`~Engine.received`, :meth:`~Engine.lost`), calls
:meth:`Engine.run`, and then performs the effects that :meth:`Engine.take_effects` returns:

    effect    the shell
    Connect   opens a connection to an address, then calls ``connected`` or ``lost``
    Write     sends bytes
    Close     closes a connection or stops opening it; it then reports nothing more about it
    Work      runs a blocking function (a file, DNS, HTTP) elsewhere, then calls ``worked``

The engine never waits and does not read the time itself, so one implementation serves blocking
callers, asyncio, Twisted and the tests, which set their own clock and need no network. A shell
stays small: it only translates effects into calls of its event loop.

Each address has one connection, which is made when the first request needs it. A connection that
was idle for ``IDLE_MS`` is closed, and so is one with ``TIMEOUTS_MAX`` time-outs in a row. If a
server answers GO_AWAY, the engine sends the same request once more on a new connection.

Source: NettyRemotingClient (getAndCreateChannel, invokeImpl with GO_AWAY, idle state handler)
@5.3.3. Differs from Apache: its client closes a connection after one long time-out, and the other
requests on that connection fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from twistmq.client.base.errors import (
    Closed,
    ConnectTimeout,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
)
from twistmq.client.core.connection.link import Filled, Link, OnReply, Outcome, Request
from twistmq.client.core.connection.tasks import Clock, Future, Scheduler, Timer
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.header import CommandHeader

if TYPE_CHECKING:
    from twistmq.protocol.signature import Credentials

__all__ = ["Close", "Connect", "Connection", "Effect", "Engine", "Work", "Write"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The time without traffic after which a connection is closed, in ms. Source: NettyClientConfig.
IDLE_MS: Final = 120_000
#: The number of time-outs in a row, with nothing received in between, that close a connection.
TIMEOUTS_MAX: Final = 3
#: The shortest time between two log lines about failed server requests of one code, in ms.
COMPLAINT_MS: Final = 1000
#: A plain int, because comparing it is faster.
_GO_AWAY: Final = int(ResponseCode.GO_AWAY)


class Connect(NamedTuple):
    """Open a connection, with the client's TLS context if it has one.

    A ``Close`` follows if opening the connection takes too long.
    """

    number: int
    address: str


class Write(NamedTuple):
    """Send bytes on a connection."""

    number: int
    data: bytes


class Close(NamedTuple):
    """Close a connection."""

    number: int


class Work(NamedTuple):
    """Run a blocking function, then report its result or its exception to the engine."""

    number: int
    function: Callable[[], object]


Effect = Connect | Write | Close | Work


class Connection:
    """A connection of the engine: a link and its state.

    ``local_address`` is "ip:port" once the connection is open.
    """

    __slots__ = ("address", "last_ms", "late", "link", "local_address", "number", "timeouts")

    def __init__(self, number: int, address: str, link: Link, now_ms: float) -> None:
        self.number = number
        self.address = address
        self.link = link
        self.local_address = ""
        #: Closes the connection unless it opens in time.
        self.late: Timer | None = None
        self.last_ms = now_ms
        self.timeouts = 0

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self.link.is_open and self.link.failure is None


class _Call(Request):
    """A request of an engine, which examines the response before it passes it to the caller."""

    engine: Engine
    connection: Connection
    deadline_ms: float

    def replied(self, outcome: Outcome) -> None:
        """See :class:`~twistmq.client.core.connection.link.Request`."""
        if isinstance(outcome, RemotingCommand):
            if outcome.code == _GO_AWAY:
                self.engine.went_away(self)
                return
        elif isinstance(outcome, RemotingTimeout):
            connection = self.connection
            if not connection.link.is_open:
                outcome = ConnectTimeout(
                    f"connect to {connection.address} failed: it takes too long")
            self.engine.timed_out(connection)
        self.on_reply(outcome)


class Engine:
    """All connections of one client.

    :param clock: the process's clocks, or a test's.
    :param credentials: the account with which requests are signed; None: they are not signed.
    :param connect_timeout_ms: the time-out for opening a connection, including TLS, in ms.
    :param extra_fields: fields that every request has in addition to the fields of its header.

    The functions in ``on_open`` are called with each connection that opens, and the functions in
    ``on_lost`` with each connection that ends after it was open. ``handlers`` serve the requests
    of servers, by code: a handler gets the connection and the request, and answers with
    ``connection.link.answer``.
    """

    def __init__(
        self, clock: Clock, *, credentials: Credentials | None = None,
        connect_timeout_ms: float = 3000, extra_fields: dict[str, str] | None = None,
    ) -> None:
        self.tasks = Scheduler(clock)
        self.tasks.on_failure = _log_failure
        self.credentials = credentials
        self.connect_timeout_ms = connect_timeout_ms
        self._extra_fields = extra_fields
        #: Called with the address, code and body of each request.
        self.on_request: Callable[[str, int, bytes], object] | None = None
        self.on_open: list[Callable[[Connection], object]] = []
        self.on_lost: list[Callable[[Connection], object]] = []
        self.handlers: dict[int, Callable[[Connection, RemotingCommand], object]] = {}
        self._numbers = count(1)
        self._opaques = count(1)
        #: The open and opening connections, by address; and all that are not closed, by number.
        self._by_address: dict[str, Connection] = {}
        self._connections: dict[int, Connection] = {}
        #: The connections that may have bytes to send.
        self._dirty: dict[int, Connection] = {}
        self._effects: list[Effect] = []
        self._work: dict[int, Future[Any]] = {}
        self._expiry: Timer | None = None
        self._idle: Timer | None = None
        self._closed: Exception | None = None
        #: The number of bytes that the shell was given and has not sent; a shell replaces it.
        self.unsent_bytes: Callable[[], int] = lambda: 0
        #: The codes of server requests without a handler; each code is logged once.
        self._unknown: set[int] = set()
        #: The time of the last log line about a failed server request, and the number of failures
        #: since then that were not logged, by code.
        self._complaints: dict[int, tuple[float, int]] = {}

    # --- requests

    @property
    def is_plain(self) -> bool:
        """Whether requests have no fields except those in their headers."""
        return self.credentials is None and not self._extra_fields

    def request(
        self, address: str, code: int, header: CommandHeader | Filled | None, body: bytes,
        on_reply: OnReply, timeout_ms: float,
    ) -> None:
        """Send a request; a connection is opened if it is needed.

        :param on_reply: called once, perhaps before this method returns, with the response or the
            error.
        """
        if self._closed is not None:
            on_reply(RemotingConnectError(f"connect to {address} failed: {self._closed}"))
            return
        if self.on_request is not None:
            self.on_request(address, code, body)
        connection = self._by_address.get(address) or self.connection(address)
        now_ms = self.tasks.now_ms
        deadline_ms = now_ms + timeout_ms
        link = connection.link
        opaque, frame = link.encode(code, header, body)
        link.send(_Call(code, opaque, frame, on_reply, self, connection, deadline_ms), deadline_ms)
        connection.last_ms = now_ms
        self._dirty[connection.number] = connection
        if self._expiry is None or self._expiry.due_ms > deadline_ms + 32:
            self._plan_expiry()

    def went_away(self, call: _Call) -> None:
        """The server sends clients away: send the request once more, on a new connection."""
        self._leave(call.connection)
        address, on_reply = call.connection.address, call.on_reply
        connection = self.connection(address)

        def replied(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.GO_AWAY:
                self._leave(connection)
                outcome = RemotingSendError(f"{address} sends clients away")
            on_reply(outcome)

        connection.link.send(
            Request(call.code, call.opaque, call.frame, replied), call.deadline_ms)
        self._wrote(connection)
        self._plan_expiry()

    def invoke(
        self, address: str, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        timeout_ms: float = 3000,
    ) -> Future[RemotingCommand]:
        """Send a request.

        :returns: the response with any code; the future's errors are ``RemotingError``.
        """
        future: Future[RemotingCommand] = Future()

        def replied(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingCommand):
                future.set_result(outcome)
            else:
                future.set_error(outcome)

        self.request(address, code, header, body, replied, timeout_ms)
        return future

    def send_oneway(
        self, address: str, code: int, header: CommandHeader | None = None, body: bytes = b""
    ) -> None:
        """Send a request that is not answered; if the connection fails, it is dropped."""
        if self._closed is None:
            connection = self.connection(address)
            connection.link.send_oneway(code, header, body)
            self._wrote(connection)

    def answer(
        self, connection: Connection, request: RemotingCommand, code: int, body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer a request of a server after its handler has returned.

        Without effect when the connection has ended.
        """
        if connection.number in self._connections:
            connection.link.answer(request, code, None, body, remark)
            self._wrote(connection)

    def in_thread(self, function: Callable[[], T]) -> Future[T]:
        """Let the shell run a blocking function; :returns: a future with its result."""
        number = next(self._numbers)
        future: Future[T] = Future()
        self._work[number] = future
        self._effects.append(Work(number, function))
        return future

    # --- connections

    def connection(self, address: str) -> Connection:
        """Return the connection to an address; it is opened if it is needed."""
        connection = self._by_address.get(address)
        if connection is None:
            number = next(self._numbers)
            link = Link(address, self.credentials, self._opaques, self._extra_fields)
            connection = Connection(number, address, link, self.tasks.now_ms)
            self._by_address[address] = self._connections[number] = connection
            connection.late = self.tasks.call_later(self.connect_timeout_ms, self._late, number)
            self._effects.append(Connect(number, address))
            if self._idle is None:
                self._idle = self.tasks.call_later(IDLE_MS / 4, self._close_idle)
        return connection

    def _late(self, number: int) -> None:
        """End a connection that did not open in time."""
        self._effects.append(Close(number))
        self.lost(number, "it takes too long")

    def under_way(self, address: str) -> int:
        """Return the number of requests to an address that have not been answered."""
        connection = self._by_address.get(address)
        return 0 if connection is None else len(connection.link.waiting)

    def open_addresses(self) -> list[str]:
        """Return the addresses of open connections."""
        return [each.address for each in self._by_address.values() if each.is_open]

    def _wrote(self, connection: Connection) -> None:
        connection.last_ms = self.tasks.now_ms
        self._dirty[connection.number] = connection

    def _leave(self, connection: Connection) -> None:
        """Send nothing more on a connection, and close it when its last response has arrived."""
        if self._by_address.get(connection.address) is connection:
            del self._by_address[connection.address]
        if not connection.link.waiting:
            self._close(connection, "the server sends clients away")

    def timed_out(self, connection: Connection) -> None:
        """Count a request that was not answered in time."""
        connection.timeouts += 1
        if connection.timeouts >= TIMEOUTS_MAX and connection.number in self._connections:
            self._close(connection, f"{TIMEOUTS_MAX} requests in a row were not answered")

    def _close(self, connection: Connection, reason: str) -> None:
        """Close a connection; its requests fail."""
        if self._connections.pop(connection.number, None) is None:
            return
        if self._by_address.get(connection.address) is connection:
            del self._by_address[connection.address]
        data = connection.link.take_output()
        if data and connection.is_open:
            self._effects.append(Write(connection.number, data))
        self._effects.append(Close(connection.number))
        self._ended(connection, reason)

    def _ended(self, connection: Connection, reason: str) -> None:
        was_open = connection.is_open
        # Nothing was sent on a connection that was never open.
        kind = RemotingSendError if connection.link.is_open else RemotingConnectError
        if connection.late is not None:
            connection.late.cancel()
        self._dirty.pop(connection.number, None)
        connection.link.lost(reason, kind)
        if was_open:
            for listener in list(self.on_lost):
                listener(connection)

    def _close_idle(self) -> None:
        self._idle = None
        limit = self.tasks.now_ms - IDLE_MS
        for connection in list(self._connections.values()):
            if connection.last_ms < limit and not connection.link.waiting:
                self._close(connection, "it was idle")
        if self._connections:
            self._idle = self.tasks.call_later(IDLE_MS / 4, self._close_idle)

    def _plan_expiry(self) -> None:
        """Set the timer for the next time-out of any link."""
        times = [due for each in self._connections.values()
                 if (due := each.link.next_deadline_ms) is not None]
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if times:
            self._expiry = self.tasks.call_later(min(times) - self.tasks.now_ms, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for connection in list(self._connections.values()):
            connection.link.expire(self.tasks.now_ms)
        self._plan_expiry()

    # --- events that the shell reports

    def connected(self, number: int, local_address: str) -> None:
        """A connection was opened; ``local_address`` is our "ip:port"."""
        connection = self._connections.get(number)
        if connection is not None:
            connection.link.opened()
            if connection.late is not None:
                connection.late.cancel()
            connection.local_address = local_address
            connection.last_ms = self.tasks.now_ms
            self._dirty[number] = connection
            for listener in list(self.on_open):
                listener(connection)

    def received(self, number: int, data: bytes) -> None:
        """Bytes were received on a connection."""
        connection = self._connections.get(number)
        if connection is None:
            return
        connection.last_ms = self.tasks.now_ms
        link = connection.link
        pending_bytes = link.pending_bytes + len(data)
        for request in link.received(data):
            self._serve(connection, request)
        if link.pending_bytes < pending_bytes:
            # A frame is complete. A frame that only arrives byte by byte does not prove that the
            # server still works.
            connection.timeouts = 0
        if link.failure is not None:
            log.warning("%s", link.failure)
            self._close(connection, "it broke the protocol")
        elif connection is not self._by_address.get(connection.address) and not link.waiting:
            self._close(connection, "the server sends clients away")

    def lost(self, number: int, reason: str) -> None:
        """A connection ended or could not be opened."""
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        if self._by_address.get(connection.address) is connection:
            del self._by_address[connection.address]
        self._ended(connection, reason)

    def worked(self, number: int, result: object, error: BaseException | None) -> None:
        """The function of a ``Work`` effect has returned or raised."""
        future = self._work.pop(number, None)
        if future is None:
            return
        if error is not None:
            future.set_error(error)
        else:
            future.set_result(result)

    def _serve(self, connection: Connection, request: RemotingCommand) -> None:
        handler = self.handlers.get(request.code)
        if handler is None:
            if request.code not in self._unknown and len(self._unknown) < 64:
                self._unknown.add(request.code)
                log.warning("%s sent a request with the code %d, which this client does not serve",
                            connection.address, request.code)
            connection.link.answer(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, None, b"",
                                   f"request code {request.code} is not supported")
        else:
            try:
                handler(connection, request)
            except Exception as error:
                self._complain(connection.address, request.code, error)
                connection.link.answer(request, ResponseCode.SYSTEM_ERROR, None, b"", str(error))
        self._dirty[connection.number] = connection

    def _complain(self, address: str, code: int, error: Exception) -> None:
        """Log the failure of a server request; at most once a second for each code."""
        now_ms = self.tasks.now_ms
        last_ms, left_out = self._complaints.get(code, (float("-inf"), 0))
        if now_ms - last_ms < COMPLAINT_MS:
            self._complaints[code] = last_ms, left_out + 1
            return
        self._complaints[code] = now_ms, 0
        from twistmq.protocol.log_rate import lines_left_out
        from twistmq.protocol.printable import one_line

        log.warning("a request of %s with the code %d failed: %s%s", address, code,
                    one_line(str(error)), lines_left_out(left_out))

    # --- the shell's loop

    def run(self) -> float | None:
        """Run timers and tasks; :returns: when to run again, in monotonic ms, or None."""
        return self.tasks.run()

    def take_effects(self) -> list[Effect]:
        """Return the effects that the shell has to perform now, in order, each only once."""
        dirty = self._dirty
        effects, self._effects = self._effects, []
        if dirty:
            for number, connection in list(dirty.items()):
                if connection.is_open:
                    data = connection.link.take_output()
                    if data:
                        effects.append(Write(number, data))
                    del dirty[number]
        return effects

    @property
    def has_output(self) -> bool:
        """Whether bytes wait to be sent, perhaps until a connection opens."""
        return self.unsent_bytes() > 0 or any(
            each.link.has_output for each in self._connections.values())

    def close(self) -> None:
        """Close all connections and stop all tasks; later requests fail."""
        if self._closed is not None:
            return
        self._closed = Closed("the client is closed")
        for connection in list(self._connections.values()):
            self._close(connection, "the client closes")
        for task in list(self.tasks.tasks):
            task.cancel()

    def debug_counts(self) -> dict[str, int]:
        """Return the sizes of the engine's containers, for tests of growth."""
        return {"tasks": len(self.tasks.tasks), "timers": self.tasks.timer_count,
                "connections": len(self._connections), "work": len(self._work),
                "waiting": sum(len(each.link.waiting) for each in self._connections.values())}


def _log_failure(task: Any, error: Exception) -> None:
    from twistmq.protocol.printable import one_line

    # A traceback only helps to find the cause of an unexpected error.
    stack = None if isinstance(error, BrokerError) else error
    log.error("the task %s of the client failed: %s", task.name, one_line(str(error)),
              exc_info=stack)
