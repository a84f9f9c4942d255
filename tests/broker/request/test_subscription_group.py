"""The table of consumer groups: system groups, creation, forbidden topics, and its file."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import GROUP_ROWS_KEPT, GROUP_ROWS_SIZE_MAX
from twistmq.broker.request import subscription_group
from twistmq.broker.request.subscription_group import SubscriptionGroupTable, row_size
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.protocol.bodies import (
    DataVersion,
    GroupRetryPolicy,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
)
from twistmq.protocol.bodies.group import CustomizedRetryPolicy
from twistmq.protocol.bodies.rows import map_row
from twistmq.protocol.errors import RequestRefused, StoreDamaged
from twistmq.protocol.json_writer import encode_pretty_row
from twistmq.protocol.run_to_completion import run_to_completion

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "config"
PATH = "/store/config/subscriptionGroup.json"
NOW_MS = 1_700_000_000_000


def _rows_size(table: SubscriptionGroupTable) -> int:
    """Return the size that a table with the same groups computes."""
    return sum(map(row_size, table.table.values()))


class SubscriptionGroupTableTests(SynchronousTestCase):
    """The class SubscriptionGroupTable."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()

    def make(self, **overrides: str) -> SubscriptionGroupTable:
        settings = Settings.load(broker_rows(), overrides={"brokerIP1": "127.0.0.1", **overrides})
        return SubscriptionGroupTable(settings, ConfigFile(self.disk, PATH), lambda: NOW_MS)

    def write(self, text: str) -> None:
        self.disk.make_directory("/store/config")
        self.disk.write_file_atomically(PATH, text.encode(), keep_backup=False)

    def test_system_groups(self) -> None:
        """Every broker has eight, with the defaults of any group."""
        table = self.make()
        self.assertEqual(sorted(table.table), [
            "CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL",
            "CID_RMQ_SYS_TRANS", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "TOOLS_CONSUMER"])
        for name, config in table.table.items():
            self.assertEqual(config, SubscriptionGroupConfig(name))
        self.assertEqual(table.data_version, DataVersion(timestamp=NOW_MS))

    def test_created_on_demand(self) -> None:
        """Asking for a group creates it once; it is saved with the table."""
        table = self.make()
        config = table.find("G")
        self.assertEqual(config, SubscriptionGroupConfig("G"))
        self.assertIs(table.find("G"), config)
        self.assertEqual(table.data_version.counter, 1)
        table.persist()
        again = self.make()
        again.load()
        self.assertEqual(again.table["G"], config)

    def test_not_created(self) -> None:
        """An invalid name creates no group, and neither does any name if the settings forbid it."""
        table = self.make()
        for name in ("", " ", "a*b", "g" * 256):
            self.assertIsNone(table.find(name), repr(name))
        table = self.make(autoCreateSubscriptionGroup="false")
        self.assertIsNone(table.find("G"))
        self.assertEqual(table.data_version.counter, 0)
        self.assertEqual(table.find("CID_RMQ_SYS_X"), SubscriptionGroupConfig("CID_RMQ_SYS_X"))

    def test_a_full_table_takes_no_new_group(self) -> None:
        """The limit is what tools can read; existing groups continue."""
        table = self.make()
        table.find("G")
        self.assertEqual(table.rows_size, _rows_size(table))
        table.rows_size += GROUP_ROWS_SIZE_MAX
        self.assertIsNone(table.find("H"))
        self.assertIsNotNone(table.find("G"))
        table.update(SubscriptionGroupConfig("G", retry_max_times=3), {})
        error = self.assertRaises(RequestRefused, table.update, SubscriptionGroupConfig("H"), {})
        self.assertIn("groups", str(error))
        self.assertNotIn("H", table.table)
        table.rows_size -= GROUP_ROWS_SIZE_MAX
        self.assertTrue(table.delete("G"))
        self.assertEqual(table.rows_size, _rows_size(table))
        self.assertIsNotNone(table.find("H"))

    def test_room_for_administrators(self) -> None:
        """Automatic creation leaves room for groups of requests, and for changes."""
        table = self.make()
        table.find("G")
        table.rows_size = GROUP_ROWS_SIZE_MAX - GROUP_ROWS_KEPT
        self.assertIsNone(table.find("H"))
        self.assertIsNotNone(table.find("G"))
        table.forbid("G", "T", 2, forbidden=True)
        table.update(SubscriptionGroupConfig("H"), {})
        self.assertIsNotNone(table.find("H"))

    def test_no_room_for_its_topics(self) -> None:
        """A group whose retries could not be stored is not created; others continue."""
        table = self.make()
        table.find("G")
        table.has_room_for_topics = lambda group: False
        self.assertIsNone(table.find("H"))
        self.assertIsNotNone(table.find("G"))
        self.assertIsNotNone(table.find("CID_RMQ_SYS_X"))

    def test_size_of_rows(self) -> None:
        """The size is what tools get, or a little more."""
        table = self.make()
        for number in range(20):
            table.find(f"g{'x' * number}")
        subscriptions = tuple(SimpleSubscriptionData(f"T{n}", "TAG", "*") for n in range(50))
        table.update(SubscriptionGroupConfig("many", subscription_data_set=subscriptions), {})
        policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy())
        table.update(SubscriptionGroupConfig("policy", group_retry_policy=policy), {})
        told = sum(len(map_row(name, config)) for name, config in table.table.items())
        self.assertLessEqual(told, table.rows_size)
        self.assertLess(table.rows_size, 1.2 * told)
        table.persist()
        again = self.make()
        again.load()
        self.assertEqual(again.rows_size, table.rows_size)

    def test_lines_of_the_log(self) -> None:
        """A client that names thousands of groups fills no log."""
        events: list[LogEvent] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        table = self.make()
        for number in range(1000):
            table.find(f"G{number}")
            table.update(SubscriptionGroupConfig("G"), {})
            table.forbid("G", "T", 1, forbidden=bool(number % 2))
        self.assertEqual(
            [len([event for event in events if words in str(event.get("log_format"))])
             for words in ("created", "replaces", "forbidden operations")], [100] * 3)

    def test_a_group_is_replaced(self) -> None:
        """A change replaces the group; a refused one changes nothing."""
        table = self.make()
        table.update(SubscriptionGroupConfig("G", retry_max_times=3), {})
        table.update(SubscriptionGroupConfig("G", retry_queue_nums=2), {})
        self.assertEqual(table.table["G"], SubscriptionGroupConfig("G", retry_queue_nums=2))
        with self.assertRaises(RequestRefused):
            table.update(SubscriptionGroupConfig("G"), {"+nope": "1"})
        self.assertEqual(table.table["G"].retry_queue_nums, 2)
        self.assertEqual(table.data_version.counter, 2)

    def test_changes_are_to_be_saved(self) -> None:
        """Each change is counted and marks the table, unless it changes nothing."""
        table = self.make()
        self.assertFalse(table.dirty)
        marked: list[tuple[int, bool]] = []
        for change in (lambda: table.find("G"), lambda: table.find("G"),
                       lambda: table.update(SubscriptionGroupConfig("H"), {}),
                       lambda: table.delete("G"), lambda: table.delete("G")):
            table.dirty = False
            change()
            marked.append((table.data_version.counter, table.dirty))
        self.assertEqual(marked, [(1, True), (1, False), (2, True), (3, True), (3, False)])

    def test_a_deleted_group_loses_its_forbidden_topics(self) -> None:
        """Its forbidden topics are deleted with the group."""
        table = self.make()
        table.find("G")
        size = table.rows_size
        table.forbid("G", "T", 2, forbidden=True)
        self.assertTrue(table.delete("G"))
        self.assertEqual(size - table.rows_size, row_size(SubscriptionGroupConfig("G")))
        self.assertFalse(table.delete("G"))
        self.assertNotIn("G", table.table)
        self.assertFalse(table.is_forbidden("G", "T", 2))

    def test_a_bit_of_the_mask_of_group_and_topic_says_it(self) -> None:
        """One bit of the mask of group and topic forbids it."""
        table = self.make()
        table.forbidden["G"] = {"T": 0b101}
        bits = [table.is_forbidden("G", "T", index) for index in range(4)]
        self.assertEqual(bits, [True, False, True, False])
        self.assertFalse(table.is_forbidden("G", "U", 0))
        self.assertFalse(table.is_forbidden("H", "T", 0))

    def test_bits_are_set_and_cleared_one_by_one(self) -> None:
        """Bits are set and cleared separately; other topics of the group keep theirs."""
        table = self.make()
        size, version = table.rows_size, table.data_version.counter
        for topic, index in (("T", 2), ("T", 0), ("U", 2), ("T", 2)):
            table.forbid("G", topic, index, forbidden=True)
        self.assertEqual(table.forbidden, {"G": {"T": 0b101, "U": 0b100}})
        self.assertEqual((table.data_version.counter, table.dirty), (version + 3, True))
        for index in (2, 0, 0):
            table.forbid("G", "T", index, forbidden=False)
        self.assertEqual(table.forbidden, {"G": {"U": 0b100}})
        table.forbid("G", "U", 2, forbidden=False)
        self.assertEqual((table.forbidden, table.rows_size), ({}, size))

    def test_what_is_forbidden_is_written_by_group_and_on_the_thread(self) -> None:
        """Only the row of a changed group is encoded, in the job that saves the file."""
        table = self.make()
        for group in ("G", "H", "I"):
            table.forbid(group, "T", 2, forbidden=True)
        table.persist()
        written: list[str] = []
        self.patch(subscription_group, "encode_pretty_row", lambda key, row: written.append(key)
                   or encode_pretty_row(key, row))
        table.forbid("H", "U", 2, forbidden=True)
        table.forbid("G", "T", 2, forbidden=False)
        job = run_to_completion(table.saving())
        self.assertEqual(written, [])
        job()
        self.assertEqual(written, ["H"])
        again = self.make()
        again.load()
        self.assertEqual(again.forbidden, {"H": {"T": 4, "U": 4}, "I": {"T": 4}})
        again.delete("I")
        again.persist()
        last = self.make()
        last.load()
        self.assertEqual(last.forbidden, {"H": {"T": 4, "U": 4}})

    def test_no_room_to_forbid(self) -> None:
        """Masks count as groups do towards the limit, also after a restart."""
        table = self.make()
        table.forbid("G", "T", 2, forbidden=True)
        table.persist()
        again = self.make()
        again.load()
        self.assertEqual(again.rows_size, table.rows_size)
        self.assertGreater(table.rows_size, self.make().rows_size)
        table.rows_size = GROUP_ROWS_SIZE_MAX
        table.forbid("G", "T", 1, forbidden=True)
        self.assertRaises(RequestRefused, table.forbid, "G", "U", 2, forbidden=True)
        self.assertEqual(table.forbidden, {"G": {"T": 0b110}})

    def test_the_file_is_standard_json_and_loads_again(self) -> None:
        """The whole table is restored; the file is standard JSON with Apache's names."""
        table = self.make()
        table.update(SubscriptionGroupConfig("G", consume_enable=False), {})
        table.forbid("G", "T", 2, forbidden=True)
        table.persist()
        saved = json.loads(self.disk.read_file(PATH))
        self.assertEqual(saved["forbiddenTable"], {"G": {"T": 4}})
        self.assertFalse(saved["subscriptionGroupTable"]["G"]["consumeEnable"])
        again = self.make()
        again.load()
        self.assertEqual((again.table, again.forbidden, again.data_version),
                         (table.table, table.forbidden, table.data_version))

    def test_apaches_files(self) -> None:
        """Files of Apache's brokers are read, also without forbidden topics."""
        for version in ("4.9.4", "5.3.3"):
            text = (GOLDEN / version / "subscriptionGroup.json").read_text()
            self.write(text)
            table = self.make()
            table.load()
            saved = json.loads(text)["subscriptionGroupTable"]
            self.assertLess({"TOOLS_CONSUMER"}, saved.keys())
            for name, fields in saved.items():
                config = table.table[name]
                self.assertEqual((config.retry_max_times, config.retry_queue_nums),
                                 (fields["retryMaxTimes"], fields["retryQueueNums"]), name)
            self.assertEqual(table.forbidden, {})

    def test_a_file_that_is_no_table_stops_the_start_and_is_named(self) -> None:
        """A file that is not a table stops the start, and the error names it."""
        self.write('{"subscriptionGroupTable":{"G":{}}}')
        error = self.assertRaises(StoreDamaged, self.make().load)
        self.assertIn(PATH, str(error))
