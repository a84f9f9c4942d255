"""Requests of several connections that form one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.constants import TURN_SECONDS
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.run_queue import READ_SIZE
from twistmq.broker.net.slices import JOINING_FRAMES_MAX, PIECE_FRAMES_MAX
from twistmq.broker.remoting.messages import (
    DeferredReply,
    Handled,
    Reply,
    Request,
    RequestHandler,
)
from twistmq.broker.testing.conversation import Conversation, make_server
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.header import CommandHeader, Int32

ECHO, BATCH, OTHER = 901, 902, 903
Batch = list[tuple[Any, bytes]]


class NumberHeader(CommandHeader):
    """A header that is read with its frame, as a send's is."""

    is_hot: ClassVar[bool] = True
    number: Int32


HEADER = NumberHeader(number=1)


class SliceTestCase(SynchronousTestCase):
    """Connections of a server all of which have input at the same time."""

    plugins: list[tuple[str, object]] = []  # noqa: RUF012

    def setUp(self) -> None:
        #: The channel and body of each request, by batch.
        self.batches: list[Batch] = []
        self.clock = Clock()
        self.server = make_server([
            RequestHandler(ECHO, lambda request: Reply(body=request.body)),
            RequestHandler(BATCH, lambda request: Reply(), NumberHeader,
                           handle_batch=self.handle, joins_connections=True),
            RequestHandler(OTHER, lambda request: Reply(), NumberHeader,
                           handle_batch=self.handle, joins_connections=True),
        ], clock=self.clock, plugins=self.plugins)
        self.addCleanup(self.server.run_queue.stop)
        self.have_input(self.server)
        self.clients = [Conversation(self.server) for _ in range(3)]

    def have_input(self, server: RemotingFactory) -> None:
        self.patch(server.idle_spin, "has_input", lambda: True)

    def handle(self, requests: Sequence[Request[Any]]) -> Sequence[Handled]:
        self.batches.append([(request.channel, request.body) for request in requests])
        return [Reply(body=request.body) for request in requests]

    def serve(self, handle_batch: Callable[[Sequence[Request[Any]]], Sequence[Handled]]) -> None:
        """Replace the handler."""
        handlers = self.server.dispatcher.handlers
        handlers[BATCH] = replace(handlers[BATCH], handle_batch=handle_batch)

    def ask(self, number: int, *bodies: bytes, code: int = BATCH) -> None:
        """Send requests of a client, whose opaques are counted from 0."""
        self.clients[number].says(
            *[encode_request(code, opaque, HEADER, body) for opaque, body in enumerate(bodies)])

    def heard(self, number: int) -> list[tuple[int, int, bytes]]:
        return [(reply.opaque, reply.code, reply.body) for reply in self.clients[number].heard()]

    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


class JoinedTests(SliceTestCase):
    """Requests that the reactor reads in one round."""

    def test_each_connection_gets_its_own_replies(self) -> None:
        """They form one batch, in the order of the connections, with one write for each."""
        for number in range(3):
            self.ask(number, b"%d a" % number, b"%d b" % number)
        self.assertEqual(self.batches, [])
        self.clock.advance(0)
        self.assertEqual(self.batches, [[
            (client.protocol, b"%d %s" % (number, letter))
            for number, client in enumerate(self.clients) for letter in (b"a", b"b")]])
        for number, client in enumerate(self.clients):
            self.assertEqual(self.heard(number),
                             [(0, 0, b"%d a" % number), (1, 0, b"%d b" % number)])
            self.assertEqual(len(client.connection.writes), 1)

    def test_one_alone(self) -> None:
        """A connection without others is served as well, and so is the next round."""
        for _ in range(2):
            self.ask(0, b"x")
            self.clock.advance(0)
            self.assertEqual(self.heard(0), [(0, 0, b"x")])

    def test_without_other_input(self) -> None:
        """If no other connection has input, no request waits."""
        self.patch(self.server.idle_spin, "has_input", lambda: False)
        self.ask(0, b"x")
        self.assertEqual(self.heard(0), [(0, 0, b"x")])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_requests_of_other_codes_do_not_wait(self) -> None:
        """Only requests that are handled together wait for others."""
        self.ask(0, b"x")
        self.ask(1, b"y", code=ECHO)
        self.assertEqual(self.heard(1), [(0, 0, b"y")])
        self.clients[2].says(encode_request(BATCH, 0, HEADER), encode_request(ECHO, 1))
        self.assertEqual([opaque for opaque, _, _ in self.heard(2)], [0, 1])
        self.clock.advance(0)
        self.assertEqual(self.sizes(), [1, 1])

    def test_codes_and_ports_are_not_mixed(self) -> None:
        """A batch has one code, and belongs to one port."""
        other = make_server(self.server.dispatcher.handlers.values(), clock=self.clock)
        other.run_queue = self.server.run_queue
        self.have_input(other)
        self.clients.append(Conversation(other))
        for number, code in ((0, BATCH), (1, BATCH), (2, OTHER), (3, OTHER)):
            self.ask(number, b"x", code=code)
        self.clock.advance(0)
        self.assertEqual(self.sizes(), [2, 1, 1])
        for number in range(4):
            self.assertEqual(self.heard(number), [(0, 0, b"x")])

    def test_sizes(self) -> None:
        """A batch has a piece's requests at most; many requests of one connection are one."""
        self.ask(0, *[b"x"] * JOINING_FRAMES_MAX)
        self.assertEqual(self.sizes(), [JOINING_FRAMES_MAX])
        count = JOINING_FRAMES_MAX - 1
        self.clients += [Conversation(self.server) for _ in range(3)]
        for number in range(6):
            self.ask(number, *[b"x"] * count)
        self.clock.advance(0)
        whole = PIECE_FRAMES_MAX // count * count
        self.assertEqual(self.sizes()[1:], [whole, 6 * count - whole])

    def test_long_requests(self) -> None:
        """A batch of long requests is full earlier."""
        body = bytes(48 * 1024)
        self.clients += [Conversation(self.server) for _ in range(37)]
        for number in range(40):
            self.ask(number, body)
        self.clock.advance(0)
        self.assertEqual(self.sizes(), [22, 18])

    def test_a_second_read_of_a_connection(self) -> None:
        """The requests of its first read are run first, in the batch that waits."""
        self.ask(0, b"first")
        self.ask(1, b"other")
        self.clients[0].says(encode_request(ECHO, 1, None, b"second"))
        self.assertEqual([body for _, _, body in self.heard(0)], [b"first", b"second"])
        self.assertEqual(self.heard(1), [(0, 0, b"other")])
        self.assertEqual(self.sizes(), [2])

    def test_a_broken_frame_behind(self) -> None:
        """The requests before it are answered; then the connection ends."""
        self.clients[0].says(encode_request(BATCH, 0, HEADER, b"x"), bytes(8))
        self.assertEqual(self.heard(0), [(0, 0, b"x")])
        self.assertTrue(self.clients[0].is_closed)

    def test_a_connection_that_is_lost(self) -> None:
        """Its requests are executed; the others are answered."""
        self.ask(0, b"x")
        self.ask(1, b"y")
        self.clients[0].connection.drop()
        self.clock.advance(0)
        self.assertEqual(self.sizes(), [2])
        self.assertEqual(self.heard(1), [(0, 0, b"y")])
        self.assertEqual(self.clients[0].connection.writes, [])

    def test_a_handler_that_raises(self) -> None:
        """Each request is answered on its own connection."""

        def broken(requests: Sequence[Request[Any]]) -> Sequence[Handled]:
            raise ValueError("broken")

        self.serve(broken)
        self.ask(0, b"x")
        self.ask(1, b"y", b"z")
        self.clock.advance(0)
        self.assertEqual(len(self.flushLoggedErrors()), 3)
        self.assertEqual([code for _, code, _ in self.heard(0) + self.heard(1)],
                         [ResponseCode.SYSTEM_ERROR] * 3)

    def test_replies_that_wait(self) -> None:
        """Each connection gets one write when they are ready, and then has no open requests."""
        flushed: Deferred[None] = Deferred()

        def held(requests: Sequence[Request[Any]]) -> Sequence[Handled]:
            return [DeferredReply(Reply(body=request.body), flushed) for request in requests]

        self.serve(held)
        self.ask(0, b"a", b"b")
        self.ask(1, b"c")
        self.clock.advance(0)
        self.assertEqual(self.heard(0) + self.heard(1), [])
        self.assertGreater(self.server.in_flight.total_bytes, 0)
        flushed.callback(None)
        self.assertEqual([len(client.connection.writes) for client in self.clients], [1, 1, 0])
        self.assertEqual([body for _, _, body in self.heard(0)], [b"a", b"b"])
        self.assertEqual([body for _, _, body in self.heard(1)], [b"c"])
        self.assertEqual(self.server.in_flight.total_bytes, 0)

    def test_a_slow_batch_is_logged(self) -> None:
        """The line has one peer, and the number of the others."""
        self.server.slow.limit_ms = 100

        def slow(requests: Sequence[Request[Any]]) -> Sequence[Handled]:
            self.clock.rightNow += 0.2
            return self.handle(requests)

        self.serve(slow)
        self.ask(0, b"x")
        self.ask(1, b"x", b"y")
        with capturedLogs() as events:
            self.clock.advance(0)
        [event] = [event for event in events if "slow request" in event["log_format"]]
        self.assertEqual((event["what"], event["peer"], event["milliseconds"]),
                         (f"{BATCH} ADD_BROKER x 3",
                          f"{self.clients[0].protocol.remote_address} and 1 other connections",
                          200))

    def test_a_batch_that_fails(self) -> None:
        """A fault of the broker cuts the connections of the batch off; the next one is served."""
        def broken(runs: object) -> None:
            raise ValueError("broken")

        patched = self.patch(self.server.dispatcher, "execute_together", broken)
        self.ask(0, b"x")
        self.ask(1, b"x")
        self.clock.advance(0)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual([client.is_closed for client in self.clients], [True, True, False])
        patched.restore()
        self.ask(2, b"x")
        self.clock.advance(0)
        self.assertEqual(self.heard(2), [(0, 0, b"x")])

    def test_replies_that_cannot_be_written(self) -> None:
        """A connection whose replies cannot be written does not affect the others."""
        def broken(data: bytes) -> None:
            raise ValueError("broken")

        self.patch(self.clients[0].protocol, "write", broken)
        self.ask(0, b"x")
        self.ask(1, b"y")
        self.clock.advance(0)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertTrue(self.clients[0].is_closed)
        self.assertEqual(self.heard(1), [(0, 0, b"y")])

    def test_a_broken_frame_behind_what_waits(self) -> None:
        """The requests of both reads are answered before the connection ends."""
        self.ask(0, b"x")
        self.ask(1, b"y")
        self.clients[0].says(encode_request(BATCH, 1, HEADER, b"z"), bytes(8))
        self.assertEqual([body for _, _, body in self.heard(0)], [b"x", b"z"])
        self.assertTrue(self.clients[0].is_closed)

    def test_closing(self) -> None:
        """The broker answers a connection's requests before it closes the connection."""
        self.ask(0, b"x")
        self.clients[0].protocol.close()
        self.assertEqual(self.heard(0), [(0, 0, b"x")])

    def test_a_full_read_does_not_wait(self) -> None:
        """Behind a full read the input may be the connection's own."""
        self.ask(0, bytes(READ_SIZE // 2), bytes(READ_SIZE // 2))
        self.assertEqual(self.sizes(), [2])

    def test_a_server_that_stops(self) -> None:
        """The waiting batch is dropped."""
        self.ask(0, b"x")
        self.server.run_queue.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.sizes(), [])


class Watcher:
    """A plugin that refuses requests by their body, and changes replies."""

    @staticmethod
    @hookimpl
    def before_request(request: Request[Any]) -> RequestRefused | None:
        return RequestRefused(ResponseCode.NO_PERMISSION, "no") if request.body == b"no" else None

    @staticmethod
    @hookimpl
    def after_response(request: Request[Any], reply: Reply) -> None:
        reply.body += b"!"


class HookTests(SliceTestCase):
    """Plugins see each request and each reply."""

    plugins = [("watcher", Watcher())]  # noqa: RUF012

    def test_a_refused_request_has_no_effect_on_others(self) -> None:
        """A refused request is not in the batch; the others of its connection are."""
        self.ask(0, b"a", b"no")
        self.ask(1, b"no")
        self.ask(2, b"b")
        self.clock.advance(0)
        self.assertEqual([[body for _, body in batch] for batch in self.batches], [[b"a", b"b"]])
        self.assertEqual(sorted(self.heard(0)),
                         [(0, 0, b"a!"), (1, ResponseCode.NO_PERMISSION, b"!")])
        self.assertEqual(self.heard(1), [(0, ResponseCode.NO_PERMISSION, b"!")])
        self.assertEqual(self.heard(2), [(0, 0, b"b!")])


class WaitingTests(SliceTestCase):
    """Requests that wait while the broker is behind."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(self.server.idle_spin, "has_input", lambda: False)
        self.server.run_queue.start(_Control())  # type: ignore[arg-type]
        self.server.flow_control = self.server.run_queue.flow_control
        # The round of the reactor has lasted long.
        self.clock.rightNow += 1

    def test_one_batch(self) -> None:
        """Connections with few requests form one batch, and those with others are served too."""
        self.ask(0, b"a")
        self.ask(1, b"b", code=ECHO)
        self.ask(2, b"c", b"d")
        self.assertEqual(self.server.run_queue.request_count, 4)
        self.clock.advance(0)
        self.assertEqual(self.sizes(), [3])
        self.assertEqual([body for number in range(3) for _, _, body in self.heard(number)],
                         [b"a", b"b", b"c", b"d"])
        self.assertEqual(self.server.run_queue.request_count, 0)
        self.assertTrue(all(client.connection.is_reading for client in self.clients))


    def test_turns(self) -> None:
        """A step ends when its time is over, even if each slice completes a batch."""
        def slow(requests: Sequence[Request[Any]]) -> Sequence[Handled]:
            self.clock.rightNow += TURN_SECONDS
            return self.handle(requests)

        self.serve(slow)
        for _ in range(3):
            self.clock.rightNow += 1
            for number in range(2):
                self.ask(number, *[b"x"] * 200)
        sizes = []
        while self.server.run_queue.connection_count:
            before = len(self.batches)
            self.server.run_queue._step()
            sizes.append(len(self.batches) - before)
        self.assertEqual(self.sizes(), [200] * 6)
        self.assertLessEqual(max(sizes), 2)


class _Control:
    """A flow control that refuses nothing."""

    rejects = False

    def begin_round(self, waiting: object) -> None:
        """Do nothing."""

    def arrived(self, frames: Any, own_count: int, waiting: object) -> Any:
        return frames, ()

    def due(self, frames: Any, waited_ms: int, waiting: object) -> Any:
        return frames, ()
