"""Pops that wait."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from tests.cost import GROWTH_MAX, growth
from tests.plugins.pop.case import PopTestCase, popped_of
from twistmq.broker.constants import HELD_REQUEST_BYTES, HOLD_MS_MAX
from twistmq.broker.remoting.messages import Reply
from twistmq.broker.request import waiting_by_tag
from twistmq.broker.testing.kernel import Peer
from twistmq.plugins.pop.hold import HeldPop
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
)


class HoldTests(PopTestCase):
    """A pop waits until a message for it exists."""

    def count_read(self, peer: Peer) -> list[bytes]:
        """Return the messages that a peer got in late responses."""
        return [each.body for reply in self.box.late_replies(peer) for each in popped_of(reply)]

    def waiting(self, queue_id: int = -1) -> int:
        reply = self.box.ask(RequestCode.POLLING_INFO, PollingInfoRequestHeader(
            consumer_group="g", topic="T", queue_id=queue_id))
        return reply.header(PollingInfoResponseHeader).polling_num

    def setUp(self) -> None:
        super().setUp()
        self.send(b"first")
        self.pop()

    def test_a_message_in_any_queue_wakes_a_pop(self) -> None:
        """The message may be in any queue."""
        peer = self.box.peer()
        self.wait_pop(peer)
        self.assertEqual(self.waiting(), 1)
        self.assertGreater(peer.held_bytes, 0)
        self.send(b"x", queue_id=1)
        self.assertEqual(self.count_read(peer), [b"x"])
        self.assertEqual((self.waiting(), peer.held_bytes), (0, 0))

    def test_one_for_one(self) -> None:
        """A message wakes one pop of a group, and one of each other group."""
        peers = [self.box.peer() for _ in range(3)]
        self.wait_pop(peers[0])
        self.wait_pop(peers[1])
        self.pop(group="other")
        self.wait_pop(peers[2], group="other")
        self.send(b"x")
        self.assertEqual([self.count_read(peer) for peer in peers], [[b"x"], [], [b"x"]])
        self.send(b"y")
        self.assertEqual(self.count_read(peers[1]), [b"y"])

    def test_what_it_keeps_counts(self) -> None:
        """A long expression counts twice, for the request and for its header."""
        plain, long = self.box.peer(), self.box.peer()
        self.wait_pop(plain, expression="a")
        self.wait_pop(long, expression="a || " + "b" * 50_000)
        self.assertGreaterEqual(long.held_bytes - plain.held_bytes, 2 * 50_000)
        notify = NotificationRequestHeader(consumer_group="g", topic="T", queue_id=-1,
                                           poll_time=10_000)
        told = self.box.peer()
        self.assertIsNone(self.box.send(told, RequestCode.NOTIFICATION, notify,
                                        extra_fields={"more": "x" * 50_000}))
        self.assertGreater(told.held_bytes, HELD_REQUEST_BYTES + 50_000)

    def test_an_ended_wait_is_dropped_before_its_deadline(self) -> None:
        """A wait that has ended is not kept until its deadline."""
        peer = self.box.peer()
        for number in range(500):
            self.wait_pop(peer, poll_ms=10**12)
            self.send(b"%d" % number)
        self.assertEqual(self.count_read(peer), [b"%d" % number for number in range(500)])
        self.assertLess(len(self.service.state.hold._deadlines), 250)
        # Those that wait still end in their time.
        self.wait_pop(peer, poll_ms=1000)
        self.pass_time(1000)
        self.assertEqual((self.waiting(), peer.held_bytes), (0, 0))

    def test_gone_clients(self) -> None:
        """A pop whose client has disconnected no longer waits, however long its time-out is."""
        gone, there = self.box.peer(), self.box.peer()
        self.wait_pop(gone, poll_ms=10**12)
        self.wait_pop(there, poll_ms=10**12)
        gone.active = False
        self.run_task("forget pops of deleted topics and groups")
        self.assertEqual((self.service.state.hold.count, gone.held_bytes), (1, 0))
        self.send(b"x")
        self.assertEqual(self.count_read(there), [b"x"])

    def test_no_slow_requests(self) -> None:
        """A request that waits for a message is not reported as slow."""
        handlers = self.box.kernel.dispatcher.handlers
        for code in (RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION):
            self.assertTrue(handlers[code].waits, msg=code.name)

    def test_cost_of_other_tags(self) -> None:
        """The cost of a message that no pop wants does not depend on the number of pops."""
        self.patch(waiting_by_tag, "_SALT", 0x9E3779B97F4A7C15)
        numbers = count()

        def prepare(pops: int) -> Callable[[], object]:
            topic = f"T{next(numbers)}"
            self.send(b"x", topic=topic)
            for group in range(4):
                self.pop(group=f"g{group}", topic=topic)
                for _ in range(pops // 4):
                    self.wait_pop(self.box.peer(), group=f"g{group}", topic=topic,
                                  expression="never")
            return lambda: [self.send(b"x", topic=topic, tag="a") for _ in range(100)]

        self.assertLess(growth(prepare, 1000, most=2), 2)
        group = self.box.peer()
        self.wait_pop(group, group="g0", topic="T0", expression="never")
        self.send(b"y", topic="T0", tag="never")
        self.assertEqual(self.service.state.hold.waiting(("T0", "g0", -1)), 125)

    def test_own_queue(self) -> None:
        """A pop of one queue waits for a message in that queue."""
        peer = self.box.peer()
        self.wait_pop(peer, queue_id=1)
        self.send(b"x", queue_id=0)
        self.assertEqual((self.count_read(peer), self.waiting(1)), ([], 1))
        self.send(b"y", queue_id=1)
        self.assertEqual(self.count_read(peer), [b"y"])

    def test_a_message_that_its_filter_does_not_want_does_not_end_the_wait(self) -> None:
        """A message that its filter does not want does not end the wait."""
        peer = self.box.peer()
        self.wait_pop(peer, expression="a")
        self.send(b"x", tag="b")
        self.assertEqual(peer.written, [])
        self.send(b"y", tag="a")
        self.assertEqual(self.count_read(peer), [b"y"])

    def test_clock_jumps(self) -> None:
        """The time-out is the requested one, even if the clock is set in the meantime."""
        peer = self.box.peer()
        self.wait_pop(peer, poll_ms=2000)
        self.box.jump_ms = -3_600_000
        self.pass_time(1900, 100)
        self.assertEqual(peer.written, [])
        self.pass_time(100, 50)
        self.assertEqual(len(peer.written), 1)

    def test_time_is_up(self) -> None:
        """The client gets a response just before it gives up."""
        peer = self.box.peer()
        self.wait_pop(peer, poll_ms=2000)
        self.pass_time(1900, 100)
        self.assertEqual(peer.written, [])
        self.pass_time(100, 50)
        [reply] = self.box.late_replies(peer)
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE"))

    def test_a_retry_ends_the_wait_at_once(self) -> None:
        """The retry is delivered immediately; with Apache's broker the client must pop again."""
        peer = self.box.peer()
        self.wait_pop(peer, poll_ms=20_000)
        self.pass_time(8000)
        self.assertEqual(self.count_read(peer), [b"first"])

    def test_polls_beyond_the_limit_are_refused(self) -> None:
        """Polls above the limit get a response that says so."""
        self.restart(popPollingSize="1")
        for _ in range(2):
            self.wait_pop(self.box.peer())
        self.assertEqual(self.ask_pop(poll_ms=5000).code, ResponseCode.POLLING_FULL)
        self.assertEqual(self.ask_pop(queue_id=1, poll_ms=0).code, ResponseCode.POLLING_TIMEOUT)
        self.restart(maxPopPollingSize="1")
        self.wait_pop(self.box.peer())
        self.assertEqual(self.ask_pop(poll_ms=5000, queue_id=1).code, ResponseCode.POLLING_FULL)

    def test_no_wait_is_longer_than_the_bound(self) -> None:
        """A time-out without an end, or a born time in the future, is limited."""
        self.ack(*self.pop(group="quiet"), group="quiet")
        for poll_ms, born_ms in ((2**62, self.box.now_ms), (2**62, 2**61), (1000, 2**61),
                                 (2**62, self.box.now_ms - 2**60)):
            notify = NotificationRequestHeader(
                consumer_group="quiet", topic="T", queue_id=-1, poll_time=poll_ms,
                born_time=born_ms)
            pop = self.pop_header(poll_ms=poll_ms, group="quiet")
            pop.born_time = born_ms
            peers = []
            for code, header in ((RequestCode.POP_MESSAGE, pop),
                                 (RequestCode.NOTIFICATION, notify)):
                peers.append(self.box.peer())
                self.assertIsNone(self.box.send(peers[-1], code, header))
            most = min(poll_ms, HOLD_MS_MAX)
            self.pass_time(most - 1000, 1000)
            self.assertEqual([peer.written for peer in peers], [[], []], msg=str(poll_ms))
            self.pass_time(1000, 500)
            popped, told = (self.box.late_replies(peer)[0] for peer in peers)
            self.assertEqual(popped.code, ResponseCode.POLLING_TIMEOUT)
            self.assertFalse(told.header(NotificationResponseHeader).has_msg)

    def full(self, **settings: str) -> Peer:
        """Return a connection whose pops and notifications use the whole limit."""
        self.restart(**settings)
        stranger = self.box.peer()
        notify = NotificationRequestHeader(consumer_group="g", topic="T", queue_id=-1,
                                           poll_time=2**62)
        for _ in range(4):
            self.wait_pop(stranger, poll_ms=2**62)
            self.assertIsNone(self.box.send(stranger, RequestCode.NOTIFICATION, notify))
        return stranger

    def test_one_connection_does_not_keep_others_from_waiting(self) -> None:
        """Its oldest waits end and make room; it gets no more room itself."""
        for settings in ({"popPollingSize": "3"}, {"maxPopPollingSize": "4"}):
            stranger = self.full(**settings)
            peers = [self.box.peer() for _ in range(2)]
            notify = NotificationRequestHeader(consumer_group="g", topic="T", queue_id=-1,
                                               poll_time=10_000)
            for peer in peers:
                self.wait_pop(peer)
                if peer is peers[0]:
                    self.assertIsNone(self.box.send(peer, RequestCode.NOTIFICATION, notify))
            replies = self.box.late_replies(stranger)
            self.assertEqual(
                sorted(reply.code for reply in replies),
                [ResponseCode.SUCCESS, ResponseCode.POLLING_FULL, ResponseCode.POLLING_FULL])
            self.assertEqual([reply.header(NotificationResponseHeader).polling_full
                              for reply in replies if reply.code == ResponseCode.SUCCESS], [True])
            refused = self.box.send(stranger, RequestCode.POP_MESSAGE,
                                    self.pop_header(poll_ms=10_000))
            assert refused is not None
            self.assertEqual(refused.code, ResponseCode.POLLING_FULL)
            self.assertEqual(self.waiting(), 4)
            stranger.written.clear()
            peers[0].written.clear()
            # The waits of the others are as good as any.
            for body in (b"x", b"y", b"z", b"w"):
                self.send(body)
            self.assertEqual([len(peer.written) for peer in (stranger, *peers)], [2, 1, 1])
            for hold in (self.service.state.hold, self.service.state.notified):
                self.assertEqual((hold._of_connection, hold._of_key) if not hold.count else (),
                                 ({}, {}) if not hold.count else ())
            self.assertEqual(self.service.state.hold.count, 0)

    def test_equal_shares_are_left_alone(self) -> None:
        """If no connection has more than its share, no wait is ended for a new one."""
        self.restart(popPollingSize="2")
        peers = [self.box.peer() for _ in range(3)]
        for peer in peers:
            self.wait_pop(peer)
        self.assertEqual(self.ask_pop(poll_ms=5000).code, ResponseCode.POLLING_FULL)
        self.assertEqual([peer.written for peer in peers], [[], [], []])

    def test_client_is_lost(self) -> None:
        """A client that has disconnected gets no messages."""
        peer = self.box.peer()
        self.wait_pop(peer)
        peer.active = False
        self.box.kernel.channels.remove(peer)
        self.send(b"x")
        self.assertEqual([each.body for each in self.pop()], [b"x"])
        self.pass_time(10_000)
        self.assertEqual((self.waiting(), self.service.state.hold.count), (0, 0))
        self.assertEqual(peer.written, [])

    def test_a_broker_that_stops_ends_all_waits(self) -> None:
        """A broker that stops ends all waits."""
        peer = self.box.peer()
        self.wait_pop(peer)
        self.restart()
        self.assertEqual([reply.code for reply in self.box.late_replies(peer)],
                         [ResponseCode.POLLING_TIMEOUT])

    def test_cost_of_many(self) -> None:
        """The next pop is found in constant time, however many were examined before."""
        hold = self.service.state.hold
        later: list[Callable[[], None]] = []
        self.box.host.run_soon = later.append
        self.patch(hold, "_look", lambda waiting, is_last: None)

        def prepare(count: int) -> Callable[[], object]:
            request: Any = None
            for _ in range(count):
                hold.look_soon(HeldPop(request, ("T", "g", 0), 0, None, lambda *_: None,
                                       lambda _: Reply()))
            return later.pop()

        self.assertLess(growth(prepare, 10_000), GROWTH_MAX)

    def test_others_have_their_turn(self) -> None:
        """With a reactor, pops that were woken are served after other events."""
        later: list[object] = []
        self.box.host.run_soon = later.append
        peers = [self.box.peer() for _ in range(2)]
        for peer in peers:
            self.wait_pop(peer, count=1)
        self.send(b"x")
        self.send(b"y")
        self.assertEqual([self.count_read(peer) for peer in peers], [[], []])
        for run in later:
            assert callable(run)
            run()
        self.assertEqual([self.count_read(peer) for peer in peers], [[b"x"], [b"y"]])
