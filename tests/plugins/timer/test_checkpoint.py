"""The check point of timed messages."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.disk import FaultyDisk
from twistmq.plugins.timer.checkpoint import (
    CHECKPOINT_SIZE,
    CLEAN,
    RUNNING,
    TimerCheckpoint,
    TimerCheckpointFile,
)

PATH = "/store/timercheck"
GOLDEN = Path(__file__).parents[2] / "golden" / "store-edges" / "config" / "timercheck"
VALUES = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7)


class TimerCheckpointTests(SynchronousTestCase):
    """The file in Apache's form, and with the fields of this broker."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.disk.make_directory("/store")

    def file(self, tick_ms: int = 1000) -> TimerCheckpointFile:
        file = TimerCheckpointFile(self.disk, PATH, tick_ms)
        self.is_there = file.load()
        return file

    def test_a_file_of_apaches_broker_is_read(self) -> None:
        """A file of Apache's broker is read, and is recognised as Apache's."""
        data = GOLDEN.read_bytes()
        self.disk.write_file(PATH, data)
        file = self.file()
        self.assertTrue(self.is_there)
        self.assertEqual(file.state, 0)
        self.assertEqual(file.values.encode(), data[:56])
        self.assertGreater(file.values.last_read_ms, 1_700_000_000_000)

    def test_without_a_file_the_check_point_is_zero(self) -> None:
        """All values are zero."""
        self.assertEqual((self.file().values, self.is_there), (TimerCheckpoint(), False))

    def test_written_and_read(self) -> None:
        """Each value has eight bytes."""
        for state in (RUNNING, CLEAN):
            self.file().write(VALUES, state)
            file = self.file()
            self.assertEqual((file.values, file.state), (VALUES, state))
        data = self.disk.read_file(PATH)
        self.assertEqual(len(data), CHECKPOINT_SIZE)
        self.assertEqual(data[:56], b"".join(bytes(7) + bytes([n]) for n in range(1, 8)))

    def test_written_over_by_another_broker(self) -> None:
        """The mark after the values is no longer valid; the same is true for
        another tick length.
        """
        self.file().write(VALUES, CLEAN)
        self.assertEqual(self.file(tick_ms=100).state, 0)
        data = bytearray(self.disk.read_file(PATH))
        data[:56] = TimerCheckpoint(1, 2, 3, 4, 5, 6, 8).encode()
        self.disk.write_file(PATH, bytes(data))
        file = self.file()
        self.assertEqual((file.values.counter, file.state), (8, 0))

    def test_short_file(self) -> None:
        """After a crash, or with an older broker, missing values are zero."""
        self.disk.write_file(PATH, VALUES.encode()[:32])
        self.assertEqual(self.file().values, TimerCheckpoint(1, 2, 3, 4))
