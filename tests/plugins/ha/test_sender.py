"""A slave as its master sees it, without a network."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.plugins.ha.frames import FrameReader, StreamBroken, encode_report
from twistmq.plugins.ha.sender import Sender
from twistmq.protocol.errors import StoreError

FILE_SIZE = 4096


class SenderTests(SynchronousTestCase):
    """Senders over a log of several files."""

    def setUp(self) -> None:
        self.box = KernelBox([("ha", ha.Plugin)], {
            "mappedFileSizeCommitLog": str(FILE_SIZE), "haTransferBatchSize": "1000",
            "maxMessageSize": "2000"})
        self.addCleanup(self.box.stop)
        self.store = self.box.kernel.store
        for number in range(60):
            self.box.kernel.append([message("T", body=b"x" * (number * 7 + 1))])
        self.end = self.store.commit_log.max_offset
        self.assertGreater(self.end, 3 * FILE_SIZE)

    def sender(self, offset: int | None = None) -> Sender:
        """Return a sender whose slave has asked for ``offset``."""
        sender = Sender(self.store, self.box.settings, 0)
        if offset is not None:
            sender.received(encode_report(offset), 0)
        return sender

    def drop_first(self) -> None:
        """Remove the first file, as retention does."""
        self.store.flush.flushed(self.end)
        drop = self.store.commit_log.drop_first()
        assert drop is not None
        drop()

    def sent(self, sender: Sender, size: int = 1 << 20) -> bytes:
        """Return all bytes of the log that it sends in the frames of its stream."""
        log_bytes, reader = b"", FrameReader(FILE_SIZE)
        while data := sender.frames(size, 0):
            for frame in reader.feed(data):
                self.assertLessEqual(len(frame.data), 1000)
                log_bytes += frame.data
        return log_bytes

    def test_nothing_comes_before_the_first_report(self) -> None:
        """Neither a frame nor a heartbeat is sent, however long the report takes."""
        sender = self.sender()
        self.assertEqual((sender.frames(1000, 0), sender.heartbeat(60_000)), (b"", b""))

    def test_frames_hold_the_log_and_end_at_files(self) -> None:
        """The frames are right for any start offset and any frame size."""
        whole = self.sent(self.sender(1))
        self.assertEqual(len(whole), self.end - 1)
        chance = random.Random(5)
        for _ in range(30):
            offset = chance.randrange(1, self.end)
            self.assertEqual(self.sent(self.sender(offset), chance.randrange(1, 9000)),
                             whole[offset - 1 :])

    def test_an_empty_slave_gets_the_last_file(self) -> None:
        """An Apache master does the same; with a setting the slave gets all files."""
        last = self.end - self.end % FILE_SIZE
        self.assertEqual(self.sender(0).next_offset, last)
        self.box.settings.put("ha.send_all", True)
        self.assertEqual(self.sender(0).next_offset, 0)

    def test_what_no_slave_can_have_is_refused(self) -> None:
        """Offsets outside the log, and texts of other programs, are refused."""
        for report in (-5, self.end + 1, 2**60):
            self.assertRaises(StreamBroken, self.sender().received,
                              report.to_bytes(8, "big", signed=True), 0)
        self.assertRaises(StreamBroken, self.sender().received, b"GET / HTTP/1.1\r\n", 0)
        hello = bytes.fromhex("16030100f8010000f40303")
        error = self.assertRaises(StreamBroken, self.sender().received, hello, 0)
        self.assertEqual(str(error), "it speaks TLS, and ha.tls is false here")
        sender = self.sender(1)
        sender.frames(1000, 0)
        assert sender.next_offset is not None
        for report in (0, sender.next_offset + 1):
            self.assertRaises(StreamBroken, sender.received, encode_report(report), 0)
        self.assertFalse(sender.received(encode_report(1), 0))
        self.assertTrue(sender.received(encode_report(sender.next_offset), 0))

    def test_what_is_removed_cannot_be_asked_for(self) -> None:
        """The error names the beginning of the log."""
        self.drop_first()
        error = self.assertRaises(StreamBroken, self.sender, 7)
        self.assertIn(f"asks for 7, but the log has bytes from {FILE_SIZE} to {self.end}",
                      str(error))
        self.assertEqual(self.sender(FILE_SIZE).next_offset, FILE_SIZE)

    def test_bytes_that_are_gone_while_they_are_sent(self) -> None:
        """A slow slave is overtaken by retention: that is an error, not a gap."""
        sender = self.sender(7)
        self.drop_first()
        self.assertRaises(StoreError, sender.frames, 1000, 0)

    def test_heartbeats_and_silence(self) -> None:
        """A heartbeat follows after more than five seconds, and silence is more than twenty."""
        sender = self.sender(self.end)
        self.assertEqual(sender.heartbeat(5000), b"")
        self.assertEqual(sender.heartbeat(5001), encode_report(self.end) + b"\0\0\0\0")
        self.assertEqual(sender.heartbeat(10_001), b"")
        self.assertEqual((sender.is_silent(20_000), sender.is_silent(20_001)), (False, True))

    def test_bytes_of_the_last_second(self) -> None:
        """The number is for an operator who watches the speed of a slave."""
        sender = self.sender(1)
        sender.frames(1, 100)
        sender.frames(1, 900)
        self.assertEqual(sender.rate.in_second(1100), 2000)
        self.assertEqual(sender.rate.in_second(2300), 0)
