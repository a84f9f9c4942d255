"""Frames that are sent from the files of the log directly to a socket, without a reactor."""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.plugins.ha.direct import DirectFrames
from twistmq.plugins.ha.frames import HEAD_SIZE, FrameReader, encode_report
from twistmq.plugins.ha.sender import Sender
from twistmq.protocol.errors import StoreError

FILE_SIZE = 256 << 10
FRAME_SIZE = 10_000


class DirectFramesTests(SynchronousTestCase):
    """A log of several files, and a socket that accepts few bytes at a time."""

    def setUp(self) -> None:
        self.box = KernelBox([("ha", ha.Plugin)], {
            "mappedFileSizeCommitLog": str(FILE_SIZE), "haTransferBatchSize": str(FRAME_SIZE)})
        self.addCleanup(self.box.stop)
        store = self.box.kernel.store
        for number in range(60):
            self.box.kernel.append([message("T", body=b"%02d" % number * 5000)])
        self.end = store.commit_log.max_offset
        self.assertGreater(self.end, 2 * FILE_SIZE)
        self.sender = Sender(store, self.box.settings, 0)
        self.sender.received(encode_report(1), 0)
        self.master, self.slave = socket.socketpair()
        for each in (self.master, self.slave):
            each.setblocking(False)
            self.addCleanup(each.close)
        self.master.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.direct = DirectFrames(self.sender, self.master)

    def read(self) -> bytes:
        """Return all bytes that the slave has received and not yet read."""
        data = b""
        try:
            while part := self.slave.recv(1 << 16):
                data += part
        except BlockingIOError:
            pass
        return data

    def test_all_of_the_log_comes_in_frames(self) -> None:
        """Though the socket is full within a frame again and again."""
        reader, log_bytes, within = FrameReader(FILE_SIZE), b"", 0
        while True:
            self.direct.send(1 << 20, 0)
            within += self.direct.is_within
            frames = reader.feed(self.read())
            if not frames and not self.direct.is_within:
                break
            for frame in frames:
                self.assertEqual(frame.offset, 1 + len(log_bytes))
                self.assertLessEqual(len(frame.data), FRAME_SIZE)
                log_bytes += frame.data
        self.assertGreater(within, 10)
        raw, whole = self.box.kernel.store.raw, b""
        while part := raw.read(1 + len(whole), 1 << 20):
            whole += part
        self.assertEqual((log_bytes, len(whole)), (whole, self.end - 1))
        self.assertEqual(self.sender.next_offset, self.end)

    def test_no_more_is_sent_than_asked_for(self) -> None:
        """Only the rest of the last frame may exceed the requested number."""
        self.master.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.direct.send(2 * FRAME_SIZE + 1, 0)
        self.assertEqual(len(self.read()), 3 * (FRAME_SIZE + HEAD_SIZE))
        self.assertFalse(self.direct.is_within)

    def test_bytes_that_are_gone_are_an_error(self) -> None:
        """The file was removed while the socket was full."""
        self.direct.send(1 << 20, 0)
        self.assertTrue(self.direct.is_within)
        store = self.box.kernel.store
        store.flush.flushed(self.end)
        drop = store.commit_log.drop_first()
        assert drop is not None
        drop()
        self.read()
        self.assertRaisesRegex(StoreError, "no longer has the bytes at ",
                               self.direct.send, 1 << 20, 0)

    def test_a_lost_connection_is_an_error(self) -> None:
        """The error is one of the operating system."""
        self.slave.close()
        self.assertRaises(ConnectionError, self.direct.send, 1 << 20, 0)
