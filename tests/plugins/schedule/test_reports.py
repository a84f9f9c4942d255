"""Public bug reports about delayed messages, reproduced here; see ``tests/REPORTS.md``."""

from __future__ import annotations

from unittest.mock import patch

from tests.plugins.schedule.test_service import OFFSETS, DelayTestCase
from twistmq.protocol.errors import StoreDamaged


class ReportTests(DelayTestCase):
    """The progress of the levels."""

    def test_messages_behind_a_saved_offset_that_is_too_large_come(self) -> None:
        """apache/rocketmq#1869: a level whose saved offset is beyond its queue delivers nothing.

        The store was made again, or is an older one, and the file of the offsets is not. What is
        not due yet was never delivered.
        """
        for number in range(5):
            self.send(b"due %d" % number, 2)
        self.box.now_ms += 5000
        for number in range(70):
            self.send(b"waiting %d" % number, 2)
        self.box.stop()
        self.disk.write_file(OFFSETS, b'{"offsetTable":{2:25477423}}')
        self.box = self.start()
        self.let_pass(0)
        self.send(b"late", 2)
        self.let_pass(5000)
        self.assertEqual(self.bodies(), [*(b"waiting %d" % each for each in range(70)), b"late"])
        self.box.stop()
        self.disk.write_file(OFFSETS, b'{"offsetTable":{2:25477423}}')
        self.box = self.start()
        self.let_pass(0)
        self.assertEqual(len(self.bodies()), 71, "all of them were due")

    def test_offsets_are_not_saved_before_they_are_read(self) -> None:
        """apache/rocketmq#6881: a save during a slow start empties the file of the offsets.

        A start that cannot read the file ends, and the file is as it was.
        """
        self.send(b"x", 1)
        self.let_pass(1000)
        self.restart()
        self.save()
        saved = self.disk.read_file(OFFSETS)
        self.assertIn(b"1:1", saved)
        self.box.stop()
        with patch.object(self.disk, "read_file", self.read_nothing_of_config):
            self.assertRaises(StoreDamaged, self.start)
        self.assertEqual(self.disk.read_file(OFFSETS), saved)
        self.box = self.start()
        self.save()
        self.assertEqual(self.disk.read_file(OFFSETS), saved)

    def read_nothing_of_config(self, path: str) -> bytes:
        """A disk whose table files cannot be read."""
        if "/config/" in path:
            raise PermissionError(13, "Permission denied", path)
        return type(self.disk).read_file(self.disk, path)
