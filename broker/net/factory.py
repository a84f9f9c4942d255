"""Makes the connections of a port, with the dispatcher, registry, clocks and limits they share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import chain

from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from twistmq.broker.constants import STALL_SECONDS, STALL_WARN_SECONDS, TOTAL_BYTES_IN_FLIGHT_MAX
from twistmq.broker.net.idle_spin import IdleSpin
from twistmq.broker.net.limits import ConnectionCount, KeptBytes
from twistmq.broker.net.protocol import RemotingProtocol
from twistmq.broker.net.protocol_detection import FirstBytesStage, TlsRefused
from twistmq.broker.net.run_queue import RunQueue
from twistmq.broker.net.slices import Slice
from twistmq.broker.net.slow_requests import SlowRequests
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.interfaces import IFlowControl
from twistmq.broker.scheduling.steady_clock import SteadyClock
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LimitedLog

__all__ = ["InFlight", "RemotingFactory", "StallWatch"]


class InFlight:
    """The bytes of unanswered requests, over all connections."""

    def __init__(self, maximum_bytes: int = TOTAL_BYTES_IN_FLIGHT_MAX) -> None:
        self.maximum_bytes = maximum_bytes
        self.total_bytes = 0
        #: Connections that are not read because the total exceeds its limit.
        self.paused: set[RemotingProtocol] = set()

    def add(self, size_bytes: int) -> bool:
        """Add a request; :returns: whether the total exceeds its limit."""
        self.total_bytes += size_bytes
        return self.total_bytes > self.maximum_bytes

    def remove(self, size_bytes: int) -> Sequence[RemotingProtocol]:
        """Subtract the size of a finished request.

        :returns: the connections that may be read again.
        """
        self.total_bytes -= size_bytes
        assert self.total_bytes >= 0
        if not self.paused or self.total_bytes > self.maximum_bytes // 2:
            return ()
        resumed, self.paused = tuple(self.paused), set()
        return resumed


class StallWatch:
    """Counts and logs work that blocked the reactor for too long.

    ``count`` and ``longest_seconds`` are metrics of the process.
    """

    log = Logger()

    def __init__(self) -> None:
        self.count = 0
        self.longest_seconds = 0.0
        self._long_count = 0

    def observe(self, what: str, seconds: float) -> None:
        if seconds < STALL_SECONDS:
            return
        self.count += 1
        self.longest_seconds = max(self.longest_seconds, seconds)
        if seconds < STALL_WARN_SECONDS:
            self.log.debug("{what} blocked the reactor for {milliseconds} ms", what=what,
                           milliseconds=round(seconds * 1000))
            return
        self._long_count += 1
        # Log at each power of two: the first stalls at once, and a flood of them in few lines.
        if self._long_count & (self._long_count - 1) == 0:
            self.log.warn("{what} blocked the reactor for {milliseconds} ms, long stall number "
                          "{count}; {all} stalls of over {limit} ms", what=what, all=self.count,
                          milliseconds=round(seconds * 1000), count=self._long_count,
                          limit=round(STALL_SECONDS * 1000))


class RemotingFactory(ServerFactory):
    """Makes the connections of one port.

    :param reactor: the clock for time-outs.
    :param now_ms: the wall clock, Unix ms.
    :param monotonic: a clock in seconds that never jumps.
    :param passes_over_long_replies: whether a reply longer than a frame only fails its call, and
        not the connection.
    :param idle_spin: polls briefly after a single request.
    :param slow: logs slow requests.
    :param run_queue: the run queue, shared by the ports of one process.
    :param steady: measures the silence of peers; by default it follows ``monotonic``.
    """

    log = Logger()
    noisy = False

    def __init__(
        self, reactor: IReactorTime, dispatcher: Dispatcher, channels: ChannelTable,
        now_ms: Callable[[], int], monotonic: Callable[[], float],
        in_flight: InFlight | None = None, stalls: StallWatch | None = None,
        first_bytes: Sequence[FirstBytesStage] = (TlsRefused(),),
        kept: KeptBytes | None = None, connections: ConnectionCount | None = None,
        passes_over_long_replies: bool = False, idle_spin: IdleSpin | None = None,
        slow: SlowRequests | None = None,
        run_queue: RunQueue | None = None, steady: SteadyClock | None = None,
    ) -> None:
        #: The log of lines that connections cause.
        self.lines = LimitedLog(self.log, EVENTS_A_MINUTE)
        self.reactor = reactor
        self.dispatcher = dispatcher
        self.channels = channels
        self.now_ms = now_ms
        self.monotonic = monotonic
        self.steady = steady or SteadyClock(lambda: round(monotonic() * 1000))
        self.in_flight = in_flight or InFlight()
        self.stalls = stalls or StallWatch()
        self.first_bytes = first_bytes
        self.kept = kept or KeptBytes()
        self.connections = connections or ConnectionCount(lambda: sys.maxsize)
        self.passes_over_long_replies = passes_over_long_replies
        self.idle_spin = idle_spin or IdleSpin(reactor)
        self.slow = slow or SlowRequests(now_ms)
        self.run_queue = run_queue or RunQueue(reactor, monotonic, self.stalls.observe)
        #: Checked at each read of a connection.
        self.flow_control: IFlowControl | None = self.run_queue.flow_control

    def buildProtocol(self, addr: object) -> RemotingProtocol | None:  # type: ignore[override]
        """Make the protocol of a connection. None closes the connection: there are too many."""
        if not self.connections.may_add():
            return None
        protocol = RemotingProtocol()
        protocol.factory = self
        return protocol

    def run_together(self, slices: Sequence[Slice]) -> None:
        """Run slices as one batch, and write the replies that are ready.

        :param slices: slices of connections of this port, whose requests have one code.
        """
        begin = self.monotonic()
        self.idle_spin.request_count = sum([len(part.frames) for part in slices])
        try:
            ready = self.dispatcher.execute_together([part.head[0] for part in slices])
        except Exception:
            self.log.failure("a batch of requests of {count} connections failed", count=len(slices))
            for part in slices:
                part.connection.abort("takes part in a batch of requests that failed")
            return
        finally:
            self.idle_spin.request_count = 0
        seconds = self.monotonic() - begin
        if seconds * 1000 >= self.slow.limit_ms:
            frames = list(chain.from_iterable(part.frames for part in slices))
            self.slow.turn(f"{slices[0].connection.remote_address} and {len(slices) - 1} other "
                           "connections", frames, seconds)
        for part, replies in zip(slices, ready, strict=True):
            try:
                if replies:
                    part.connection.write(b"".join(replies))
                part.connection.end_slice()
            except Exception:
                # All other connections must still get their replies.
                self.log.failure("the replies to {peer} failed",
                                 peer=part.connection.remote_address)
                part.connection.abort("cannot be answered")

    def close_idle(self, idle_max_ms: int) -> None:
        """Close silent connections and abort stalled ones; runs periodically."""
        now_ms = self.steady.awake_ms()
        for channel in self.channels:
            if not isinstance(channel, RemotingProtocol):
                continue
            if channel.is_stalled():
                channel.abort("reads no replies")
            elif now_ms - channel.heard_ms <= idle_max_ms:
                continue
            elif channel.closing:
                channel.abort("does not read the data sent before the close")
            else:
                self.lines.info(self.now_ms(), "connection of {peer} closed: idle",
                                peer=channel.remote_address)
                channel.close()
