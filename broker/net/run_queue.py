"""The run queue: connections whose requests wait to be run, in round-robin order.

A single thread serves all connections, so one connection with many requests could delay all others.
Leaving excess requests in the operating system's buffers would not help: there they can
neither be counted nor rejected, and their waiting time is unknown. The run queue therefore keeps
the requests that cannot run at once in this process, and gives the connections turns of a few
milliseconds. After each step of the queue the reactor reads all sockets again.

While the broker keeps up, the requests of one read run at once. They wait if requests of an earlier
read still wait. With flow control they also wait when the broker is overloaded: when other
connections wait, when the socket had more data than one read returns, or when the reactor's round
has lasted too long. The sends of all connections that a step serves form one batch. While the
broker keeps up, the sends of connections with few requests each are joined too, if the reactor
finds that other connections have input.

Source: the executors and queues of BrokerController @5.3.3, as far as they apply to one thread.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twistmq.broker.constants import TURN_SECONDS
from twistmq.broker.net.isolated_flow_control import IsolatedFlowControl
from twistmq.broker.net.slices import PIECE_FRAMES_MAX, Connection, Slice, SliceBatch
from twistmq.protocol.frame import Frame

if TYPE_CHECKING:
    from twistmq.broker.remoting.interfaces import IFlowControl

__all__ = ["READ_SIZE", "READ_SIZE_BEHIND", "TLS_RECORD_SIZE", "RunQueue", "WaitingFrames"]

#: The number of bytes that Twisted reads from a socket at a time. After a full read the socket may
#: hold more.
READ_SIZE: Final = 65_536
#: The difference by which a full read may be shorter once it is decrypted: an incomplete record and
#: overhead.
TLS_RECORD_SIZE: Final = 18 * 1024
#: The number of bytes to read at a time under overload, so that flow control sees requests early.
READ_SIZE_BEHIND: Final = 1024 * 1024
#: Small reads within this time are joined into one piece, seconds.
_TOGETHER_SECONDS: Final = 0.020
#: The interval at which the queue records that the reactor begins a round, seconds.
_TICK_SECONDS: Final = 0.010
#: Requests that are read later than this after the start of a round wait, seconds. The queue may
#: record the start a tick too early.
_LATE_SECONDS: Final = 0.020 + _TICK_SECONDS
#: The interval of the ticks after ``_QUIET_TICKS_MAX`` of them without input, seconds. A broker
#: that gets few requests would otherwise spend most of its processor time on them.
_IDLE_TICK_SECONDS: Final = 1.0
_QUIET_TICKS_MAX: Final = 5


class WaitingFrames:
    """The waiting requests of one connection, in order of arrival.

    :param run_queue: counts the requests over all connections.
    """

    __slots__ = ("_pieces", "_run_queue", "request_count", "size_bytes")

    def __init__(self, run_queue: RunQueue) -> None:
        self._run_queue = run_queue
        #: The time of arrival in seconds, the frames, and their bytes, for each piece.
        self._pieces: deque[tuple[float, Sequence[Frame], int]] = deque()
        self.request_count = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, frames: Sequence[Frame], arrival_s: float) -> None:
        """Append frames."""
        for begin in range(0, len(frames), PIECE_FRAMES_MAX):
            piece = frames[begin:begin + PIECE_FRAMES_MAX]
            size = sum([len(header) + len(body) for _, header, body in piece])
            self._pieces.append((arrival_s, piece, size))
            self._count(len(piece), size)

    def take(self) -> tuple[float, Sequence[Frame]]:
        """Remove the oldest piece, joined with pieces that arrived at about the same time.

        :returns: the time of arrival, and the frames.
        """
        pieces = self._pieces
        arrival_s, piece, size = pieces.popleft()
        if pieces and len(piece) < PIECE_FRAMES_MAX:
            piece = list(piece)
            while pieces and pieces[0][0] <= arrival_s + _TOGETHER_SECONDS and (
                len(piece) + len(pieces[0][1]) <= PIECE_FRAMES_MAX
            ):
                _, more, more_size = pieces.popleft()
                piece += more
                size += more_size
        self._count(-len(piece), -size)
        return arrival_s, piece

    def frames(self) -> Iterator[Frame]:
        """Iterate over all waiting frames; do not keep references to them."""
        return chain.from_iterable(piece for _, piece, _ in self._pieces)

    def head_came(self) -> float | None:
        """The time of arrival of the oldest piece, seconds."""
        return self._pieces[0][0] if self._pieces else None

    def restart_wait(self, now: float) -> None:
        """Restart the waiting time, because until now the frames waited for their own peer."""
        self._pieces = deque((now, piece, size) for _, piece, size in self._pieces)

    def clear(self) -> None:
        """Drop all frames, because the peer can no longer read replies."""
        self._count(-self.request_count, -self.size_bytes)
        self._pieces.clear()

    def _count(self, requests: int, size: int) -> None:
        self.request_count += requests
        self.size_bytes += size
        self._run_queue.request_count += requests
        self._run_queue.size_bytes += size
        assert self.request_count >= 0 and self.size_bytes >= 0


class RunQueue:
    """The connections with waiting requests, the next one to run first.

    :param reactor: runs the steps of the queue.
    :param monotonic: a clock in seconds that never jumps.
    :param observe: called with the name of the work, and the seconds that it blocked the reactor.
    """

    def __init__(
        self, reactor: IReactorTime, monotonic: Callable[[], float],
        observe: Callable[[str, float], None] = lambda what, seconds: None,
    ) -> None:
        self._reactor = reactor
        self._monotonic = monotonic
        self._observe = observe
        #: The connections in order; a mapping, so that one can leave from the middle.
        self._connections: OrderedDict[Connection, WaitingFrames] = OrderedDict()
        self._step_call: IDelayedCall | None = None
        self._tick_call: IDelayedCall | None = None
        self._late_at = 0.0
        #: Whether the socket of a connection was read since the last tick.
        self._has_read = False
        #: The number of ticks since the last one that followed a read.
        self._quiet_ticks = 0
        self._is_idle = False
        self._batch = SliceBatch()
        #: The number of waiting requests, and their bytes, over all connections.
        self.request_count = 0
        self.size_bytes = 0
        #: Rejects requests under overload. If None, reading stops while requests wait.
        self.flow_control: IFlowControl | None = None

    @property
    def connection_count(self) -> int:
        """The number of connections with waiting requests."""
        return len(self._connections)

    def head_wait_ms(self) -> int:
        """The waiting time of the oldest request, ms."""
        arrivals = [head for waiting in self._connections.values()
                    if (head := waiting.head_came()) is not None]
        return round((self._monotonic() - min(arrivals)) * 1000) if arrivals else 0

    def frames(self) -> Iterator[Frame]:
        """Iterate over the waiting requests by connection; do not keep references to them."""
        return chain.from_iterable(waiting.frames() for waiting in self._connections.values())

    def start(self, flow_control: IFlowControl | None) -> None:
        """Begin to measure the reactor's rounds, if there is flow control that uses the result."""
        if flow_control is not None and self._tick_call is None:
            self.flow_control = IsolatedFlowControl(flow_control)
            now = self._monotonic()
            self._late_at = now + _LATE_SECONDS
            self._tick_call = self._reactor.callLater(_TICK_SECONDS, self._tick)

    def stop(self) -> None:
        """Stop measuring, and forget all connections."""
        self.flow_control = None
        for call in (self._tick_call, self._step_call):
            if call is not None:
                call.cancel()
        self._tick_call = self._step_call = None
        self._connections.clear()
        self._batch = SliceBatch()

    def is_behind(self, begin: float, read_bytes: int) -> bool:
        """Return whether the requests of a read must wait; called if flow control is in use.

        :param begin: the time when the read began, seconds.
        :param read_bytes: the length of the read.
        """
        self._has_read = True
        if self._is_idle:
            self._end_idleness(begin)
        return bool(self._connections) or read_bytes >= READ_SIZE or begin > self._late_at

    def _end_idleness(self, now: float) -> None:
        """Tick often again; the read at this time counts as the start of the round."""
        self._is_idle = False
        self._begin_round(now)
        if self._tick_call is not None:
            self._tick_call.reset(_TICK_SECONDS)

    def add(self, connection: Connection, waiting: WaitingFrames) -> None:
        """Queue a connection after the connections that wait already."""
        if connection not in self._connections:
            self._connections[connection] = waiting
        if self._step_call is None:
            self._step_call = self._reactor.callLater(0, self._step)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that no longer has waiting requests."""
        self._connections.pop(connection, None)
        if not self._connections and not self.is_joining and self._step_call is not None:
            self._step_call.cancel()
            self._step_call = None

    @property
    def is_joining(self) -> bool:
        """Whether slices wait to be joined with others in this round of the reactor."""
        return bool(self._batch)

    def join(self, part: Slice) -> None:
        """Join a slice with slices of other connections, after the reactor has read their sockets.
        """
        self._batch.add(part)
        if self._step_call is None:
            self._step_call = self._reactor.callLater(0, self._step)

    def run_joined(self) -> None:
        """Run the joined slices."""
        self._batch.run()

    def _begin_round(self, now: float) -> None:
        self._late_at = now + _LATE_SECONDS
        if self.flow_control is not None:
            self.flow_control.begin_round(self)

    def _tick(self) -> None:
        self._begin_round(self._monotonic())
        self._quiet_ticks = 0 if self._has_read else self._quiet_ticks + 1
        self._has_read = False
        self._is_idle = self._quiet_ticks >= _QUIET_TICKS_MAX
        self._tick_call = self._reactor.callLater(
            _IDLE_TICK_SECONDS if self._is_idle else _TICK_SECONDS, self._tick)

    def _step(self) -> None:
        """Serve connections in order until the time of one slice is over."""
        self._step_call = None
        now = self._monotonic()
        self._begin_round(now)
        end = now + TURN_SECONDS
        while self._connections:
            connection, _ = self._connections.popitem(last=False)
            part = connection.begin_slice()
            if part is None:
                continue
            if part.code is None:
                connection.run_slice(part)
            else:
                self._batch.add(part)
                if self._batch.is_full:
                    self._batch.run()
            if self._monotonic() >= end:
                break
        self._batch.run()
        self._observe("requests", self._monotonic() - now)
        if self._connections and self._step_call is None:
            self._step_call = self._reactor.callLater(0, self._step)
