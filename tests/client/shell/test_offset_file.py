"""The file of a broadcast consumer: it is replaced as a whole, with a backup.

A file that cannot be read never stops a member as long as the other one is whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.core.consumer.offsets import OffsetTable
from twistmq.client.shell.offset_file import OffsetFile
from twistmq.client.testing import MemoryCluster
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.bodies.body import DIALECT_SIZE_MAX
from twistmq.protocol.errors import WireError

#: What a crash or a hand leaves in place of a file.
DAMAGES = (b"", b" \n", b"\0" * 60, b'{"offsetTable":{{"brokerName":"a","queueId":0,"to', b"[]",
           b"null", b"\xff\xfe{", b'{"offsetTable":{"T":1}}',
           *(b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:%d}}' % offset
             for offset in (-7, 2**63 - 1, 2**63, 10**40)))


class Interrupted(BaseException):
    """The process was killed."""


class FileTests(SynchronousTestCase):
    """The class OffsetFile."""

    def setUp(self) -> None:
        """Create a folder."""
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.file = self.open()

    def open(self) -> OffsetFile:
        """Open the file as a new process does."""
        return OffsetFile("10.0.0.1@DEFAULT", "g", self.folder)

    @staticmethod
    def check(data: bytes) -> bytes:
        """Check that a content of the test is whole, which is so if it ends with a dot."""
        if not data.endswith(b"."):
            raise WireError("no dot")
        return data

    def read(self) -> bytes | None:
        """Return the content that a new process reads."""
        return self.open().read(self.check)

    def test_the_last_content_is_read_and_the_one_before_is_the_backup(self) -> None:
        """A missing folder is created."""
        self.assertIsNone(self.read())
        for content in (b"1.", b"2.", b"3."):
            self.file.write(content)
            self.assertEqual(self.read(), content)
        self.assertEqual(Path(f"{self.file.path}.bak").read_bytes(), b"2.")
        self.assertEqual(sorted(os.listdir(self.file.path.parent)),
                         ["offsets.json", "offsets.json.bak"])

    def test_a_kill_at_any_step_of_a_write_leaves_a_whole_content(self) -> None:
        """It is the old or the new one."""
        steps = 0
        while True:
            self.setUp()
            self.file.write(b"1.")
            self.file.write(b"2.")
            left = steps

            def kill(real: Any) -> Any:
                def call(*arguments: Any, **options: Any) -> Any:
                    nonlocal left
                    if not left:
                        raise Interrupted
                    left -= 1
                    return real(*arguments, **options)

                return call

            with patch.object(os, "replace", kill(os.replace)), \
                    patch.object(os, "fsync", kill(os.fsync)), \
                    patch.object(Path, "open", kill(Path.open)):
                try:
                    self.file.write(b"3.")
                except Interrupted:
                    steps += 1
                else:
                    break
            self.assertIn(self.read(), (b"2.", b"3."), steps)
            whole = [path for path in (self.file.path, Path(f"{self.file.path}.bak"))
                     if path.exists()]
            for path in whole:
                self.check(path.read_bytes())
        self.assertGreater(steps, 2)

    def test_a_damaged_file_is_replaced_and_its_backup_stays(self) -> None:
        """The damaged file does not become the backup."""
        self.file.write(b"1.")
        self.file.write(b"2.")
        self.file.path.write_bytes(b"2")
        file = self.open()
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            self.assertEqual(file.read(self.check), b"1.")
        self.assertIn(str(self.file.path), logs.output[0])
        file.write(b"3.")
        self.assertEqual(Path(f"{file.path}.bak").read_bytes(), b"1.")
        file.write(b"4.")
        self.assertEqual((self.read(), Path(f"{file.path}.bak").read_bytes()), (b"4.", b"3."))

    def test_only_regular_files_are_read(self) -> None:
        """A read of a pipe could wait for ever, and a read of a device might never end."""
        def pipe(path: Path) -> None:
            os.mkfifo(path)

        def device(path: Path) -> None:
            path.symlink_to("/dev/zero")

        def loop(path: Path) -> None:
            path.symlink_to(path)

        self.file.write(b"1.")
        self.file.write(b"2.")
        for make in (pipe, device, loop, Path.mkdir):
            self.file.path.unlink()
            make(self.file.path)
            with patch.object(Path, "read_bytes", self.bounded), \
                    self.assertLogs("twistmq.client", "WARNING") as logs:
                self.assertEqual(self.read(), b"1.")
            self.assertIn(str(self.file.path), logs.output[0])
            if make is Path.mkdir:
                self.file.path.rmdir()
                self.file.path.touch()

    @staticmethod
    def bounded(path: Path) -> bytes:
        """Fail the test if ``read_bytes`` of a path would never end."""
        if path.exists() and (path.is_fifo() or path.is_char_device()):
            raise AssertionError(f"{path} is read")
        with path.open("rb") as file:
            return file.read()

    def test_a_write_does_not_open_what_lies_in_its_way(self) -> None:
        """A pipe with the name of the temporary file would block it for ever."""
        self.file.write(b"1.")
        temporary = Path(f"{self.file.path}.tmp")
        other = self.folder / "other"
        other.write_bytes(b"kept")
        temporary.symlink_to(other)
        self.file.write(b"2.")
        self.assertEqual((self.read(), other.read_bytes()), (b"2.", b"kept"))
        self.assertFalse(self.file.path.is_symlink())
        os.mkfifo(temporary)
        # With a reader the open of a pipe ends at once, so that this test ends in any case.
        reader = os.open(temporary, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.file.write(b"3.")
        self.assertEqual(self.read(), b"3.")
        self.assertTrue(self.file.path.is_file())


class MemberTests(SynchronousTestCase):
    """A broadcast consumer with such a file."""

    def setUp(self) -> None:
        """Have a member read four messages of two queues, and leave."""
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cluster = MemoryCluster(seed=1)
        self.cluster.create_topic("T", 2)
        self.producer = self.cluster.producer()
        self.count = 0
        self.assertEqual(len(self.read_all(4)), 4)
        self.assertEqual(len(self.read_all(2)), 2)

    def read_all(self, count: int = 0) -> list[bytes]:
        """Send some messages and handle all; :returns: the bodies."""
        for _ in range(count):
            self.producer.send("T", b"%d" % self.count)
            self.count += 1
        reader = self.cluster.member(
            "g", "T", self.cluster.client(client_id="10.0.7.7@DEFAULT"), start="first",
            mode="broadcast", offset_folder=self.folder)
        found: list[bytes] = []
        while messages := reader.take(1, 2_000):
            found += [message.body for message in messages]
            self.cluster.advance(6_000)
        reader.close()
        return found

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        [path] = self.folder.rglob("offsets.json")
        return path

    def test_all_queues_are_kept(self) -> None:
        """Queues without new offsets are included."""
        self.assertEqual(self.read_all(), [])
        table = OffsetTable.decode_reply(self.path.read_bytes()).offset_table
        self.assertEqual(sorted(table.values()), [3, 3])
        self.assertEqual(self.read_all(1), [b"6"])
        self.assertEqual(self.read_all(), [])

    def test_a_damaged_file_is_replaced_by_its_backup(self) -> None:
        """Some messages are delivered again, and none is lost."""
        for damage in DAMAGES:
            self.path.write_bytes(damage)
            found = self.read_all(1)
            self.assertIn(b"%d" % (self.count - 1), found, damage)
            self.assertLess(len(found), 4, damage)
            self.assertEqual(self.read_all(), [], damage)

    def test_a_file_of_many_queues_is_read(self) -> None:
        """Its size is not limited, unlike that of requests."""
        table = OffsetTable.decode_reply(self.path.read_bytes()).offset_table
        for number in range(12_000):
            table[MessageQueue("U", "a", number)] = number
        data = OffsetTable(offset_table=table).encode()
        self.assertGreater(len(data), DIALECT_SIZE_MAX)
        self.path.write_bytes(data)
        self.assertEqual(self.read_all(1), [b"6"])
        self.assertEqual(len(OffsetTable.decode_reply(self.path.read_bytes()).offset_table),
                         12_002)

    def test_two_damaged_files_are_named(self) -> None:
        """No offset would be right, so nothing is read until they are deleted."""
        backup = Path(f"{self.path}.bak")
        self.path.write_bytes(b"{")
        backup.write_bytes(b"}")
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            self.assertEqual(self.read_all(1), [])
        self.assertIn(str(self.path), logs.output[0])
        self.assertIn("backup", logs.output[0])
        self.assertEqual(self.path.read_bytes(), b"{")
        self.path.unlink()
        backup.unlink()
        self.assertEqual(len(self.read_all()), 7)
