"""Whether one request is all there is."""

import select
import socket
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.net.idle_spin import LINGER_SECONDS, PASSES_MAX, IdleSpin


class ReadTurnTests(SynchronousTestCase):
    """IdleSpin, of a reactor that watches two connections."""

    def setUp(self) -> None:
        """Connections nobody has written to."""
        self.poller = select.epoll()
        self.addCleanup(self.poller.close)
        self.peers = []
        for _ in range(2):
            ours, peer = socket.socketpair()
            self.addCleanup(ours.close)
            self.addCleanup(peer.close)
            self.poller.register(ours, select.EPOLLIN)
            self.peers.append((ours, peer))
        self.asked = 0
        self.turn = self.make_turn(2)

    def make_turn(self, processors: int) -> IdleSpin:
        """One with a request; its clock goes on by a tenth of a wait each time it is asked."""
        turn = IdleSpin(SimpleNamespace(_poller=self.poller), self.monotonic, processors)
        turn.request_count = 1
        return turn

    def monotonic(self) -> float:
        self.asked += 1
        return self.asked * LINGER_SECONDS / 10

    def test_the_spin_polls_when_no_other_connection_has_input(self) -> None:
        """Nobody has anything to read."""
        self.assertTrue(self.turn.is_lone())

    def test_others_wait(self) -> None:
        """One that is read no more does not count, one that was not read does."""
        for _, peer in self.peers:
            peer.send(b"x")
        self.peers[0][0].recv(9)
        self.assertFalse(self.turn.is_lone())
        self.peers[1][0].recv(9)
        self.assertTrue(self.turn.is_lone())

    def test_more_requests(self) -> None:
        """And no request at all: what is done then is nobody's turn."""
        for count in (0, 2):
            self.turn.request_count = count
            self.assertFalse(self.turn.is_lone())

    def test_other_reactor(self) -> None:
        """What cannot be known is not believed."""
        self.turn = IdleSpin(SimpleNamespace())
        self.turn.request_count = 1
        self.assertFalse(self.turn.is_lone())

    def linger(self, turn: IdleSpin) -> tuple[bool, bool]:
        """:returns: whether somebody came after a lone request, and whether it was waited."""
        self.assertTrue(turn.is_lone())
        asked = self.asked
        return turn.linger(), self.asked > asked

    def test_next_comes_soon(self) -> None:
        """The wait ends as soon as anybody has something to read."""
        ours, peer = self.peers[0]
        for _ in range(3):
            self.assertTrue(self.turn.is_lone())
            peer.send(b"x")
            asked = self.asked
            self.assertTrue(self.turn.linger())
            self.assertEqual(self.asked, asked + 1)
            ours.recv(9)

    def test_nobody_comes(self) -> None:
        """The wait is bounded, and ever rarer."""
        waited = [number for number in range(40) if self.linger(self.turn)[1]]
        self.assertEqual(waited, [0, 2, 6, 14, 30])
        for _ in range(20 * PASSES_MAX):
            self.linger(self.turn)
        passed = [self.linger(self.turn)[1] for _ in range(2 * PASSES_MAX + 2)]
        self.assertEqual(sum(passed), 2)

    def test_somebody_came_again(self) -> None:
        """After one wait that was not in vain each lone request is waited for again."""
        ours, peer = self.peers[0]
        waited = [self.linger(self.turn)[1] for _ in range(14)]
        self.assertEqual(sum(waited), 3)
        self.assertTrue(self.turn.is_lone())
        peer.send(b"x")
        self.assertTrue(self.turn.linger())
        ours.recv(9)
        self.assertEqual(self.linger(self.turn), (False, True))

    def test_no_lone_request(self) -> None:
        """Nothing is waited for after others, and twice after none."""
        self.assertFalse(self.turn.linger())
        self.turn.request_count = 2
        self.assertFalse(self.turn.is_lone())
        self.assertFalse(self.turn.linger())
        self.turn.request_count = 1
        self.linger(self.turn)
        asked = self.asked
        self.assertFalse(self.turn.linger())
        self.assertEqual(self.asked, asked)

    def test_one_processor(self) -> None:
        """Whoever would come needs the processor."""
        turn = self.make_turn(1)
        self.assertEqual(self.linger(turn), (False, False))
