"""The connections of replication, over a transport that the test empties."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.plugins.ha.frames import FrameReader, encode_head, encode_report
from twistmq.plugins.ha.links import MasterLink, SlaveLink
from twistmq.plugins.ha.receiver import Receiver
from twistmq.plugins.ha.sender import Sender

#: A little more than the bytes that wait in a transport at most.
UNSENT_MAX = 300 * 1024


class _Transport(StringTransport):
    """A transport that records whether it was aborted."""

    is_aborted = False
    socket: socket.socket | None = None
    #: How often it was to say when there is room.
    waits = 0

    def startWriting(self) -> None:
        self.waits += 1

    def abortConnection(self) -> None:
        self.is_aborted = True


class SlaveLinkTests(SynchronousTestCase):
    """A slave that reads slowly or not at all."""

    def setUp(self) -> None:
        self.box = KernelBox([("ha", ha.Plugin)])
        self.addCleanup(self.box.stop)
        self.fill()
        self.transport = self.connect()
        self.events: list[object] = []
        self.link = SlaveLink(
            Sender(self.box.kernel.store, self.box.settings, self.now()), "10.0.0.2:1",
            self.now, lambda link, is_first: self.events.append(is_first),
            lambda link, why: self.events.append(why))
        self.link.makeConnection(self.transport)

    def connect(self) -> _Transport:
        """Create the transport."""
        return _Transport()

    def now(self) -> int:
        return self.box.now_ms

    def fill(self) -> None:
        """Append two megabytes."""
        self.box.kernel.append([message("T", body=b"x" * 20_000) for _ in range(100)])

    def unsent(self) -> int:
        return len(self.transport.value())

    def drain(self) -> int:
        """Send the waiting bytes; :returns: their number."""
        size = len(self.transport.value())
        self.transport.clear()
        self.link.resumeProducing()
        return size

    def test_bytes_wait_in_the_log_and_not_in_memory(self) -> None:
        """However much is appended meanwhile, and however often it is tried."""
        self.link.dataReceived(encode_report(1))
        self.fill()
        for _ in range(10):
            self.link.send()
            self.link.tick()
        self.assertLess(self.unsent(), UNSENT_MAX)
        total = 0
        while size := self.drain():
            self.assertLess(size, UNSENT_MAX)
            total += size
        self.assertGreater(total, self.box.kernel.store.commit_log.max_offset)

    def test_a_slave_that_stalls_is_closed(self) -> None:
        """After it was silent for more than twenty seconds."""
        self.link.dataReceived(encode_report(0))
        self.box.now_ms += 20_000
        self.link.tick()
        self.assertFalse(self.transport.is_aborted)
        self.box.now_ms += 1
        self.link.tick()
        self.assertTrue(self.transport.is_aborted)
        self.link.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.events, [True, "it was silent too long"])

    def test_reports_are_told_when_they_move(self) -> None:
        """The first report and each that advances are passed on; after an invalid one none is."""
        self.link.dataReceived(encode_report(0))
        self.link.dataReceived(encode_report(0))
        self.link.dataReceived(encode_report(1))
        self.assertEqual(self.events, [True, False])
        self.link.dataReceived(encode_report(1 << 50))
        self.link.dataReceived(encode_report(2))
        self.assertTrue(self.transport.is_aborted)
        self.assertEqual((self.events, self.link.has_reported), ([True, False], False))


class FarBehindTests(SlaveLinkTests):
    """A slave far behind is sent bytes from the files; the same rules apply to it."""

    def connect(self) -> _Transport:
        """Create a transport with a socket."""
        transport = _Transport()
        transport.socket, self.slave = socket.socketpair()
        for each in (transport.socket, self.slave):
            each.setblocking(False)
            self.addCleanup(each.close)
        return transport

    def unsent(self) -> int:
        """Return the numbers of bytes that the socket accepted and that the transport holds."""
        with contextlib.suppress(BlockingIOError):
            while part := self.slave.recv(1 << 20):
                self.taken += part
        return len(self.taken) + super().unsent()

    def drain(self) -> int:
        self.unsent()
        self.read += self.taken + self.transport.value()
        size, self.taken = len(self.taken), b""
        return size + super().drain()

    #: The bytes that the socket took since the last drain; the bytes of all drains before.
    taken = read = b""

    def test_bytes_wait_in_the_log_and_not_in_memory(self) -> None:
        """All bytes arrive in order, from the files and, near the end of the log, from the
        transport.
        """
        super().test_bytes_wait_in_the_log_and_not_in_memory()
        self.assertGreater(self.transport.waits, 5)
        end = 1
        for frame in FrameReader(1 << 30).feed(self.read):
            self.assertEqual(frame.offset, end)
            end += len(frame.data)
        self.assertEqual(end, self.box.kernel.store.commit_log.max_offset)

    def test_nothing_is_tried_before_it_asks(self) -> None:
        """Otherwise the reactor would be busy all the time."""
        self.link.send()
        self.link.tick()
        self.assertEqual((self.transport.waits, self.unsent()), (0, 0))

    def test_a_lost_connection_ends_it(self) -> None:
        """The reason is the same as for other connections."""
        self.slave.close()
        self.link.dataReceived(encode_report(1))
        self.assertTrue(self.transport.is_aborted)
        self.link.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.events, [True, "it closed the connection"])

    def test_bytes_that_cannot_be_read_end_it(self) -> None:
        """The reason names the position."""
        def fail(*_: object) -> int:
            raise OSError(5, "Input/output error")

        self.patch(self.link.sender.raw, "send_to", fail)
        self.link.dataReceived(encode_report(1))
        self.link.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.events, [
            True, "its bytes cannot be read: [Errno 5] Input/output error"])


class MasterLinkTests(SynchronousTestCase):
    """A slave's connection to a master that the test plays."""

    def setUp(self) -> None:
        self.box = KernelBox([("ha", ha.Plugin)])
        self.addCleanup(self.box.stop)
        self.transport = _Transport()
        self.taken: list[tuple[int, bytes]] = []
        self.why: list[str] = []
        self.full = False
        self.link = MasterLink(Receiver(self.box.settings, 1 << 20, 100, self.box.now_ms),
                               lambda: self.box.now_ms, self.take,
                               lambda link, why: self.why.append(why))
        self.link.makeConnection(self.transport)

    def take(self, link: Any, offset: int, data: bytes) -> None:
        if self.full:
            raise StoreFull("the disk is full")
        self.taken.append((offset, data))
        link.report(offset + len(data))

    def said(self) -> bytes:
        said: bytes = self.transport.value()
        self.transport.clear()
        return said

    def test_it_asks_takes_and_reports(self) -> None:
        """The frames of one read are appended together and reported once."""
        self.assertEqual(self.said(), encode_report(100))
        self.link.dataReceived(encode_head(100, 3) + b"abc" + encode_head(103, 2) + b"de")
        self.assertEqual(self.taken, [(100, b"abcde")])
        self.assertEqual(self.said(), encode_report(105))
        self.link.dataReceived(encode_head(105, 0))
        self.assertEqual((len(self.taken), self.said()), (1, b""))

    def test_a_full_disk_reports_nothing(self) -> None:
        """The connection ends with the reason, and later bytes are ignored."""
        self.said()
        self.full = True
        self.link.dataReceived(encode_head(100, 3) + b"abc")
        self.full = False
        self.link.dataReceived(encode_head(103, 3) + b"def")
        self.assertTrue(self.transport.is_aborted)
        self.link.connectionLost(Failure(ConnectionDone()))
        self.assertEqual((self.taken, self.said(), self.why), ([], b"", ["the disk is full"]))

    def test_a_gap_ends_it(self) -> None:
        """Nothing of that read is appended."""
        self.link.dataReceived(encode_head(100, 3) + b"abc" + encode_head(104, 2) + b"de")
        self.assertEqual((self.taken, self.transport.is_aborted), ([], True))

    def test_a_silent_master(self) -> None:
        """The master gets a report every five seconds, and is disconnected after twenty."""
        self.said()
        self.box.now_ms += 5001
        self.assertFalse(self.link.tick())
        self.assertEqual(self.said(), encode_report(100))
        self.box.now_ms += 15_000
        self.assertTrue(self.link.tick())
        self.assertTrue(self.transport.is_aborted)
