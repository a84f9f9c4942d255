"""A connection: its first bytes, frames, back-pressure in both directions, and its end."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import (
    CONNECTION_BYTES_IN_FLIGHT_MAX,
    CONNECTION_BYTES_UNSENT_MAX,
    HELD_REQUEST_BYTES,
    KEPT_BYTES_LEAST,
    TOTAL_BYTES_IN_FLIGHT_FREE,
    TURN_REPLY_BYTES_MAX,
    TURN_SECONDS,
    WRITE_STALL_MAX_MS,
)
from twistmq.broker.net import protocol
from twistmq.broker.net.factory import InFlight, RemotingFactory
from twistmq.broker.net.limits import KeptBytes
from twistmq.broker.net.run_queue import READ_SIZE
from twistmq.broker.remoting.interfaces import WaitingRequests
from twistmq.broker.remoting.messages import Reply, Request, RequestHandler
from twistmq.broker.testing.conversation import Conversation, make_server, read_commands
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import decode_command, encode_reply, encode_request
from twistmq.protocol.errors import RemotingSendError
from twistmq.protocol.frame import FRAME_SIZE_MAX, JSON, Frame, encode_frame
from twistmq.protocol.log_rate import EVENTS_A_MINUTE

ECHO, WAIT, BIG, SLOW = 901, 902, 903, 904
MIB = 1024 * 1024


class ProtocolTestCase(SynchronousTestCase):
    """A server that echoes, waits, and answers much to little."""

    def setUp(self) -> None:
        self.waiting: list[Deferred[Reply]] = []
        self.requests: list[Request[Any]] = []
        self.big = b"x" * MIB
        self.server = self.make_server()
        self.client = Conversation(self.server)

    def make_server(self, **arguments: Any) -> RemotingFactory:
        return make_server([
            RequestHandler(ECHO, lambda request: Reply(body=request.body),
                           body_size_max=FRAME_SIZE_MAX),
            RequestHandler(WAIT, self.wait, body_size_max=FRAME_SIZE_MAX),
            RequestHandler(BIG, lambda request: Reply(body=self.big)),
        ], **arguments)

    def wait(self, request: Request[Any]) -> Deferred[Reply]:
        self.waiting.append(Deferred())
        self.requests.append(request)
        return self.waiting[-1]

    def now_ms(self) -> int:
        return self.server.now_ms()


class FramingTests(ProtocolTestCase):
    """Bytes become frames for the dispatcher."""

    def test_any_cut(self) -> None:
        """Frames cut anywhere, and several in one read, give the same replies."""
        data = b"".join(encode_request(ECHO, opaque, None, b"b" * opaque) for opaque in range(5))
        for size in (1, 3, 7, len(data)):
            client = Conversation(self.server)
            for begin in range(0, len(data), size):
                client.says(data[begin:begin + size])
            self.assertEqual([(r.opaque, len(r.body)) for r in client.heard()],
                             [(opaque, opaque) for opaque in range(5)], msg=f"cut by {size}")

    def test_broken_frame_closes(self) -> None:
        """An invalid frame ends its connection, after the replies to earlier requests."""
        for name, bad in (("negative", b"\xff\xff\xff\xff\0\0\0\0"), ("zero", bytes(8)),
                          ("too large", (FRAME_SIZE_MAX + 1).to_bytes(4, "big") + bytes(4)),
                          ("header too long", b"\0\0\0\x08\0\0\0\x7f"),
                          ("serialisation", b"\0\0\0\x08\x05\0\0\x04")):
            client = Conversation(self.server)
            client.says(encode_request(ECHO, 1), bad, encode_request(ECHO, 2))
            self.assertEqual(client.hears(), [(1, ResponseCode.SUCCESS)], msg=name)
            self.assertTrue(client.is_closed, msg=name)
            assert client.connection.lost is not None
            client.connection.lost.trap(ConnectionDone)
        self.client.says(encode_request(ECHO, 3))
        self.assertEqual(self.client.hears(), [(3, ResponseCode.SUCCESS)])

    def test_reads_nothing_after_a_broken_frame(self) -> None:
        """A peer that does not read its last reply cannot send more in the meantime."""
        self.client.connection.peer_reads = False
        self.client.says(encode_request(ECHO, 1), bytes(8))
        self.assertFalse(self.client.connection.is_reading)
        self.assertFalse(self.client.is_closed)


class BackPressureInwardsTests(ProtocolTestCase):
    """Bytes in flight per connection and in total pause reading."""

    def fill(self, client: Conversation, size: int) -> list[Deferred[Reply]]:
        """Send requests that wait, of so many bytes."""
        begin = len(self.waiting)
        for _ in range(size // (8 * MIB)):
            client.says(encode_request(WAIT, 1, None, bytes(8 * MIB - HELD_REQUEST_BYTES - 2)))
        return self.waiting[begin:]

    def test_one_connection(self) -> None:
        """A connection with too many waiting requests is read again when half are answered."""
        waiting = self.fill(self.client, CONNECTION_BYTES_IN_FLIGHT_MAX)
        self.assertTrue(self.client.connection.is_reading)
        self.client.says(encode_request(WAIT, 1, None, bytes(100)))
        self.assertFalse(self.client.connection.is_reading)
        other = Conversation(self.server)
        other.says(encode_request(ECHO, 1))
        self.assertEqual(other.hears(), [(1, ResponseCode.SUCCESS)])
        for deferred in waiting[:2]:
            self.assertFalse(self.client.connection.is_reading)
            deferred.callback(Reply())
        self.assertFalse(self.client.connection.is_reading)
        self.waiting[-1].callback(Reply())
        self.assertTrue(self.client.connection.is_reading)

    def test_all_connections(self) -> None:
        """If all connections together hold too much, those that send more are not read."""
        server = self.make_server(in_flight=InFlight(20 * MIB))
        first, second, third = (Conversation(server) for _ in range(3))
        waiting = self.fill(first, 16 * MIB) + self.fill(second, 8 * MIB)
        self.assertEqual([c.connection.is_reading for c in (first, second, third)],
                         [True, False, True])
        third.says(encode_request(ECHO, 1))
        self.assertEqual(third.hears(), [(1, ResponseCode.SUCCESS)])
        self.fill(third, 8 * MIB)
        self.assertFalse(third.connection.is_reading)
        waiting[0].callback(Reply())
        waiting[1].callback(Reply())
        self.assertFalse(second.connection.is_reading)
        waiting[2].callback(Reply())
        self.assertTrue(second.connection.is_reading)
        self.assertTrue(third.connection.is_reading)

    def test_lost_while_paused(self) -> None:
        """The requests of a paused connection that is lost no longer count once
        they are answered.
        """
        server = self.make_server(in_flight=InFlight(10 * MIB))
        client = Conversation(server)
        waiting = self.fill(client, 16 * MIB)
        self.assertEqual(server.in_flight.paused, {client.protocol})
        client.connection.drop()
        self.assertEqual(server.in_flight.paused, set())
        for deferred in waiting:
            deferred.callback(Reply())
        self.assertEqual(server.in_flight.total_bytes, 0)


    def test_who_holds_little_goes_on(self) -> None:
        """A connection with a few waiting requests is read even if others hold too much."""
        server = self.make_server(in_flight=InFlight(10 * MIB))
        greedy, modest = Conversation(server), Conversation(server)
        self.fill(greedy, 16 * MIB)
        self.assertFalse(greedy.connection.is_reading)
        for _ in range(TOTAL_BYTES_IN_FLIGHT_FREE // HELD_REQUEST_BYTES // 2):
            modest.says(encode_request(WAIT, 1))
        self.assertTrue(modest.connection.is_reading)
        modest.says(encode_request(WAIT, 1, None, bytes(TOTAL_BYTES_IN_FLIGHT_FREE)))
        self.assertFalse(modest.connection.is_reading)

    def test_a_waiting_request_keeps_no_more_than_is_counted(self) -> None:
        """Data of a header outside extFields is dropped, and not counted."""
        header = b'{"code":%d,"opaque":1,"remark":"%s","language":"%s","extFields":{}}' % (
            WAIT, b"r" * 30_000, b"l" * 30_000)
        self.client.says(encode_frame(JSON, header, b""))
        self.assertLess(self.server.in_flight.total_bytes, 2 * HELD_REQUEST_BYTES)
        waiting = self.requests[-1].command
        self.assertIsNone(waiting.remark)
        self.assertLess(len(str(waiting.language)), 100)
        self.assertEqual(len(gc.get_referents(waiting.ext_fields)), 0)


class TurnTests(ProtocolTestCase):
    """The requests of one read run for a turn, and continue after those of others."""

    def clock(self) -> Clock:
        clock = self.server.reactor
        assert isinstance(clock, Clock)
        return clock

    def setUp(self) -> None:
        super().setUp()
        self.seconds = 0.0
        self.server.monotonic = lambda: self.seconds
        self.server.dispatcher.handlers[SLOW] = RequestHandler(SLOW, self.slow)

    def slow(self, request: Request[Any]) -> Reply:
        """A request that takes a third of a turn."""
        self.seconds += TURN_SECONDS / 2.99
        return Reply()

    def says_slow(self, count: int) -> None:
        self.client.says(*[encode_request(SLOW, opaque) for opaque in range(count)])

    def test_by_time(self) -> None:
        """A turn ends when its time is over; the connection is not read before all have run."""
        self.says_slow(8)
        other = Conversation(self.server)
        other.says(encode_request(ECHO, 1))
        self.assertEqual(other.hears(), [(1, ResponseCode.SUCCESS)])
        self.assertFalse(self.client.connection.is_reading)
        self.clock().advance(0)
        turns = [len(read_commands(data)) for data in self.client.connection.writes]
        self.assertEqual(turns, [3, 3, 2])
        self.assertTrue(self.client.connection.is_reading)

    def test_unreadable_and_unknown(self) -> None:
        """A request that is refused early takes time as well."""
        self.patch(self.server, "monotonic", iter(count(0, TURN_SECONDS / 2)).__next__)
        self.client.says(*[encode_request(999, 1), encode_frame(JSON, b"{", b"")] * 4)
        self.assertLess(len(self.client.hears()), 4)
        self.assertFalse(self.client.connection.is_reading)

    def test_by_bytes(self) -> None:
        """A peer that does not read gets the replies of one turn; the rest runs when it reads."""
        self.client.connection.peer_reads = False
        requests = 3 * TURN_REPLY_BYTES_MAX // MIB
        self.client.says(*[encode_request(BIG, opaque) for opaque in range(requests)])
        for _ in range(5):
            self.clock().advance(1)
        self.assertEqual(len(b"".join(self.client.connection.writes)) // MIB,
                         TURN_REPLY_BYTES_MAX // MIB)
        self.client.connection.peer_reads = True
        heard = self.client.hears()
        for _ in range(requests):
            self.clock().advance(0)
            heard += self.client.hears()
        self.assertEqual([opaque for opaque, _ in heard], list(range(requests)))
        self.assertTrue(self.client.connection.is_reading)

    def test_order_is_kept(self) -> None:
        """Frames that were read before the end of a turn come after those that wait."""
        self.says_slow(4)
        self.client.protocol.dataReceived(encode_request(ECHO, 9))
        self.clock().advance(0)
        self.assertEqual([opaque for opaque, _ in self.client.hears()], [0, 1, 2, 3, 9])

    def test_a_broken_frame_behind_a_turn(self) -> None:
        """The connection ends when the requests before the invalid frame are answered."""
        self.client.says(*[encode_request(SLOW, opaque) for opaque in range(5)], bytes(8))
        self.assertFalse(self.client.is_closed)
        self.clock().advance(0)
        self.assertEqual(len(self.client.hears()), 5)
        self.assertTrue(self.client.is_closed)

    def test_lost_between_turns(self) -> None:
        """No request runs for a connection that is lost, aborted or closing."""
        for end in ("drop", "abort", "close"):
            self.client = Conversation(self.server)
            self.says_slow(4)
            if end == "drop":
                self.client.connection.drop()
            elif end == "abort":
                self.client.protocol.abort("must go")
            else:
                self.client.protocol.close()
            before = self.seconds
            self.clock().advance(0)
            self.assertEqual(self.seconds, before, msg=end)
            self.assertEqual(self.clock().getDelayedCalls(), [], msg=end)

    def test_full_before_the_end(self) -> None:
        """Requests after those that fill a connection's limit wait with it."""
        wait = encode_request(WAIT, 1, None, bytes(12 * MIB))
        self.client.says(wait, wait, wait, encode_request(ECHO, 2))
        self.assertEqual(len(self.waiting), 3)
        self.clock().advance(1)
        self.assertEqual(self.client.hears(), [])
        for deferred in list(self.waiting):
            deferred.callback(Reply())
        self.clock().advance(0)
        self.assertIn((2, ResponseCode.SUCCESS), self.client.hears())
        self.assertTrue(self.client.connection.is_reading)


class _Socket:
    """A socket with bytes that arrived while the last read was being served."""

    def __init__(self, *came: bytes) -> None:
        self.came = list(came)

    def recv(self, size: int) -> bytes:
        if not self.came:
            raise BlockingIOError
        return self.came.pop(0)


class ReadAgainTests(ProtocolTestCase):
    """A client with one request at a time is read again before the reactor's next round."""

    def setUp(self) -> None:
        super().setUp()
        self.spins = 0
        self.patch(self.server.idle_spin, "spin", self.spin)

    def spin(self) -> bool:
        self.spins += 1
        return True

    def say(self, *came: bytes) -> list[int]:
        """Send 1 while these bytes arrive; :returns: the opaques that were answered."""
        self.socket = _Socket(*came)
        self.client.connection.socket = self.socket  # type: ignore[attr-defined]
        self.client.says(encode_request(ECHO, 1))
        return [opaque for opaque, _ in self.client.hears()]

    def test_reads_on(self) -> None:
        """Bytes that arrive are served at once, until none remain."""
        requests = [encode_request(ECHO, number) for number in range(2, 5)]
        self.assertEqual(self.say(*requests), [1, 2, 3, 4])
        self.assertEqual(self.spins, 4)

    def test_not_for_ever(self) -> None:
        """After some reads the timers have their turn."""
        requests = [encode_request(ECHO, number) for number in range(2, 100)]
        self.assertEqual(self.say(*requests), list(range(1, 18)))

    def test_somebody_else_came(self) -> None:
        """The reactor must look for the other connection."""
        self.assertEqual(self.say(), [1])
        self.assertEqual(self.spins, 1)

    def test_end_of_the_stream(self) -> None:
        """The reactor must find the end of the stream."""
        self.assertEqual(self.say(b"", encode_request(ECHO, 2)), [1])
        self.assertTrue(self.client.protocol.active)

    def test_broken_stream(self) -> None:
        """A connection that is being closed is not read again."""
        answered = self.say(b"\xff" * 8, encode_request(ECHO, 2))
        self.assertEqual(answered, [1])
        self.assertEqual(len(self.socket.came), 1)

    def test_a_paused_connection_is_not_read_again(self) -> None:
        """A connection whose reading is paused is not read again."""
        self.socket = _Socket(encode_request(ECHO, 2))
        self.client.connection.socket = self.socket  # type: ignore[attr-defined]
        self.client.connection.peer_reads = False
        self.client.says(b"".join([encode_request(BIG, number) for number in range(1, 9)]))
        self.assertEqual(len(self.socket.came), 1)

    def test_without_a_spin_a_read_is_one_piece(self) -> None:
        """Without a lone request nothing is read again."""
        self.patch(self.server.idle_spin, "spin", lambda: False)
        self.assertEqual(self.say(encode_request(ECHO, 2)), [1])


class KeptTests(ProtocolTestCase):
    """The data of peers that do not finish is limited over all connections."""

    def setUp(self) -> None:
        super().setUp()
        self.server = self.make_server(kept=KeptBytes(11 * MIB // 2))
        self.frame = encode_request(ECHO, 1, None, bytes(2 * MIB))

    def half(self) -> Conversation:
        """Return a connection with most of a frame."""
        client = Conversation(self.server)
        client.says(self.frame[:-MIB // 2])
        return client

    def test_half_frames(self) -> None:
        """The connection with the oldest incomplete frame is closed at the limit."""
        first, second = self.half(), self.half()
        third = Conversation(self.server)
        third.says(self.frame)
        self.assertFalse(first.is_closed)
        others = [self.half(), self.half()]
        self.assertEqual([c.is_closed for c in (first, second, third, *others)],
                         [True, False, False, False, False])
        second.says(self.frame[-MIB // 2:])
        self.assertEqual(second.hears(), [(1, ResponseCode.SUCCESS)])

    def test_one_frame_after_the_other(self) -> None:
        """A peer that completes each frame is not the oldest, however long it continues."""
        busy, idle = self.half(), self.half()
        busy.says(self.frame[-MIB // 2:] + self.frame[:MIB])
        self.half()
        self.half()
        self.assertEqual([busy.is_closed, idle.is_closed], [False, True])

    def test_closed_connections_and_small_buffers_are_not_counted(self) -> None:
        """Closed connections and small buffers do not count."""
        clients = [self.half(), self.half()]
        for client in clients:
            client.connection.drop()
        small = Conversation(self.server)
        small.says(self.frame[:KEPT_BYTES_LEAST])
        self.assertEqual(self.server.kept.total_bytes, 0)

    def test_unsent_replies(self) -> None:
        """Replies that the peer does not read count as well."""
        lazy = Conversation(self.server)
        lazy.connection.peer_reads = False
        for opaque in range(3):
            lazy.says(encode_request(WAIT, opaque))
        for deferred in self.waiting:
            deferred.callback(Reply(body=self.big))
        self.assertGreater(self.server.kept.total_bytes, 3 * MIB)
        late = [self.half(), self.half()]
        self.assertEqual([c.is_closed for c in (lazy, *late)], [True, False, False])

    def test_taken_replies(self) -> None:
        """Replies that were read no longer count."""
        lazy = Conversation(self.server)
        lazy.connection.peer_reads = False
        lazy.says(encode_request(BIG, 1))
        self.assertGreater(self.server.kept.total_bytes, MIB)
        lazy.connection.peer_reads = True
        self.assertEqual(lazy.hears(), [(1, ResponseCode.SUCCESS)])
        self.assertEqual(self.server.kept.total_bytes, 0)


class BackPressureOutwardsTests(ProtocolTestCase):
    """A peer that does not read its replies: bounded buffers, then cut off."""

    def setUp(self) -> None:
        super().setUp()
        self.client.connection.peer_reads = False

    def test_reading_stops(self) -> None:
        """Requests are not read while replies wait, and are read again afterwards."""
        self.client.says(encode_request(ECHO, 1, None, b"small"))
        self.assertTrue(self.client.connection.is_reading)
        self.client.says(encode_request(BIG, 2))
        self.assertFalse(self.client.connection.is_reading)
        self.client.connection.peer_reads = True
        self.assertEqual(self.client.hears(), [(1, ResponseCode.SUCCESS),
                                               (2, ResponseCode.SUCCESS)])
        self.assertTrue(self.client.connection.is_reading)

    def waiting_replies(self, count: int) -> list[Deferred[Reply]]:
        """Requests whose replies follow later, then one whose reply fills the buffer."""
        for opaque in range(count):
            self.client.says(encode_request(WAIT, opaque))
        self.client.says(encode_request(BIG, count))
        return self.waiting

    def test_replies_that_come_while_it_does_not_read_are_kept(self) -> None:
        """Replies for a peer that does not read are kept up to a limit; then it is disconnected."""
        bound = CONNECTION_BYTES_UNSENT_MAX // MIB
        replies = self.waiting_replies(bound + 1)
        for deferred in replies[:bound - 2]:
            deferred.callback(Reply(body=self.big))
        self.assertFalse(self.client.is_closed)
        for deferred in replies[bound - 2:]:
            deferred.callback(Reply(body=self.big))
        assert self.client.connection.lost is not None
        self.client.connection.lost.trap(ConnectionAborted)
        self.assertEqual(self.server.in_flight.total_bytes, 0)

    def test_a_peer_that_read_everything_has_the_whole_bound_again(self) -> None:
        """A peer that took everything may have as much waiting again."""
        bound = CONNECTION_BYTES_UNSENT_MAX // MIB
        for _ in range(2):
            self.waiting.clear()
            for deferred in self.waiting_replies(bound - 2):
                deferred.callback(Reply(body=self.big))
            self.client.connection.peer_reads = True
            self.assertEqual(len(self.client.hears()), bound - 1)
            self.client.connection.peer_reads = False
        self.assertFalse(self.client.is_closed)

    def advance(self, milliseconds: int) -> None:
        """Let time pass and do the periodic work, except for idle connections."""
        self.server.reactor.advance(milliseconds / 1000)  # type: ignore[attr-defined]
        self.server.close_idle(10**9)

    def test_a_peer_that_reads_nothing_for_too_long_is_cut_off(self) -> None:
        """A peer that reads nothing for too long is disconnected, even if more replies arrive."""
        replies = self.waiting_replies(2)
        self.advance(WRITE_STALL_MAX_MS // 2)
        replies[0].callback(Reply(body=b"more"))
        self.advance(WRITE_STALL_MAX_MS // 2)
        self.assertFalse(self.client.is_closed)
        self.advance(1)
        assert self.client.connection.lost is not None
        self.client.connection.lost.trap(ConnectionAborted)
        replies[1].callback(Reply())

    def test_slow_is_not_stalled(self) -> None:
        """A peer that reads the waiting replies in time stays connected."""
        for _ in range(4):
            self.client.says(encode_request(BIG, 1))
            self.advance(WRITE_STALL_MAX_MS - 1)
            self.client.connection.peer_reads = True
            self.client.hears()
            self.client.connection.peer_reads = False
        self.assertFalse(self.client.is_closed)


class IdleCloseTests(ProtocolTestCase):
    """Connections that are silent for 120 s are closed."""

    def after(self, seconds: float) -> None:
        self.server.reactor.advance(seconds)  # type: ignore[attr-defined]
        self.server.close_idle(120_000)
        self.client.connection.pump()

    def test_just_120_s_is_not_too_long(self) -> None:
        """120 s are permitted, and more are not."""
        self.after(120)
        self.assertFalse(self.client.is_closed)
        self.after(0.001)
        self.assertTrue(self.client.is_closed)

    def test_any_bytes_count(self) -> None:
        """Any bytes count, even an incomplete frame."""
        frame = encode_request(ECHO, 1)
        for part in (frame[:5], frame[5:], frame):
            self.after(100)
            self.client.says(part)
        self.after(100)
        self.assertFalse(self.client.is_closed)

    def test_a_new_one_counts_from_its_beginning(self) -> None:
        """A peer that has sent nothing yet has the whole time."""
        self.after(100)
        late = Conversation(self.server)
        self.after(100)
        late.connection.pump()
        self.assertEqual((self.client.is_closed, late.is_closed), (True, False))
        self.after(20.001)
        late.connection.pump()
        self.assertTrue(late.is_closed)

    def test_idle_and_takes_nothing(self) -> None:
        """A peer that does not read its last replies is aborted in the next round."""
        self.client.connection.peer_reads = False
        self.client.says(encode_request(ECHO, 1, None, b"small"))
        self.after(121)
        self.assertFalse(self.client.is_closed)
        self.after(10)
        self.assertTrue(self.client.is_closed)

    def test_lines_of_the_log(self) -> None:
        """Many idle connections that do not read either do not fill the log."""
        clients = [Conversation(self.server) for _ in range(200)]
        for client in clients:
            client.connection.peer_reads = False
            client.says(encode_request(ECHO, 1, None, b"small"))
        with capturedLogs() as events:
            self.after(121)
            self.after(10)
        self.assertTrue(all(client.is_closed for client in clients))
        self.assertEqual(
            [len([event for event in events if words in str(event.get("log_format"))])
             for words in ("closed: idle", "cut off")], [EVENTS_A_MINUTE] * 2)

    def test_foreign_channels(self) -> None:
        """A registry may contain channels of another kind, which are ignored."""
        class Foreign:
            channel_id = -1

        self.server.channels.add(Foreign())  # type: ignore[arg-type]
        self.after(121)
        self.assertTrue(self.client.is_closed)


class CloseTests(ProtocolTestCase):
    """The end of a connection."""

    def test_close_sends_what_is_buffered(self) -> None:
        """Data that was written before is sent; later data is not."""
        self.client.connection.peer_reads = False
        self.client.says(encode_request(WAIT, 1), encode_request(BIG, 2))
        self.client.protocol.close()
        self.client.protocol.close()
        self.waiting[0].callback(Reply())
        self.assertFalse(self.client.is_closed)
        self.client.connection.peer_reads = True
        self.assertEqual(self.client.hears(), [(2, ResponseCode.SUCCESS)])
        self.assertTrue(self.client.is_closed)

    def test_after_the_end(self) -> None:
        """A lost connection may be closed and aborted; a request on it fails with a clear error."""
        waiting = self.client.protocol.call(ECHO, None, timeout_ms=1000)
        del self.client.connection.writes[:]
        self.client.connection.drop()
        for call in (waiting, self.client.protocol.call(ECHO, None, timeout_ms=1000)):
            error = self.failureResultOf(call, RemotingSendError)
            self.assertIn("connection to 10.1.2.3:40000", str(error.value))
        self.client.protocol.close()
        self.client.protocol.abort("is gone")
        self.client.protocol.write(b"x")
        self.assertEqual(self.client.connection.writes, [])

    def test_released_after_close(self) -> None:
        """The reading of a paused connection that closes is not resumed."""
        for _ in range(3):
            self.client.says(encode_request(WAIT, 1, None, bytes(12 * MIB)))
        self.assertFalse(self.client.connection.is_reading)
        self.client.protocol.close()
        for deferred in self.waiting:
            deferred.callback(Reply())
        self.assertFalse(self.client.connection.is_reading)


class _Control:
    """A flow control that refuses given requests with code 7."""

    def __init__(self) -> None:
        self.rejects = False
        #: Frames that may wait; requests that were refused, by what was asked.
        self.room = 10_000
        self.late_ms = 10_000
        self.asked: list[tuple[str, int]] = []

    def begin_round(self, waiting: WaitingRequests) -> None:
        """Do nothing."""

    def arrived(self, frames: Sequence[Frame], own_count: int, waiting: WaitingRequests) -> Any:
        self.asked.append(("arrived", own_count))
        return frames[:self.room], [self._refusal(frame) for frame in frames[self.room:]]

    def due(self, frames: Sequence[Frame], waited_ms: int, waiting: WaitingRequests) -> Any:
        self.asked.append(("due", waited_ms))
        return (frames, ()) if waited_ms < self.late_ms else (
            (), [self._refusal(frame) for frame in frames])

    def reject(self, frames: Sequence[Frame]) -> Any:
        return (), [self._refusal(frame) for frame in frames]

    @staticmethod
    def _refusal(frame: Frame) -> bytes:
        return encode_reply(7, decode_command(frame).opaque, None, b"", "no")


class FlowControlTests(ProtocolTestCase):
    """With flow control, requests of a busy server wait here, and too many are refused."""

    def setUp(self) -> None:
        super().setUp()
        self.control = _Control()
        self.begin()

    def begin(self) -> None:
        clock = self.server.reactor
        assert isinstance(clock, Clock)
        self.clock = clock
        self.server.run_queue.start(self.control)  # type: ignore[arg-type]
        self.addCleanup(self.server.run_queue.stop)
        self.server.flow_control = self.server.run_queue.flow_control

    def full_read(self, first: int, body: bytes = b"b" * 1024) -> int:
        """Requests of more than one read's bytes; :returns: how many."""
        count = READ_SIZE // 1024
        self.client.says(*[encode_request(ECHO, opaque, None, body)
                           for opaque in range(first, first + count)])
        return count

    def test_keeps_up(self) -> None:
        """The requests of a server that keeps up run at once, without flow control."""
        self.client.says(encode_request(ECHO, 1))
        self.assertEqual(self.client.hears(), [(1, 0)])
        self.assertEqual(self.control.asked, [])

    def test_waits_and_reads_on(self) -> None:
        """The requests of a full read wait; later ones are read and wait, too."""
        count = self.full_read(0)
        self.assertEqual(self.client.hears(), [])
        self.assertTrue(self.client.connection.is_reading)
        self.client.says(encode_request(ECHO, 999))
        self.assertEqual(self.control.asked, [("arrived", 0), ("arrived", count)])
        self.assertEqual(self.server.run_queue.request_count, count + 1)
        self.clock.advance(0.001)
        self.assertEqual([opaque for opaque, _ in self.client.hears()], [*range(count), 999])
        self.assertEqual(self.server.run_queue.request_count, 0)
        self.assertEqual(self.control.asked[2:], [("due", 1)])
        self.client.says(encode_request(ECHO, 1000))
        self.assertEqual(self.client.hears(), [(1000, 0)], msg="it keeps up again")

    def test_others_wait_too(self) -> None:
        """While one connection waits, the requests of others wait after it."""
        self.full_read(0)
        other = Conversation(self.server)
        other.says(encode_request(ECHO, 1))
        self.assertEqual(other.hears(), [])
        self.clock.advance(0)
        self.assertEqual(other.hears(), [(1, 0)])

    def test_a_request_refused_on_arrival_is_answered_at_once(self) -> None:
        """A request that is refused at its arrival is answered at once."""
        self.control.room = 3
        count = self.full_read(0)
        self.assertEqual(self.client.hears(), [(opaque, 7) for opaque in range(3, count)])
        self.clock.advance(0)
        self.assertEqual(self.client.hears(), [(0, 0), (1, 0), (2, 0)])

    def test_too_late(self) -> None:
        """A request that waited too long is refused."""
        self.control.late_ms = 200
        count = self.full_read(0)
        # The turn comes late: the reactor was held.
        self.patch(self.server, "monotonic", lambda: 0.2)
        self.clock.advance(0)
        self.assertEqual(self.client.hears(), [(opaque, 7) for opaque in range(count)])

    def test_waited_for_its_peer(self) -> None:
        """Requests that wait because the peer reads no replies are not late."""
        self.control.late_ms = 200
        self.client.connection.peer_reads = False
        self.client.says(encode_request(BIG, 1), encode_request(BIG, 2))
        self.assertFalse(self.client.connection.is_reading)
        self.full_read_later()
        self.clock.advance(5)
        self.client.connection.peer_reads = True
        heard = self.client.hears()
        self.clock.advance(0.01)
        self.clock.advance(0.01)
        heard += self.client.hears()
        self.assertEqual([code for _, code in heard], [0] * len(heard))
        self.assertEqual(heard[-1], (10, 0))

    def full_read_later(self) -> None:
        """Data that Twisted had read before the pause is kept."""
        self.client.protocol.dataReceived(encode_request(ECHO, 10))

    def test_a_rejecting_flow_control_is_asked_about_every_request(self) -> None:
        """While flow control rejects, it is asked about every request that would run."""
        self.control.rejects = True
        self.client.says(encode_request(ECHO, 1), encode_request(ECHO, 2))
        self.assertEqual(self.client.hears(), [(1, 7), (2, 7)])
        self.control.rejects = False
        self.client.says(encode_request(ECHO, 3))
        self.assertEqual(self.client.hears(), [(3, 0)])

    def test_bytes_are_bounded(self) -> None:
        """The waiting bytes are limited, whatever flow control permits; then reading stops."""
        self.patch(protocol, "WAITING_BYTES_TOTAL_MAX", READ_SIZE * 2)
        for first in (0, 1000):
            self.assertTrue(self.client.connection.is_reading)
            self.full_read(first)
        self.assertFalse(self.client.connection.is_reading)
        self.clock.advance(0)
        self.assertTrue(self.client.connection.is_reading)
        self.assertEqual(len(self.client.hears()), 2 * READ_SIZE // 1024)

    def test_lost_while_waiting(self) -> None:
        """No request runs for a lost connection, and none of its requests counts."""
        self.full_read(0)
        self.client.connection.drop()
        queue = self.server.run_queue
        self.assertEqual((queue.request_count, queue.size_bytes), (0, 0))
        self.clock.advance(0)
        self.assertEqual(self.client.connection.received, b"")
