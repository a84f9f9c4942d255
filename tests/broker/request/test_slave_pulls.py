"""Pulls at a slave that lags behind its master: clients ask again."""

from __future__ import annotations

from tests.broker.request.test_pull_hold import PullHoldTestCase
from twistmq.broker.testing.kernel import Peer
from twistmq.broker.testing.raw_client import pull_header
from twistmq.broker.testing.store import message
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pull import PullMessageResponseHeader


class SlavePullTests(PullHoldTestCase):
    """A slave with one message in queue 0 of T."""

    def setUp(self) -> None:
        super().setUp()
        self.box.kernel.set_role("SLAVE", 1)

    def answers(self, peer: Peer) -> list[tuple[int, int]]:
        """(code, offset to go on from) of the replies that came."""
        return [(reply.code, reply.header(PullMessageResponseHeader).next_begin_offset)
                for reply in self.box.late_replies(peer)]

    def test_a_pull_outside_of_the_queue_waits_for_a_second(self) -> None:
        """The offset is after the end, or the queue is empty; the offset is not corrected."""
        for queue_id in (0, 1):
            peer = self.pull(7, queue_id=queue_id)
            self.advance(999)
            self.assertEqual(self.answers(peer), [])
            self.advance(1)
            self.assertEqual(self.answers(peer), [(ResponseCode.PULL_RETRY_IMMEDIATELY, 7)])
        self.assertEqual(self.hold.count, 0)

    def test_a_pull_before_the_queue_waits_for_the_next_look(self) -> None:
        """The checks are a second apart."""
        peer = self.pull(-1)
        self.assertEqual(self.answers(peer), [])
        self.advance(1)
        self.assertEqual(self.answers(peer), [(ResponseCode.PULL_RETRY_IMMEDIATELY, -1)])

    def test_it_waits_no_longer_than_the_client_does(self) -> None:
        """A client that does not wait is answered immediately."""
        peer = self.pull(7, hold_ms=300)
        self.advance(299)
        self.assertEqual(self.answers(peer), [])
        self.advance(1)
        self.assertEqual(self.answers(peer), [(ResponseCode.PULL_RETRY_IMMEDIATELY, 7)])
        self.assertEqual(self.box.ask(RequestCode.PULL_MESSAGE, pull_header("T", 7)).code,
                         ResponseCode.PULL_RETRY_IMMEDIATELY)

    def test_a_reset_is_told_at_once(self) -> None:
        """An operator has moved the group, whatever messages the queue has."""
        self.box.kernel.consumer_offset.reset("test_consumer", "T", 0, 0)
        self.assertEqual(
            self.box.ask(RequestCode.PULL_MESSAGE, pull_header("T", 7, hold_ms=15_000)).code,
            ResponseCode.PULL_RETRY_IMMEDIATELY)

    def test_the_message_ends_the_wait(self) -> None:
        """The slave has received the message."""
        peer = self.pull(2)
        self.box.kernel.store.writable = True
        self.box.kernel.append([message("T", body=b"1"), message("T", body=b"2")])
        self.assertEqual(self.replies(peer), [(ResponseCode.SUCCESS, [b"2"])])
