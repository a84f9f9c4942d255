"""A connection: bytes in, frames to the dispatcher, replies out.

Any peer may send requests faster than the broker serves them, or read replies more slowly than the
broker writes them, and a single one must neither fill the memory nor delay the other peers.
Therefore a connection applies back-pressure in both directions and shares the time of the reactor.

Inbound back-pressure: reading stops while the requests in flight exceed the byte limit of the
connection or of all connections together. Outbound back-pressure: reading also stops while the
peer does not read its replies. Replies that are still written at that time (of woken pulls) are
bounded, and a peer that reads nothing for too long is aborted.

The requests of one read run in slices of a few milliseconds, and only as long as the peer reads
their replies. The remaining requests wait in the run queue, see ``run_queue``. With flow control,
all requests that a busy broker reads wait, and excess requests are rejected. Other connections are
not affected by any of this.

Source: NettyRemotingServer, NettyRemotingAbstract @5.3.3; design of twistmq.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final
from typing import Protocol as Interface

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPullProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twistmq.broker.constants import (
    CONNECTION_BYTES_IN_FLIGHT_MAX,
    CONNECTION_BYTES_UNSENT_FREE,
    CONNECTION_BYTES_UNSENT_MAX,
    KEPT_BYTES_LEAST,
    TLS_HANDSHAKE_BYTES,
    TOTAL_BYTES_IN_FLIGHT_FREE,
    TURN_REPLY_BYTES_MAX,
    TURN_SECONDS,
    WAITING_BYTES_TOTAL_MAX,
    WRITE_STALL_MAX_MS,
)
from twistmq.broker.net.protocol_detection import FirstBytes
from twistmq.broker.net.run_queue import (
    READ_SIZE,
    READ_SIZE_BEHIND,
    TLS_RECORD_SIZE,
    WaitingFrames,
)
from twistmq.broker.net.slices import JOINING_FRAMES_MAX, Slice
from twistmq.protocol.command import RemotingCommand, decode_command, encode_request
from twistmq.protocol.errors import HeaderError, RemotingSendError, RemotingTimeout, RemotingTooLong
from twistmq.protocol.frame import FRAME_SIZE_MAX, Frame, FrameDecoder
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.record import host_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twistmq.broker.net.factory import RemotingFactory
    from twistmq.broker.remoting.dispatcher import Head
    from twistmq.broker.remoting.messages import Request

__all__ = ["RemotingProtocol"]

#: The reasons to pause reading: the peer does not read its replies; the requests in flight of this
#: connection, or of all connections, are too many; earlier requests still wait; a
#: protocol-detection stage is waiting.
_UNSENT: Final = 1
_CONNECTION_FULL: Final = 2
_TOTAL_FULL: Final = 4
_BACKLOG: Final = 8
_STAGE: Final = 16

#: The number of consecutive reads of one connection while no other connection has input. They delay
#: timers by a few milliseconds.
_READS_AT_ONCE_MAX: Final = 16

_channel_ids = count(1)


class EncryptionLayer(Interface):
    """The layer between a transport and this protocol, such as ``tls_layer.TlsLayer``."""

    #: The reason why it ended the connection, or an empty text.
    failure: str

    def begin(self, data: bytes) -> None:
        """Begin the handshake with bytes that the peer has sent already."""

    def encrypt(self, data: bytes) -> bytes:
        """:returns: the encrypted bytes to send."""

    def end(self) -> None:
        """Notify the peer that the connection is being closed."""


@implementer(IPullProducer)
class RemotingProtocol(Protocol):
    """One connection; it is also the channel that handlers and plugins see."""

    log = Logger()
    factory: RemotingFactory

    def __init__(self) -> None:
        self.channel_id = next(_channel_ids)
        self.remote_address = ""
        self.charged_address = ""
        self.remote_host = b""
        self.local_port = 0
        self.active = False
        self.heard_ms = 0
        self._decoder = FrameDecoder()
        #: Protocol detection; None once it is done.
        self._first_bytes: FirstBytes | None = None
        #: The TLS layer; None on a plain connection.
        self._tls: EncryptionLayer | None = None
        self._opaques = count(1)
        self._pending: dict[int, tuple[Deferred[RemotingCommand], IDelayedCall]] = {}
        self._reserved_bytes = 0
        self._paused_for = 0
        #: Bytes in the transport's write buffer, and since when they exceed the limit.
        self.unsent_bytes = 0
        self._unsent_since_ms = 0
        #: Writes as much as the socket accepts, see twisted.internet.tcp.Connection.
        self._write_some: Callable[[bytes], int | Exception] | None = None
        #: The bytes recorded for this connection in the factory's KeptBytes.
        self._kept_bytes = 0
        #: The memory of the TLS layer during its handshake.
        self._handshake_bytes = 0
        #: Frames left from the interrupted slice; frames not yet started are in ``_waiting``.
        self._backlog: Sequence[Frame] = ()
        self._waiting: WaitingFrames | None = None
        #: Whether reads are longer than Twisted's, because the last one was full.
        self._reads_much = False
        self._slice_ends = 0.0
        #: Why reading was paused before the slice that runs: ``_BACKLOG`` or 0.
        self._slice_paused = 0
        #: Whether the requests of the last read wait in the run queue's batch.
        self._is_joined = False
        self._slice_reply_bytes = 0
        #: True after ``close()``: nothing more is sent.
        self.closing = False

    # --- called by Twisted

    def connectionMade(self) -> None:
        transport = self._transport()
        transport.setTcpNoDelay(True)
        # With the producer interface, the transport reports when its buffer is empty.
        transport.registerProducer(self, False)
        # A transport that wraps another one, as TLS does, does not have this method.
        self._write_some = getattr(transport, "writeSomeData", None)
        peer, host = transport.getPeer(), transport.getHost()
        self.set_remote_address(peer.host, peer.port)
        self.charged_address = self.remote_address
        self.local_port = host.port
        if self.factory.passes_over_long_replies:
            self._decoder = FrameDecoder(self._reply_too_long)
        if self.factory.first_bytes:
            self._first_bytes = FirstBytes(self, self.factory.first_bytes)
        self.active = True
        self.heard_ms = self.factory.steady.awake_ms()
        self.factory.channels.add(self)
        self.factory.connections.add()

    def dataReceived(self, data: bytes) -> None:
        self._take(data)
        # A client that sends one request at a time does not have to wait for the next round.
        for _ in range(_READS_AT_ONCE_MAX):
            if not self.factory.idle_spin.spin():
                return
            data = self._read_some()
            if not data:
                return
            self._take(data)

    def _read_some(self) -> bytes:
        """Read input that arrived in between; empty when the socket has no bytes or fails."""
        socket = getattr(self.transport, "socket", None)
        if socket is None or self._tls is not None or self._paused_for or (
                self.closing or not self.active):
            return b""
        try:
            data: bytes = socket.recv(READ_SIZE)
        except OSError:
            return b""
        return data

    def _take(self, data: bytes) -> None:
        """Serve the requests of one read."""
        factory = self.factory
        if self._is_joined:
            # The requests of the last read are answered before this read is examined.
            factory.run_queue.run_joined()
        begin = factory.monotonic()
        self.heard_ms = round(begin * 1000) - factory.steady.asleep_ms
        if self._first_bytes is not None:
            data = self._first_bytes.check(data)
            if self._first_bytes is not None and self._first_bytes.done:
                self._first_bytes = None
        frames = self._decoder.feed(data)
        if frames and self._kept_bytes:
            # The incomplete frame that was recorded is complete; the next one begins now.
            self._note_kept(0)
        if frames:
            if self._backlog or self._waiting or (
                factory.flow_control is not None and factory.run_queue.is_behind(
                    begin, len(data) if self._tls is None else len(data) + TLS_RECORD_SIZE)
            ):
                self._wait(frames, begin)
            else:
                self._run(frames, begin, len(data))
        if self._reads_much and not self._waiting and len(data) < READ_SIZE - TLS_RECORD_SIZE:
            self._read_at_once(READ_SIZE)
        self._after_slice()
        factory.stalls.observe("requests", factory.monotonic() - begin)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.active = False
        self._drop_waiting()
        self._note_kept(0)
        self.factory.connections.remove()
        if self._first_bytes is not None:
            self._first_bytes.stop_timeout()
        if self._paused_for & _TOTAL_FULL:
            self.factory.in_flight.paused.discard(self)
        pending, self._pending = self._pending, {}
        why = f": {self._tls.failure}" if self._tls is not None and self._tls.failure else ""
        for waiting, timeout in pending.values():
            timeout.cancel()
            waiting.errback(RemotingSendError(
                f"connection to {self.remote_address} was lost{why}"))
        self.factory.channels.remove(self)

    def set_remote_address(self, ip: str, port: int) -> None:
        """Set the peer's address; the PROXY-protocol stage does so for a proxied client."""
        self.remote_address = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        self.remote_host = host_bytes(ip, port)

    # --- TLS

    def start_tls(self, layer: EncryptionLayer, data: bytes = b"") -> None:
        """Pass all bytes from now on through a TLS layer.

        The layer takes this protocol's place at the transport. Pausing, counting unsent bytes and
        closing work as before, on encrypted bytes.

        :param data: encrypted bytes that were read already.
        """
        assert self._tls is None, "TLS within TLS"
        self._first_bytes = None
        self._tls = layer
        self._transport().protocol = layer
        self._handshake_bytes = TLS_HANDSHAKE_BYTES
        layer.begin(data)
        if self.active:
            self._note_kept()

    def handshake_done(self) -> None:
        """Note that the TLS handshake is complete."""
        self._handshake_bytes = 0
        self._note_kept()

    def write_encrypted(self, data: bytes) -> None:
        """Send bytes of the TLS layer itself: handshakes and alerts."""
        if self.active:
            self._send_later(data)

    def pause_for_stage(self) -> None:
        """Stop reading while a protocol-detection stage waits for data."""
        self._pause(_STAGE)

    def resume_after_stage(self) -> None:
        """Resume reading, because the stage has its data."""
        self._resume(_STAGE)

    # --- slices

    def _run(self, frames: Sequence[Frame], begin: float, read_bytes: int) -> None:
        """Run the requests of a read, or join them with the requests of other connections.

        :param read_bytes: the length of the read. After a full read, the unread input may belong to
            this connection.
        """
        factory = self.factory
        frames, now_ms = self._not_rejected(frames), factory.now_ms()
        head = factory.dispatcher.read_head(self, frames, now_ms)
        code = factory.dispatcher.joined_code(head, len(frames))
        is_small = len(frames) < JOINING_FRAMES_MAX and read_bytes < READ_SIZE
        if code is not None and is_small and not self._decoder.failure and (
                factory.run_queue.is_joining or factory.idle_spin.has_input()):
            self._is_joined = True
            factory.run_queue.join(Slice(self, frames, now_ms, head, code))
        elif frames:
            self._execute(frames, now_ms, begin, head)

    def _not_rejected(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Answer the requests that flow control rejects now; :returns: the accepted ones."""
        flow_control = self.factory.flow_control
        if frames and flow_control is not None and flow_control.rejects:
            return self._sorted(flow_control.reject(frames))
        return frames

    def _execute(
        self, frames: Sequence[Frame], now_ms: int, begin: float, head: Head
    ) -> None:
        """Run frames for one slice and write the replies that are ready."""
        self._slice_ends = begin + TURN_SECONDS
        self._slice_reply_bytes = 0
        turn = self.factory.idle_spin
        turn.request_count = len(frames)
        try:
            ready = self.factory.dispatcher.execute(self, frames, now_ms, head)
        finally:
            turn.request_count = 0
        seconds = self.factory.monotonic() - begin
        if seconds * 1000 >= self.factory.slow.limit_ms:
            ran = frames[:len(frames) - len(self._backlog)]
            self.factory.slow.turn(self.remote_address, ran, seconds)
        if ready:
            self.write(b"".join(ready))

    def may_run_more(self, reply_bytes: int) -> bool:
        self._slice_reply_bytes += reply_bytes
        return (not self._paused_for and self._slice_reply_bytes < TURN_REPLY_BYTES_MAX
                and self.factory.monotonic() < self._slice_ends)

    def waited(self, requests: Sequence[Request[Any]]) -> None:
        factory = self.factory
        factory.slow.waited(self.remote_address, requests, factory.dispatcher.handlers)

    def run_later(self, frames: Sequence[Frame]) -> None:
        self._backlog = frames
        self._pause(_BACKLOG)

    def _wait(self, frames: Sequence[Frame], begin: float) -> None:
        """Queue the frames of a read; flow control rejects excess requests."""
        factory = self.factory
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = WaitingFrames(factory.run_queue)
        flow_control = factory.flow_control
        if flow_control is not None:
            frames = self._sorted(
                flow_control.arrived(frames, waiting.request_count, factory.run_queue))
            self._read_at_once(READ_SIZE_BEHIND)
        waiting.add(frames, begin)
        if not self._may_read():
            self._pause(_BACKLOG)

    def _may_read(self) -> bool:
        """Return whether the waiting requests leave room for more."""
        if self._backlog:
            return False
        return not self._waiting or (
            self.factory.flow_control is not None
            and self.factory.run_queue.size_bytes < WAITING_BYTES_TOTAL_MAX)

    def _read_at_once(self, size_bytes: int) -> None:
        """Set the number of bytes that a read takes; a wrapping transport ignores it."""
        self._reads_much = size_bytes > READ_SIZE
        transport = self._transport()
        if hasattr(transport, "bufferSize"):
            transport.bufferSize = size_bytes

    def _sorted(self, outcome: tuple[Sequence[Frame], Sequence[bytes]]) -> Sequence[Frame]:
        """Answer the requests that flow control rejects; :returns: the accepted frames."""
        frames, refusals = outcome
        if refusals:
            self.write(b"".join(refusals))
        return frames

    def _after_slice(self) -> None:
        """Handle the end of a slice: waiting frames, a broken stream, or an incomplete frame."""
        if not self.active or self.closing:
            self._drop_waiting()
        elif self._backlog or self._waiting:
            self._queue_slice()
        elif self._decoder.failure:
            self.factory.lines.warn(
                self.factory.now_ms(), "connection of {peer} closed: {failure}",
                peer=self.remote_address, failure=self._decoder.failure)
            self.close()
        elif self._kept_bytes or self._decoder.pending_bytes > KEPT_BYTES_LEAST:
            self._note_kept()

    def _drop_waiting(self) -> None:
        """Drop waiting requests, because the peer can no longer read replies."""
        self._backlog = ()
        if self._waiting is not None:
            self._waiting.clear()
            self._waiting = None
            self.factory.run_queue.remove(self)

    def _queue_slice(self) -> None:
        """Queue this connection's waiting requests, unless reading is paused for another reason.
        """
        if not self._paused_for & ~_BACKLOG:
            if self._waiting is None:
                self._waiting = WaitingFrames(self.factory.run_queue)
            self.factory.run_queue.add(self, self._waiting)

    def begin_slice(self) -> Slice | None:
        """Take the remaining frames of an interrupted slice, or one piece of waiting requests.

        :returns: None when no request may run now.
        """
        if not self.active or self.closing:
            self._drop_waiting()
            return None
        if self._paused_for & ~_BACKLOG or not (self._backlog or self._waiting):
            return None
        factory = self.factory
        frames, self._backlog = self._backlog, ()
        if not frames and self._waiting:
            arrival_s, frames = self._waiting.take()
            if factory.flow_control is not None:
                frames = self._sorted(factory.flow_control.due(
                    frames, round((factory.monotonic() - arrival_s) * 1000), factory.run_queue))
        frames = self._not_rejected(frames)
        # Reading resumes only afterwards: these requests may pause it for another reason.
        self._slice_paused = self._paused_for & _BACKLOG
        self._paused_for &= ~_BACKLOG
        now_ms = factory.now_ms()
        head = factory.dispatcher.read_head(self, frames, now_ms)
        return Slice(self, frames, now_ms, head,
                     factory.dispatcher.joined_code(head, len(frames)))

    def run_slice(self, part: Slice) -> None:
        """Run a slice that is not joined with others."""
        if part.frames:
            self._execute(part.frames, part.now_ms, self.factory.monotonic(), part.head)
            # No read of this connection is in progress.
            self.factory.idle_spin.forget()
        self.end_slice()

    def end_slice(self) -> None:
        """Finish a slice: resume reading, and queue again if more requests wait."""
        self._is_joined = False
        if self._slice_paused:
            self._slice_paused = 0
            self._paused_for |= _BACKLOG
            if self._may_read():
                self._resume(_BACKLOG)
        self._after_slice()

    def _note_kept(self, size_bytes: int | None = None) -> None:
        """Record the memory kept for the peer; this may abort the connection."""
        if size_bytes is None:
            size_bytes = self._decoder.pending_bytes + self.unsent_bytes
            if size_bytes <= KEPT_BYTES_LEAST:
                size_bytes = 0
            size_bytes += self._handshake_bytes
        if size_bytes != self._kept_bytes:
            self._kept_bytes = size_bytes
            self.factory.kept.set(self, size_bytes)

    # --- replies and outgoing requests

    def write(self, data: bytes) -> None:
        """Send bytes; they are ignored once the connection is lost or closing."""
        if not self.active or self.closing:
            return
        if self._tls is not None:
            data = self._tls.encrypt(data)
        if not self.unsent_bytes and self._write_some is not None:
            # Bytes that the socket accepts at once do not need another round of the reactor.
            written_size = self._write_some(data)
            if written_size == len(data):
                return
            if isinstance(written_size, int):
                data = data[written_size:]
        self._send_later(data)

    def _send_later(self, data: bytes) -> None:
        """Give the transport the bytes that the socket did not accept; too many stop reading."""
        self.unsent_bytes += len(data)
        self._transport().write(data)
        if self.unsent_bytes <= CONNECTION_BYTES_UNSENT_FREE:
            return
        if not self._paused_for & _UNSENT:
            self._unsent_since_ms = self.factory.steady.awake_ms()
            self._pause(_UNSENT)
        if self.unsent_bytes > CONNECTION_BYTES_UNSENT_MAX:
            self.abort("does not read its replies")
        else:
            self._note_kept()

    def send_oneway(
        self, code: int, header: CommandHeader | None, body: bytes = b"", *,
        extra_fields: dict[str, str] | None = None,
    ) -> None:
        self.write(encode_request(code, next(self._opaques), header, body, oneway=True,
                                  extra_fields=extra_fields))

    def call(
        self, code: int, header: CommandHeader | None, body: bytes = b"", *, timeout_ms: int,
        extra_fields: dict[str, str] | None = None,
    ) -> Deferred[RemotingCommand]:
        """Send a request; fires with the reply, or fails when the reply does not come in time."""
        answer: Deferred[RemotingCommand] = Deferred()
        if not self.active or self.closing:
            answer.errback(RemotingSendError(f"connection to {self.remote_address} is lost"))
            return answer
        opaque = next(self._opaques)
        frame = encode_request(code, opaque, header, body, extra_fields=extra_fields)
        if len(frame) > FRAME_SIZE_MAX:
            # The peer would close the connection because of it.
            answer.errback(RemotingTooLong(f"request {code} has {len(frame)} bytes, a frame may "
                                           f"have {FRAME_SIZE_MAX}"))
            return answer
        timeout = self.factory.reactor.callLater(timeout_ms / 1000, self._timed_out, opaque)
        self._pending[opaque] = (answer, timeout)
        self.write(frame)
        return answer

    def response_received(self, command: RemotingCommand) -> None:
        waiting = self._pending.pop(command.opaque, None)
        if waiting is None:
            self.log.debug("unexpected reply {opaque} from {peer}: no request waits for it",
                           opaque=command.opaque, peer=self.remote_address)
            return
        answer, timeout = waiting
        timeout.cancel()
        answer.callback(command)

    def _reply_too_long(self, serialize_type: int, header: bytes) -> bool:
        """Fail the call whose reply is longer than a frame; its body is skipped."""
        try:
            command = decode_command((serialize_type, header, b""))
        except HeaderError:
            return False
        if not command.is_response:
            return False
        waiting = self._pending.pop(command.opaque, None)
        if waiting is not None:
            answer, timeout = waiting
            timeout.cancel()
            answer.errback(RemotingTooLong(
                f"the reply of {self.remote_address} is longer than a frame may be"))
        return True

    def _timed_out(self, opaque: int) -> None:
        answer, _ = self._pending.pop(opaque)
        answer.errback(RemotingTimeout(f"{self.remote_address} did not answer in time"))

    def close(self) -> None:
        """Close the connection once the write buffer is sent."""
        if self._is_joined:
            self.factory.run_queue.run_joined()
        if self.active and not self.closing:
            self.closing = True
            if self._tls is not None:
                self._tls.end()
            self._transport().unregisterProducer()
            self._transport().loseConnection()

    def abort(self, why: str) -> None:
        """Abort the connection and log the reason; the write buffer is lost."""
        if self.active:
            self.factory.lines.warn(self.factory.now_ms(), "connection of {peer} cut off: it {why}",
                                    peer=self.remote_address, why=why)
            self.cut_off()

    def cut_off(self) -> None:
        """Abort the connection without a log line."""
        if self.active:
            self.active = False
            self._drop_waiting()
            self._transport().abortConnection()

    # --- back-pressure

    def reserve(self, size_bytes: int) -> None:
        self._reserved_bytes += size_bytes
        if self._reserved_bytes > CONNECTION_BYTES_IN_FLIGHT_MAX:
            self._pause(_CONNECTION_FULL)
        if self.factory.in_flight.add(size_bytes) and (
            self._reserved_bytes > TOTAL_BYTES_IN_FLIGHT_FREE
        ):
            self.factory.in_flight.paused.add(self)
            self._pause(_TOTAL_FULL)

    def release(self, size_bytes: int) -> None:
        self._reserved_bytes -= size_bytes
        assert self._reserved_bytes >= 0
        if self._reserved_bytes <= CONNECTION_BYTES_IN_FLIGHT_MAX // 2:
            self._resume(_CONNECTION_FULL)
        for channel in self.factory.in_flight.remove(size_bytes):
            channel._resume(_TOTAL_FULL)

    def resumeProducing(self) -> None:
        """Note that the write buffer is empty; Twisted calls pull producers then."""
        self.unsent_bytes = 0
        if self._kept_bytes:
            self._note_kept()
        self._resume(_UNSENT)

    def stopProducing(self) -> None:
        """Do nothing: the connection is lost, and connectionLost follows."""

    def is_stalled(self) -> bool:
        """Return whether the peer has read nothing for too long."""
        return bool(self._paused_for & _UNSENT) and (
            self.factory.steady.awake_ms() - self._unsent_since_ms > WRITE_STALL_MAX_MS)

    def _pause(self, reason: int) -> None:
        if not self._paused_for and self.active:
            self._transport().pauseProducing()
        self._paused_for |= reason

    def _resume(self, reason: int) -> None:
        if self._paused_for & reason:
            self._paused_for &= ~reason
            if not self._paused_for and self.active:
                self._transport().resumeProducing()
            if (self._backlog or self._waiting) and reason != _BACKLOG:
                if self._waiting:
                    # So far it waited for its own peer.
                    self._waiting.restart_wait(self.factory.monotonic())
                self._queue_slice()

    def _transport(self) -> Any:
        # It is a TCP transport and a push producer; no interface covers both.
        assert self.transport is not None
        return self.transport
