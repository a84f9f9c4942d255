"""The bytes of a master as its slave reads them, without a network."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.plugins.ha.frames import StreamBroken, encode_head, encode_report
from twistmq.plugins.ha.receiver import Receiver
from twistmq.plugins.ha.sender import Sender

FILE_SIZE = 4096
SETTINGS = {"mappedFileSizeCommitLog": str(FILE_SIZE), "maxMessageSize": "2000"}


class ReceiverTests(SynchronousTestCase):
    """The stream of a master, cut in every way, makes the same log."""

    def box(self, **settings: str) -> KernelBox:
        box = KernelBox([("ha", ha.Plugin)], {**SETTINGS, **settings})
        self.addCleanup(box.stop)
        return box

    def stream(self, count: int) -> tuple[bytes, KernelBox]:
        """The stream of a log with so many messages, in frames of up to 200 bytes."""
        master = self.box(haTransferBatchSize="200")
        for number in range(count):
            master.kernel.append([message("T", body=b"%d" % number * (number + 1))])
        sender = Sender(master.kernel.store, master.settings, 0)
        sender.received(encode_report(0), 0)
        return sender.frames(1 << 20, 0) + sender.heartbeat(6000), master

    def follow(self, parts: list[bytes]) -> KernelBox:
        """Return a slave that has read these parts."""
        slave = self.box(brokerRole="SLAVE", brokerId="1")
        store = slave.kernel.store
        receiver = Receiver(slave.settings, store.raw.file_size, 0, 0)
        for part in parts:
            at = receiver.offset
            store.raw.append(at, receiver.received(part, 0))
        while store.dispatch.step():
            continue
        return slave

    def same(self, master: KernelBox, slave: KernelBox) -> None:
        self.assertEqual(slave.kernel.store.commit_log.max_offset,
                         master.kernel.store.commit_log.max_offset)
        self.assertEqual([each.body for each in slave.stored("T", 0)],
                         [each.body for each in master.stored("T", 0)])

    def test_cut_at_every_byte(self) -> None:
        """A stream of three messages is read correctly in two parts."""
        data, master = self.stream(3)
        for cut in range(len(data) + 1):
            self.same(master, self.follow([data[:cut], data[cut:]]))

    def test_parts_of_random_sizes(self) -> None:
        """A stream of twenty messages is received correctly, in whatever parts it arrives."""
        data, master = self.stream(20)
        for seed in range(200):
            chance, parts, at = random.Random(seed), [], 0
            while at < len(data):
                size = chance.choice((1, 5, 12, 100, 3000))
                parts.append(data[at : at + size])
                at += size
            self.same(master, self.follow(parts))

    def test_bytes_that_do_not_follow(self) -> None:
        """A gap, a repetition or a foreign heartbeat: nothing of that read is appended."""
        settings = self.box().settings
        for data in (encode_head(11, 5) + b"x" * 5, encode_head(9, 5) + b"x" * 5,
                     encode_head(11, 0), encode_head(10, 5) + b"x" * 5 + encode_head(14, 0)):
            receiver = Receiver(settings, FILE_SIZE, 10, 0)
            self.assertRaises(StreamBroken, receiver.received, data, 0)
            self.assertEqual(receiver.offset, 10)

    def test_reports(self) -> None:
        """Each position is reported once, and again after more than five seconds."""
        receiver = Receiver(self.box().settings, FILE_SIZE, 10, 0)
        self.assertEqual(receiver.report(10, 1), b"")
        self.assertEqual(receiver.report(12, 1000), encode_report(12))
        self.assertEqual(receiver.report(12, 1001), b"")
        self.assertEqual(receiver.heartbeat(6000), b"")
        self.assertEqual(receiver.heartbeat(6001), encode_report(12))
        self.assertEqual(receiver.heartbeat(6002), b"")

    def test_silence(self) -> None:
        """The master has been silent for more than twenty seconds."""
        receiver = Receiver(self.box().settings, FILE_SIZE, 10, 0)
        receiver.received(encode_head(10, 0), 500)
        self.assertEqual((receiver.is_silent(20_500), receiver.is_silent(20_501)), (False, True))
