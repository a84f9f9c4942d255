"""The streams that masters 4.9.4 and 5.3.3 sent, see tests/golden/replication: as our slave reads
them, and as our master sends them of the same log."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import ha
from twistmq.plugins.ha.frames import FrameReader, encode_report
from twistmq.plugins.ha.receiver import Receiver
from twistmq.plugins.ha.sender import Sender

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "replication"
FILE_SIZE = 80 * 1024
SETTINGS = {"mappedFileSizeCommitLog": str(FILE_SIZE)}
VERSIONS = ("4.9.4", "5.3.3")
#: The default of haTransferBatchSize.
BATCH_SIZE = 32768


def log_of(version: str) -> bytes:
    """Return the commit log of a master, up to its end."""
    return gzip.decompress((GOLDEN / version / "log.gz").read_bytes())


def streams(version: str) -> Iterator[tuple[int, bytes]]:
    """The first report of a slave, and all bytes that the master sent it."""
    for path in sorted((GOLDEN / version).glob("from-*.gz")):
        yield int(path.stem.removeprefix("from-")), gzip.decompress(path.read_bytes())


class CaptureCase(SynchronousTestCase):
    """Brokers in memory."""

    def box(self, disk: MemoryDisk | None = None, **settings: str) -> KernelBox:
        """Return a started broker."""
        box = KernelBox([("ha", ha.Plugin)], {**SETTINGS, **settings}, disk)
        self.addCleanup(box.stop)
        return box

    def same_queues(self, version: str, box: KernelBox) -> None:
        """Check that each queue ends at the same offset as in Apache's broker."""
        for topic, ends in json.loads((GOLDEN / version / "queues.json").read_text()).items():
            self.assertEqual([len(box.stored(topic, each)) for each in range(len(ends))], ends)


class MasterTests(CaptureCase):
    """Our master over the log of a master of Apache's."""

    def master(self, version: str) -> KernelBox:
        """Return our master, which opens Apache's files."""
        disk, log = MemoryDisk(), log_of(version)
        disk.make_directory("/store/commitlog")
        for at in range(0, len(log), FILE_SIZE):
            disk.write_file(f"/store/commitlog/{at:020d}",
                            log[at : at + FILE_SIZE].ljust(FILE_SIZE, b"\0"))
        box = self.box(disk)
        self.assertEqual(box.kernel.store.commit_log.max_offset, len(log))
        return box

    def test_it_sends_what_apaches_master_sent(self) -> None:
        """The bytes are equal: the begin offset, the frames, their ends at files, the heartbeat."""
        for version in VERSIONS:
            box = self.master(version)
            self.same_queues(version, box)
            for place, wanted in streams(version):
                sender = Sender(box.kernel.store, box.settings, 0)
                sender.received(encode_report(place), 0)
                sent = sender.frames(1 << 20, 0)
                self.assertEqual(sent + sender.heartbeat(5001), wanted, msg=(version, place))

    def test_the_captures_have_all_kinds_of_frames(self) -> None:
        """Full ones, rests of files, the rest of the log; all bytes from the place on."""
        for version in VERSIONS:
            log, kinds = log_of(version), set()
            for place, data in streams(version):
                *frames, heartbeat = FrameReader(FILE_SIZE).feed(data)
                self.assertEqual(heartbeat, (len(log), b""))
                begin = place or len(log) - len(log) % FILE_SIZE
                self.assertEqual(b"".join(each.data for each in frames), log[begin:])
                for offset, body in frames:
                    end = offset + len(body)
                    self.assertLessEqual(len(body), BATCH_SIZE)
                    kinds.add("full" if len(body) == BATCH_SIZE
                              else "file" if end % FILE_SIZE == 0
                              else "log" if end == len(log) else "other")
            self.assertEqual(kinds, {"full", "file", "log"}, msg=version)


class SlaveTests(CaptureCase):
    """Our slave reads the stream of an Apache master."""

    def replay(self, version: str, box: KernelBox, offset: int, data: bytes) -> None:
        """Feed a stream, in parts of any size, to a slave whose log ends at ``offset``."""
        chance, store, at = random.Random(offset), box.kernel.store, 0
        receiver = Receiver(box.settings, store.raw.file_size, offset, 0)
        self.assertEqual(receiver.begin(), encode_report(offset))
        while at < len(data):
            size = chance.choice((1, 7, 1448, 30_000, 100_000))
            end = receiver.offset
            store.raw.append(end, receiver.received(data[at : at + size], 0))
            at += size
        while store.dispatch.step():
            continue
        self.assertEqual(store.commit_log.max_offset, len(log_of(version)))

    def test_a_whole_stream(self) -> None:
        """The log and the queues are the master's; the slave had the first byte, which is 0."""
        for version in VERSIONS:
            box, log = self.box(brokerRole="SLAVE", brokerId="1"), log_of(version)
            box.kernel.store.raw.append(0, log[:1])
            self.assertEqual(log[0], 0)
            self.replay(version, box, 1, dict(streams(version))[1])
            self.same_log(box, log)
            self.same_queues(version, box)

    def test_the_rest_of_a_stream(self) -> None:
        """The slave continues within a message, one byte before a file's end, or at
        a file's start.
        """
        for version in VERSIONS:
            log = log_of(version)
            for place, data in streams(version):
                if place:
                    box = self.box(brokerRole="SLAVE", brokerId="1")
                    for at in range(0, place, FILE_SIZE):
                        box.kernel.store.raw.append(at, log[at : min(place, at + FILE_SIZE)])
                    self.replay(version, box, place, data)
                    self.same_log(box, log)
                    self.same_queues(version, box)

    def same_log(self, box: KernelBox, log: bytes) -> None:
        """The slave's files have the bytes of the master's."""
        found, raw = b"", box.kernel.store.raw
        while data := raw.read(len(found), 1 << 20):
            found += data
        self.assertTrue(found == log, msg="the logs differ")
