"""Files of the config directory: they are replaced as a whole, with a backup."""

import json

from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.protocol.bodies import DelayOffsetSerializeWrapper
from twistmq.protocol.errors import StoreDamaged

PATH = "/store/config/topics.json"


class ConfigFileTests(SynchronousTestCase):
    """The class ConfigFile."""

    def setUp(self) -> None:
        """Create a disk without the file."""
        self.disk = FaultyDisk()
        self.file = ConfigFile(self.disk, PATH)
        self.loaded: list[object] = []

    def decode(self, text: str) -> None:
        """Load a table whose file has JSON, and remember its content."""
        self.loaded.append(json.loads(text))

    def test_nothing_to_load(self) -> None:
        """Without the file and its backup nothing is decoded."""
        self.assertFalse(self.file.load(self.decode))
        self.assertEqual(self.loaded, [])

    def test_saves_and_loads(self) -> None:
        """The text is read again, and the previous one is the backup."""
        self.assertTrue(self.file.save('["é"]'))
        self.assertTrue(self.file.save("[2]"))
        self.assertTrue(ConfigFile(self.disk, PATH).load(self.decode))
        self.assertEqual(self.loaded, [[2]])
        self.assertEqual(self.disk.read_file(PATH + ".bak"), '["é"]'.encode())

    def test_same_text_is_not_written_again(self) -> None:
        """This is so after a save and after a load."""
        self.file.save("[1]")
        self.assertFalse(self.file.save("[1]"))
        other = ConfigFile(self.disk, PATH)
        other.load(self.decode)
        self.assertFalse(other.save("[1]"))
        self.assertTrue(other.save("[2]"))

    def test_removed_file_is_written_again(self) -> None:
        """Its folder is created again, too."""
        self.file.save("[1]")
        self.disk.remove("/store/config")
        self.assertTrue(self.file.save("[1]"))
        self.assertEqual(self.disk.read_file(PATH), b"[1]")

    def test_backup_is_used(self) -> None:
        """For a file that is empty, damaged, no text or missing."""
        for damaged in (b"", b"  \n", b"[2", b"\xff\xfe", None):
            self.disk.make_directory("/store/config")
            self.disk.write_file(PATH + ".bak", b"[1]")
            self.disk.remove(PATH)
            if damaged is not None:
                self.disk.write_file(PATH, damaged)
            self.loaded.clear()
            file = ConfigFile(self.disk, PATH)
            self.assertTrue(file.load(self.decode), msg=damaged)
            self.assertEqual(self.loaded, [[1]])
            self.assertTrue(file.save("[1]"), msg="the damaged file must be replaced")

    def test_a_damaged_file_does_not_become_the_backup(self) -> None:
        """Otherwise a second fault would lose everything."""
        for damaged in (b"", b"[2", None):
            self.disk.make_directory("/store/config")
            self.disk.write_file(PATH + ".bak", b"[1]")
            self.disk.remove(PATH)
            if damaged is not None:
                self.disk.write_file(PATH, damaged)
            file = ConfigFile(self.disk, PATH)
            self.assertTrue(file.load(self.decode))
            self.assertTrue(file.save("[3]"))
            self.assertEqual(self.disk.read_file(PATH + ".bak"), b"[1]")
            self.assertTrue(file.save("[4]"))
            self.assertEqual(self.disk.read_file(PATH + ".bak"), b"[3]")

    def test_both_damaged(self) -> None:
        """The error names both files."""
        self.disk.make_directory("/store/config")
        self.disk.write_file(PATH, b"{")
        self.disk.write_file(PATH + ".bak", b"}")
        error = self.assertRaises(StoreDamaged, self.file.load, self.decode)
        self.assertIn(PATH + ":", str(error))
        self.assertIn(PATH + ".bak:", str(error))

    def take(self, body: DelayOffsetSerializeWrapper, data: bytes) -> None:
        """Read a table of numbers."""
        self.loaded.append((body.offset_table, bool(data)))

    def test_rows_that_cannot_be_read_are_left_out(self) -> None:
        """This is done only if the file and its backup are damaged; a copy is kept."""
        bad, good = b'{"offsetTable":{1:5,2:99999999999999999999}}', b'{"offsetTable":{1:4}}'
        self.disk.make_directory("/store/config")
        self.disk.write_file(PATH, bad)
        with capturedLogs() as events:
            self.assertTrue(self.file.load_rows(DelayOffsetSerializeWrapper, self.take))
        self.assertEqual(self.loaded, [({1: 5}, False)])
        self.assertEqual(self.disk.read_file(PATH + ".refused"), bad)
        texts = [formatEvent(event) for event in events
                 if event["log_level"] is LogLevel.error]
        self.assertEqual(len(texts), 1)
        self.assertIn(f"{PATH}: 1 rows are left out", texts[0])
        self.assertIn("offsetTable['2']", texts[0])
        self.assertTrue(self.file.save("[1]"))
        self.disk.write_file(PATH, bad)
        self.disk.write_file(PATH + ".bak", good)
        self.loaded.clear()
        self.assertTrue(self.file.load_rows(DelayOffsetSerializeWrapper, self.take))
        self.assertEqual(self.loaded, [({1: 4}, True)])

    def test_no_copy_of_what_is_left_out(self) -> None:
        """A full disk does not prevent the other rows from being read."""
        self.disk.make_directory("/store/config")
        self.disk.write_file(PATH, b'{"offsetTable":{1:5,2:99999999999999999999}}')
        self.disk.room_bytes = 0
        self.assertTrue(self.file.load_rows(DelayOffsetSerializeWrapper, self.take))
        self.assertEqual(self.loaded, [({1: 5}, False)])

    def test_a_file_that_is_damaged_as_a_whole(self) -> None:
        """The error has the first reason."""
        self.disk.make_directory("/store/config")
        for data in (b"{", b'{"offsetTable":{1:null}}'):
            self.disk.write_file(PATH, data)
            error = self.assertRaises(
                StoreDamaged, self.file.load_rows, DelayOffsetSerializeWrapper, self.take)
            self.assertIn(PATH + ":", str(error))
        self.assertFalse(self.disk.exists(PATH + ".refused"))

    def test_full_disk_leaves_the_old_file(self) -> None:
        """The save fails, the file is as before, and the save can be tried again."""
        self.file.save("[1]")
        self.disk.room_bytes = 1
        self.assertRaises(StoreFull, self.file.save, "[2]")
        self.assertEqual(self.disk.read_file(PATH), b"[1]")
        self.disk.room_bytes = None
        self.assertTrue(self.file.save("[2]"))
