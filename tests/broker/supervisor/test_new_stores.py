"""The tables that a new broker gets from the others."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot
from twistmq.broker.edge.unserved_stores import unserved_notices
from twistmq.broker.supervisor.members import members_of
from twistmq.broker.supervisor.new_stores import give_tables
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.protocol.errors import StoreDamaged

TOPICS = {"dataVersion": {"counter": 7, "stateVersion": 0, "timestamp": 5}, "topicConfigTable": {
    name: {"attributes": {}, "order": False, "perm": 6, "readQueueNums": queues,
           "topicFilterType": "SINGLE_TAG", "topicName": name, "topicSysFlag": 0,
           "writeQueueNums": queues}
    for name, queues in (("orders", 5), ("b-0", 1), ("DefaultCluster", 16), ("TBW102", 8))}}
GROUPS = {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 5},
          "subscriptionGroupTable": {"billing": {"groupName": "billing", "retryMaxTimes": 3}}}


class NewStoresTests(SynchronousTestCase):
    """A store of b-0 on a disk in memory, and brokers b-0 and b-1."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.settings = boot.broker_settings(None, {
            "brokerName": "b", "storePathRootDir": "/data"})
        for name, table in (("topics.json", TOPICS), ("subscriptionGroup.json", GROUPS)):
            self.put(f"/data/b-0/config/{name}", json.dumps(table))

    def put(self, path: str, text: str) -> None:
        self.disk.make_directory(path.rpartition("/")[0])
        self.disk.write_file_atomically(path, text.encode())

    def give(self, count: int) -> list[str]:
        return give_tables(self.disk, self.settings, members_of(self.settings, count))

    def read(self, path: str) -> dict[str, dict[str, dict[str, object]]]:
        found: dict[str, dict[str, dict[str, object]]] = json.loads(self.disk.read_file(path))
        return found

    def test_a_new_broker_has_the_topics_and_groups(self) -> None:
        """The new broker has the topic and the group; topics of brokers and of the system not."""
        self.assertEqual(self.give(2), ["b-1"])
        topics = self.read("/data/b-1/config/topics.json")["topicConfigTable"]
        self.assertEqual({name: row["writeQueueNums"] for name, row in topics.items()},
                         {"orders": 5})
        groups = self.read("/data/b-1/config/subscriptionGroup.json")["subscriptionGroupTable"]
        self.assertEqual(groups["billing"]["retryMaxTimes"], 3)

    def test_a_store_that_is_there_stays_as_it_is(self) -> None:
        """A broker that has a store gets no tables."""
        self.give(2)
        before = self.disk.read_file("/data/b-1/config/topics.json")
        self.assertEqual(self.give(2), [])
        self.assertEqual(self.disk.read_file("/data/b-1/config/topics.json"), before)

    def test_a_folder_that_was_made_before_is_new(self) -> None:
        """An empty folder, such as a mount point, is a new store."""
        self.disk.make_directory("/data/b-1/commitlog")
        self.disk.make_directory("/data/b-1/lost+found")
        self.assertEqual(self.give(2), ["b-1"])
        self.assertIn("orders", self.read("/data/b-1/config/topics.json")["topicConfigTable"])

    def test_a_store_with_messages_or_a_backup_is_not_new(self) -> None:
        """A broker that has messages or a backup restores its topics itself."""
        self.put("/data/b-1/commitlog/00000000000000000000", "")
        self.put("/data/b-2/config/topics.json.bak", json.dumps(TOPICS))
        self.assertEqual(self.give(3), [])
        self.settings = boot.broker_settings(None, {
            "brokerName": "b", "storePathRootDir": "/data", "storePathCommitLog": "/log"})
        for name in ("b-1", "b-3"):
            self.put(f"/log/{name}/00000000000000000000", "")
        self.assertEqual(self.give(4), [])

    def test_a_crash_between_the_two_tables_is_made_good(self) -> None:
        """The next start writes both tables."""
        self.put("/data/b-1/config/subscriptionGroup.json", json.dumps(
            {**GROUPS, "subscriptionGroupTable": {}}))
        written: list[str] = []
        write = self.disk.write_file_atomically

        def noted(path: str, data: bytes, **options: bool) -> None:
            written.append(path.rpartition("/")[2])
            write(path, data, **options)

        self.patch(self.disk, "write_file_atomically", noted)
        self.assertEqual(self.give(2), ["b-1"])
        self.assertEqual(written, ["subscriptionGroup.json", "topics.json"])
        groups = self.read("/data/b-1/config/subscriptionGroup.json")["subscriptionGroupTable"]
        self.assertIn("billing", groups)

    def test_the_first_start_gives_nothing(self) -> None:
        """If no store exists, no tables are written."""
        disk = MemoryDisk()
        self.assertEqual(
            give_tables(disk, self.settings, members_of(self.settings, 2)), [])

    def test_a_damaged_table_stops_the_start(self) -> None:
        """A table that cannot be read does not count as empty."""
        self.put("/data/b-0/config/topics.json", "{")
        self.assertRaises(StoreDamaged, self.give, 2)

    def test_a_store_that_is_not_served_is_named(self) -> None:
        """The stores of brokers that are no longer started are named, and one without a number."""
        for name in ("", "b-0/", "b-1/"):
            self.disk.make_directory(f"/data/{name}commitlog")
        served = [member.values["storePathRootDir"] for member in members_of(self.settings, 1)]
        self.assertEqual(
            [line.split()[2] for line in unserved_notices(self.disk, "/data", served)],
            ["/data", "/data/b-1"])
        self.assertEqual(
            [line.split()[2] for line in unserved_notices(self.disk, "/data", ["/data"])],
            ["/data/b-0", "/data/b-1"])
        self.assertEqual(unserved_notices(self.disk, "/none", ["/none"]), [])
