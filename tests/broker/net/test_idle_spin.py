"""The condition under which a single request is the only input."""

import select
import socket
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.net.idle_spin import SKIPS_MAX, SPIN_SECONDS, IdleSpin


class ReadTurnTests(SynchronousTestCase):
    """IdleSpin, of a reactor that watches two connections."""

    def setUp(self) -> None:
        """Create connections without input."""
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
        self.idle_spin = self.make_spin(2)

    def make_spin(self, processors: int) -> IdleSpin:
        """Return a spin with one request, whose clock advances by a tenth of a wait per reading."""
        idle_spin = IdleSpin(SimpleNamespace(_poller=self.poller), self.monotonic, processors)
        idle_spin.request_count = 1
        return idle_spin

    def monotonic(self) -> float:
        self.asked += 1
        return self.asked * SPIN_SECONDS / 10

    def test_the_spin_polls_when_no_other_connection_has_input(self) -> None:
        """No connection has anything to read."""
        self.assertTrue(self.idle_spin.is_lone())

    def test_others_wait(self) -> None:
        """A connection whose reading is paused does not count; one that is not read yet does."""
        for _, peer in self.peers:
            peer.send(b"x")
        self.peers[0][0].recv(9)
        self.assertFalse(self.idle_spin.is_lone())
        self.peers[1][0].recv(9)
        self.assertTrue(self.idle_spin.is_lone())

    def test_input(self) -> None:
        """Input counts until it is read, for any number of requests."""
        self.idle_spin.request_count = 0
        self.assertFalse(self.idle_spin.has_input())
        self.peers[0][1].send(b"x")
        self.assertTrue(self.idle_spin.has_input())
        self.peers[0][0].recv(9)
        self.assertFalse(self.idle_spin.has_input())
        self.assertFalse(IdleSpin(SimpleNamespace()).has_input())

    def test_more_requests(self) -> None:
        """Without a request there is no spin."""
        for count in (0, 2):
            self.idle_spin.request_count = count
            self.assertFalse(self.idle_spin.is_lone())

    def test_other_reactor(self) -> None:
        """Another reactor does not show its connections, so no spin is made."""
        self.idle_spin = IdleSpin(SimpleNamespace())
        self.idle_spin.request_count = 1
        self.assertFalse(self.idle_spin.is_lone())

    def spin(self, idle_spin: IdleSpin) -> tuple[bool, bool]:
        """Spin after a lone request; :returns: (whether input arrived, whether the spin waited)."""
        self.assertTrue(idle_spin.is_lone())
        asked = self.asked
        return idle_spin.spin(), self.asked > asked

    def test_next_comes_soon(self) -> None:
        """The wait ends when any connection has something to read."""
        ours, peer = self.peers[0]
        for _ in range(3):
            self.assertTrue(self.idle_spin.is_lone())
            peer.send(b"x")
            asked = self.asked
            self.assertTrue(self.idle_spin.spin())
            self.assertEqual(self.asked, asked + 1)
            ours.recv(9)

    def test_nobody_comes(self) -> None:
        """The wait is limited, and becomes rarer."""
        waited = [number for number in range(40) if self.spin(self.idle_spin)[1]]
        self.assertEqual(waited, [0, 2, 6, 14, 30])
        for _ in range(20 * SKIPS_MAX):
            self.spin(self.idle_spin)
        passed = [self.spin(self.idle_spin)[1] for _ in range(2 * SKIPS_MAX + 2)]
        self.assertEqual(sum(passed), 2)

    def test_somebody_came_again(self) -> None:
        """After one wait that was not in vain each lone request is waited for again."""
        ours, peer = self.peers[0]
        waited = [self.spin(self.idle_spin)[1] for _ in range(14)]
        self.assertEqual(sum(waited), 3)
        self.assertTrue(self.idle_spin.is_lone())
        peer.send(b"x")
        self.assertTrue(self.idle_spin.spin())
        ours.recv(9)
        self.assertEqual(self.spin(self.idle_spin), (False, True))

    def test_no_lone_request(self) -> None:
        """After several requests there is no wait; after none there are two."""
        self.assertFalse(self.idle_spin.spin())
        self.idle_spin.request_count = 2
        self.assertFalse(self.idle_spin.is_lone())
        self.assertFalse(self.idle_spin.spin())
        self.idle_spin.request_count = 1
        self.spin(self.idle_spin)
        asked = self.asked
        self.assertFalse(self.idle_spin.spin())
        self.assertEqual(self.asked, asked)

    def test_one_processor(self) -> None:
        """Another process would need the processor."""
        turn = self.make_spin(1)
        self.assertEqual(self.spin(turn), (False, False))
