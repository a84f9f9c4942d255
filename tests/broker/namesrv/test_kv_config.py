"""The key-value configuration and its file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.setting_rows import namesrv_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import KV_NAME_SIZE_MAX
from twistmq.broker.errors import StoreFull
from twistmq.broker.namesrv.kv_config import KVConfig
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.protocol.errors import RequestRefused, StoreDamaged, StoreError
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LINES_A_MINUTE

PATH = "/data/namesrv/kvConfig.json"


class KVConfigTests(SynchronousTestCase):
    """The values, and the file after each change."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.settings = Settings.load(namesrv_rows())
        self.kv_config = self.make()

    def make(self, in_thread: Any = None) -> KVConfig:
        """Return another object over the same disk, which has not read the file."""
        return KVConfig(self.disk, PATH, self.settings.int, in_thread, now_ms=lambda: 0)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Put a value and check that it is saved."""
        self.successResultOf(self.kv_config.put(namespace, key, value))

    def test_the_file_is_apaches(self) -> None:
        """The file is one line of JSON, written with every change."""
        self.kv_config.load()
        self.put("N", "k", "v:4;w:8")
        self.assertEqual(self.disk.read_file(PATH), b'{"configTable":{"N":{"k":"v:4;w:8"}}}')
        self.put("N", "k", "x")
        self.kv_config.delete("N", "k")
        self.assertEqual(self.disk.read_file(PATH), b'{"configTable":{"N":{}}}')

    def test_what_was_put_is_there_after_a_restart(self) -> None:
        """Any text is kept."""
        value = "é\n\"'\\\U0001f600{}"
        self.put("N", "k", value)
        again = self.make()
        again.load()
        self.assertEqual(again.get("N", "k"), value)

    def test_what_is_not_there_is_none(self) -> None:
        """A namespace without values is empty, and an unknown one has none."""
        self.put("N", "k", "v")
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
        self.put("N", "k", "1")
        self.put("N", "k", "2")
        self.disk.write_file(PATH, b'{"configTable":{"N"')
        again = self.make()
        again.load()
        self.assertEqual(again.get("N", "k"), "1")

    def test_damage_without_backup_is_said(self) -> None:
        """An empty table would overwrite data that a person could still repair."""
        self.disk.make_directory("/data/namesrv")
        for text in (b"{", b'{"configTable":{"N":5}}', b"\xff"):
            self.disk.write_file(PATH, text)
            with self.assertRaises(StoreDamaged):
                self.make().load()

    def test_a_change_that_cannot_be_written_is_undone(self) -> None:
        """The memory and the file remain equal."""
        self.put("N", "k", "1")
        self.disk.room_bytes = 0
        self.failureResultOf(self.kv_config.put("N", "k", "2"), StoreFull)
        self.disk.room_bytes = None
        self.disk.fail_write_in = 1
        self.failureResultOf(self.kv_config.delete("N", "k"), StoreError)
        self.assertEqual(self.kv_config.get("N", "k"), "1")
        self.disk.fail_write_in = None
        self.put("N", "k", "3")
        self.assertEqual(self.disk.read_file(PATH), b'{"configTable":{"N":{"k":"3"}}}')

    def test_no_value_is_logged(self) -> None:
        """A value may be secret; the log has the key and the length."""
        with capturedLogs() as events:
            self.put("N", "password", "s3cret")
            self.successResultOf(self.kv_config.delete("N", "password"))
            self.put("N", "password", "s3cret")
            self.kv_config.log_size()
        lines = [formatEvent(event) for event in events]
        self.assertNotIn("s3cret", "".join(lines))
        self.assertEqual(lines[0], "key-value configuration: value set: N password, 6 characters")
        self.assertIn("1 namespaces, 1 keys", lines[-1])

    def test_lines_of_the_log(self) -> None:
        """The log is not filled by refused, stored or deleted values, however many they are."""
        with capturedLogs() as events:
            for _ in range(200):
                self.assertRaises(RequestRefused, self.kv_config.put, "N" * KV_NAME_SIZE_MAX, "k",
                                  "v")
                self.put("N", "k", "v")
                self.successResultOf(self.kv_config.delete("N", "k"))
        lines = [formatEvent(event) for event in events]
        self.assertEqual([len([line for line in lines if words in line])
                          for words in ("refused", "set", "deleted")],
                         [LINES_A_MINUTE, EVENTS_A_MINUTE, EVENTS_A_MINUTE])

    def test_names_and_values_have_a_limit(self) -> None:
        """The largest value is kept; one more byte is refused before the write."""
        self.put("N" * (KV_NAME_SIZE_MAX - 2), "k", "v" * (64 * 1024 - 2))
        for namespace, key, value, what in (
            ("N" * KV_NAME_SIZE_MAX, "k", "v", "namespace"),
            ("N", "k" * KV_NAME_SIZE_MAX, "v", "key"),
            ("N", "k", "v" * 64 * 1024, "value"),
            ("N", "k", "\1" * 11_000, "value"),
        ):
            with self.assertRaises(RequestRefused, msg=what) as caught:
                self.kv_config.put(namespace, key, value)
            self.assertIn(f"the {what} has ", str(caught.exception))
        self.assertIsNone(self.kv_config.table("N"))

    def test_all_together_have_a_limit(self) -> None:
        """A full table accepts changes that do not lengthen it, and more after a deletion."""
        self.settings.update({"kv.total_size_max": "1000"})
        for number in range(100):
            try:
                self.successResultOf(self.kv_config.put(f"n{number}", "", ""))
            except self.failureException:
                break
        table_size = len(self.disk.read_file(PATH))
        self.assertLess(table_size, 1000)
        self.assertLess(number, 50)
        self.failureResultOf(self.kv_config.put("n0", "", "x" * 900), RequestRefused)
        self.assertEqual(self.kv_config.get("n0", ""), "")
        self.assertEqual(len(self.disk.read_file(PATH)), table_size)
        for number in range(5):
            self.successResultOf(self.kv_config.delete(f"n{number}", ""))
        self.put("n0", "", "x" * 100)
        again = self.make()
        again.load()
        self.failureResultOf(again.put("n1", "", "x" * 900), RequestRefused)

    def test_a_file_over_the_limits_is_read(self) -> None:
        """Saved values remain, may become shorter, and can be deleted."""
        self.put("N", "k", "v" * 5000)
        self.put("N", "l", "v" * 5000)
        self.settings.update({"kv.total_size_max": "6000"})
        self.kv_config = self.make()
        self.kv_config.load()
        self.failureResultOf(self.kv_config.put("N", "m", "v"), RequestRefused)
        self.put("N", "k", "v" * 4000)
        self.successResultOf(self.kv_config.delete("N", "k"))
        self.put("N", "m", "v")

    def test_changes_during_a_write_go_together(self) -> None:
        """Each is confirmed when it is on the disk, in as many writes as there were pauses."""
        jobs: list[tuple[Callable[[], bool], Deferred[bool]]] = []

        def in_thread(job: Callable[[], bool]) -> Deferred[bool]:
            jobs.append((job, Deferred()))
            return jobs[-1][1]

        def finish() -> None:
            job, done = jobs.pop()
            done.callback(job())

        self.kv_config = self.make(in_thread)
        self.successResultOf(self.kv_config.when_saved())
        first = self.kv_config.put("N", "a", "1")
        others = [self.kv_config.put("N", f"b{number}", "2") for number in range(100)]
        others.append(self.kv_config.delete("N", "b7"))
        idle = self.kv_config.when_saved()
        self.assertIsNone(self.kv_config.get("N", "a"))
        self.assertNoResult(first)
        finish()
        self.successResultOf(first)
        self.assertEqual(self.kv_config.get("N", "a"), "1")
        self.assertNoResult(others[0])
        self.assertEqual(len(jobs), 1)
        self.assertNoResult(idle)
        finish()
        for other in others:
            self.successResultOf(other)
        self.successResultOf(idle)
        self.assertEqual(jobs, [])
        again = self.make()
        again.load()
        table = again.table("N")
        assert table is not None
        self.assertEqual(table.table, {"a": "1", **{
            f"b{number}": "2" for number in range(100) if number != 7}})

    def test_only_what_was_not_saved_is_undone(self) -> None:
        """Changes that waited for a failed write are tried separately."""
        jobs: list[Deferred[bool]] = []

        def in_thread(job: Callable[[], bool]) -> Deferred[bool]:
            jobs.append(Deferred())
            return jobs[-1].addCallback(lambda _: job())

        self.kv_config = self.make(in_thread)
        lost, kept = self.kv_config.put("N", "a", "1"), self.kv_config.put("N", "b", "2")
        jobs[0].errback(OSError(5, "the disk is gone"))
        self.failureResultOf(lost, StoreError)
        self.assertNoResult(kept)
        jobs[1].callback(True)
        self.successResultOf(kept)
        self.assertEqual(self.disk.read_file(PATH), b'{"configTable":{"N":{"b":"2"}}}')
