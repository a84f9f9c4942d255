"""Requests that wait for their turn, and who has it next.

What one read brought is run at once while the broker keeps up. It waits when the rest of an earlier
read still does; with flow control also when the broker is behind: others wait, the socket had more
than one read takes, or the reactor's round has been going on for too long. What waits is then in
this process, where it is counted and its wait is known, not in the kernel's buffers, where it is
neither. Connections take turns, a few milliseconds together, with everybody's reads in between.

Source: the executors and queues of BrokerController @5.3.3, as far as one thread has them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twistmq.broker.constants import TURN_SECONDS
from twistmq.broker.net.isolated_flow_control import IsolatedFlowControl
from twistmq.broker.wire.frame import Frame

if TYPE_CHECKING:
    from twistmq.broker.interfaces import IFlowControl

__all__ = ["PIECE_FRAMES_MAX", "READ_SIZE", "READ_SIZE_BEHIND", "TLS_RECORD_SIZE", "RunQueue",
           "WaitingFrames"]

#: Bytes that Twisted asks a socket for at a time; a read of so many left something there.
READ_SIZE: Final = 65_536
#: What a full read may lack once it is decrypted: the rest of a record, and what encrypting added.
TLS_RECORD_SIZE: Final = 18 * 1024
#: What is asked for instead while the broker is behind: what came is to be known soon.
READ_SIZE_BEHIND: Final = 1024 * 1024
#: Requests of one turn: sends are one piece of work, and so many take two or three milliseconds.
PIECE_FRAMES_MAX: Final = 256
#: Reads no further apart than this are one piece, when they are small, seconds.
_TOGETHER_SECONDS: Final = 0.020
#: How often it is noted that the reactor begins a round, seconds.
_TICK_SECONDS: Final = 0.010
#: A round that has been going on for so long, and a tick, lets what it reads wait.
_ROUND_SECONDS: Final = 0.020


class Connection(Protocol):
    """What is served here."""

    def take_turn(self) -> None:
        """Run a piece of what waits, if there is any, and ask for another turn if there is more."""


class WaitingFrames:
    """The requests of one connection that wait, in the order they came.

    :param turns: where they are counted.
    """

    __slots__ = ("_pieces", "_turns", "request_count", "size_bytes")

    def __init__(self, turns: RunQueue) -> None:
        self._turns = turns
        #: When each piece came, seconds; its frames; its bytes.
        self._pieces: deque[tuple[float, Sequence[Frame], int]] = deque()
        self.request_count = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, frames: Sequence[Frame], came: float) -> None:
        """Let frames wait, behind those that do."""
        for begin in range(0, len(frames), PIECE_FRAMES_MAX):
            piece = frames[begin:begin + PIECE_FRAMES_MAX]
            size = sum([len(header) + len(body) for _, header, body in piece])
            self._pieces.append((came, piece, size))
            self._count(len(piece), size)

    def take(self) -> tuple[float, Sequence[Frame]]:
        """Take the piece that waits longest, with what came at about the same time.

        :returns: when it came, and its frames.
        """
        pieces = self._pieces
        came, piece, size = pieces.popleft()
        if pieces and len(piece) < PIECE_FRAMES_MAX:
            piece = list(piece)
            while pieces and pieces[0][0] <= came + _TOGETHER_SECONDS and (
                len(piece) + len(pieces[0][1]) <= PIECE_FRAMES_MAX
            ):
                _, more, more_size = pieces.popleft()
                piece += more
                size += more_size
        self._count(-len(piece), -size)
        return came, piece

    def frames(self) -> Iterator[Frame]:
        """Them all; not to be kept."""
        return chain.from_iterable(piece for _, piece, _ in self._pieces)

    def head_came(self) -> float | None:
        """When the piece that waits longest came, seconds."""
        return self._pieces[0][0] if self._pieces else None

    def wait_anew(self, now: float) -> None:
        """Forget how long they wait: it was not for the broker."""
        self._pieces = deque((now, piece, size) for _, piece, size in self._pieces)

    def clear(self) -> None:
        """Drop them: nobody is there to read the replies."""
        self._count(-self.request_count, -self.size_bytes)
        self._pieces.clear()

    def _count(self, requests: int, size: int) -> None:
        self.request_count += requests
        self.size_bytes += size
        self._turns.request_count += requests
        self._turns.size_bytes += size
        assert self.request_count >= 0 and self.size_bytes >= 0


class RunQueue:
    """The connections with requests that wait, the next to be served in front.

    :param reactor: for its rounds.
    :param monotonic: a clock in seconds that never jumps.
    """

    def __init__(self, reactor: IReactorTime, monotonic: Callable[[], float]) -> None:
        self._reactor = reactor
        self._monotonic = monotonic
        #: In order; a mapping for leaving from the middle.
        self._connections: OrderedDict[Connection, WaitingFrames] = OrderedDict()
        self._step_call: IDelayedCall | None = None
        self._tick_call: IDelayedCall | None = None
        self._late_at = 0.0
        #: Requests that wait, and their bytes, over all connections.
        self.request_count = 0
        self.size_bytes = 0
        #: Who refuses what is too much; None: reading stops while something waits.
        self.flow_control: IFlowControl | None = None

    @property
    def connection_count(self) -> int:
        """Connections whose requests wait for their turn."""
        return len(self._connections)

    def head_wait_ms(self) -> int:
        """How long the request that waits longest does, ms."""
        came = [head for waiting in self._connections.values()
                if (head := waiting.head_came()) is not None]
        return round((self._monotonic() - min(came)) * 1000) if came else 0

    def frames(self) -> Iterator[Frame]:
        """The requests that wait, each connection's by themselves; not to be kept."""
        return chain.from_iterable(waiting.frames() for waiting in self._connections.values())

    def start(self, flow_control: IFlowControl | None) -> None:
        """Begin to watch how long the reactor's rounds take, where somebody makes use of it."""
        if flow_control is not None and self._tick_call is None:
            self.flow_control = IsolatedFlowControl(flow_control)
            self._late_at = self._monotonic() + _TICK_SECONDS + _ROUND_SECONDS
            self._tick_call = self._reactor.callLater(_TICK_SECONDS, self._tick)

    def stop(self) -> None:
        """Watch and serve no more."""
        self.flow_control = None
        for call in (self._tick_call, self._step_call):
            if call is not None:
                call.cancel()
        self._tick_call = self._step_call = None
        self._connections.clear()

    def is_behind(self, begin: float, read_bytes: int) -> bool:
        """Whether what a read brought has to wait, when flow control is in use.

        :param begin: when the read began, seconds.
        :param read_bytes: what it brought.
        """
        return bool(self._connections) or read_bytes >= READ_SIZE or begin > self._late_at

    def add(self, connection: Connection, waiting: WaitingFrames) -> None:
        """Give a connection a turn when the others had theirs."""
        if connection not in self._connections:
            self._connections[connection] = waiting
        if self._step_call is None:
            self._step_call = self._reactor.callLater(0, self._step)

    def remove(self, connection: Connection) -> None:
        """A connection has nothing that waits any more."""
        self._connections.pop(connection, None)
        if not self._connections and self._step_call is not None:
            self._step_call.cancel()
            self._step_call = None

    def _begin_round(self, now: float) -> None:
        self._late_at = now + _TICK_SECONDS + _ROUND_SECONDS
        if self.flow_control is not None:
            self.flow_control.begin_round(self)

    def _tick(self) -> None:
        self._tick_call = self._reactor.callLater(_TICK_SECONDS, self._tick)
        self._begin_round(self._monotonic())

    def _step(self) -> None:
        """Serve connections in turn, for as long as a turn is."""
        self._step_call = None
        now = self._monotonic()
        self._begin_round(now)
        end = now + TURN_SECONDS
        while self._connections:
            connection, _ = self._connections.popitem(last=False)
            connection.take_turn()
            if self._monotonic() >= end:
                break
        if self._connections and self._step_call is None:
            self._step_call = self._reactor.callLater(0, self._step)
