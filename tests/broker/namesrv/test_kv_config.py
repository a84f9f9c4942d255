"""Key-value configuration and its file."""

from __future__ import annotations

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreDamaged, StoreError, StoreFull
from twistmq.broker.namesrv.kv_config import KVConfig
from twistmq.broker.testing.disk import FaultyDisk

PATH = "/data/namesrv/kvConfig.json"


class KVConfigTests(SynchronousTestCase):
    """Values, and what is on disk after each change."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.kv_config = KVConfig(self.disk, PATH)

    def test_the_file_is_apaches(self) -> None:
        """One line of JSON, written with every change."""
        self.kv_config.load()
        self.kv_config.put("N", "k", "v:4;w:8")
        self.assertEqual(self.disk.read_file(PATH), b'{"configTable":{"N":{"k":"v:4;w:8"}}}')
        self.kv_config.put("N", "k", "x")
        self.kv_config.delete("N", "k")
        self.assertEqual(self.disk.read_file(PATH), b'{"configTable":{"N":{}}}')

    def test_what_was_put_is_there_after_a_restart(self) -> None:
        """Any text survives."""
        value = "é\n\"'\\\U0001f600{}"
        self.kv_config.put("N", "k", value)
        again = KVConfig(self.disk, PATH)
        again.load()
        self.assertEqual(again.get("N", "k"), value)

    def test_what_is_not_there_is_none(self) -> None:
        """A namespace that lost its last value is empty, one that never had one is none."""
        self.kv_config.put("N", "k", "v")
        self.assertIsNone(self.kv_config.get("N", "other"))
        self.assertIsNone(self.kv_config.get("M", "k"))
        self.assertIsNone(self.kv_config.table("M"))
        self.kv_config.delete("N", "k")
        self.kv_config.delete("M", "k")
        table = self.kv_config.table("N")
        assert table is not None
        self.assertEqual(table.table, {})
        self.assertIsNone(self.kv_config.table("M"))

    def test_a_damaged_file_falls_back_to_its_backup(self) -> None:
        """The backup is the state before the last change."""
        self.kv_config.put("N", "k", "1")
        self.kv_config.put("N", "k", "2")
        self.disk.write_file(PATH, b'{"configTable":{"N"')
        again = KVConfig(self.disk, PATH)
        again.load()
        self.assertEqual(again.get("N", "k"), "1")

    def test_damage_without_backup_is_said(self) -> None:
        """Starting with nothing would overwrite what may still be saved by hand."""
        self.disk.make_directory("/data/namesrv")
        for text in (b"{", b'{"configTable":{"N":5}}', b"\xff"):
            self.disk.write_file(PATH, text)
            with self.assertRaises(StoreDamaged):
                KVConfig(self.disk, PATH).load()

    def test_a_change_that_cannot_be_written_is_undone(self) -> None:
        """Memory and file go on agreeing."""
        self.kv_config.put("N", "k", "1")
        self.disk.room_bytes = 0
        with self.assertRaises(StoreFull):
            self.kv_config.put("N", "k", "2")
        self.disk.room_bytes = None
        self.disk.fail_write_in = 1
        with self.assertRaises(StoreError):
            self.kv_config.delete("N", "k")
        self.assertEqual(self.kv_config.get("N", "k"), "1")
        self.disk.fail_write_in = None
        self.kv_config.put("N", "k", "3")
        self.assertEqual(self.disk.read_file(PATH), b'{"configTable":{"N":{"k":"3"}}}')

    def test_every_value_is_logged(self) -> None:
        """Once in ten minutes, for who looks after the server."""
        self.kv_config.put("N", "k", "v")
        with capturedLogs() as events:
            self.kv_config.print_all()
        self.assertEqual([event.get("value") for event in events], [None, "v"])
