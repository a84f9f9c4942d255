"""Commands for consumer groups."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.interop.servers import wait_until
from tests.tools.admin.case import AdminCase
from twistmq.client import Client
from twistmq.protocol.bodies import MessageQueue


class GroupTests(AdminCase):
    """The settings of a group."""

    def test_create_show_delete(self) -> None:
        """A group is created, shown and deleted."""
        [made] = self.rows("updateSubGroup", "-b", self.broker, "-g", "g", "-r", "5", "-q", "2",
                           "-s", "false")
        self.assertEqual((made["group"], made["consume_enable"], made["retry_queues"],
                          made["retry_max"]), ("g", False, 2, 5))
        shown = {row["name"]: row["value"] for row in self.rows("getConsumerConfig", "-g", "g")}
        self.assertEqual((shown["groupName"], shown["retryMaxTimes"], shown["consumeEnable"]),
                         ("g", 5, False))
        self.rows("deleteSubGroup", "-c", "DefaultCluster", "-g", "g", "-r", "true")
        groups = self.running.kernel.subscription_group
        self.assertFalse(self.running.call(groups.has, "g"))

    def test_retry_policy_and_attributes(self) -> None:
        """An invalid policy is refused here, an unknown attribute by the broker."""
        policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 7000]}}
        self.rows("updateSubGroup", "-b", self.broker, "-g", "g", "-p", json.dumps(policy))
        group = self.running.kernel.subscription_group.table["g"]
        assert group.group_retry_policy.customized_retry_policy is not None
        self.assertEqual(group.group_retry_policy.customized_retry_policy.next, (1000, 7000))
        said = self.refusal("updateSubGroup", "-b", self.broker, "-g", "g", "-p", "{never}")
        self.assertIn("--groupRetryPolicy {never}", said)
        said = self.refusal("updateSubGroup", "-b", self.broker, "-g", "g",
                            "--attributes", "+speed=high")
        self.assertIn("unsupported key: speed", said)

    def test_list_of_a_file(self) -> None:
        """The groups of a file are created."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "groups.json"
            file.write_text(json.dumps([{"groupName": "a", "retryMaxTimes": 3}]))
            [row] = self.rows("updateSubGroupList", "-c", "DefaultCluster", "-f", str(file))
        self.assertEqual((row["group"], row["retry_max"]), ("a", 3))
        shown = {row["name"]: row["value"] for row in self.rows("getConsumerConfig", "-g", "a")}
        self.assertEqual(shown["retryMaxTimes"], 3)


class ProgressTests(AdminCase):
    """The progress of a group, and the work of its clients."""

    def setUp(self) -> None:
        super().setUp()
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-r", "2", "-w", "2")
        self.client = self.member("g", "T")
        with Client(self.running.namesrv_address) as client, \
                self.running.client() as sender:
            for _ in range(3):
                sender.send("T", b"x", queue_id=1)
            client.commit_group_offset("g", MessageQueue("T", "broker-a", 1), 2)

    def test_one_group(self) -> None:
        """Each queue is shown with its lag and its client."""
        rows = [row for row in self.rows("consumerProgress", "-g", "g") if row["topic"] == "T"
                and row["queue"] == 1]
        self.assertEqual([(row["broker_offset"], row["consumer_offset"], row["diff"],
                           row["client"]) for row in rows], [(3, 2, 1, None)])
        self.client.tell()
        self.assertTrue(self.rows("consumerProgress", "-g", "g", "-t", "T", "-s", "true"))

    def test_all_groups(self) -> None:
        """A line each, with how many clients and how far behind."""
        [row] = [row for row in self.rows("consumerProgress") if row["group"] == "g"]
        self.assertEqual((row["clients"], row["version"], row["type"], row["model"], row["diff"]),
                         (1, "V5_3_3", "PUSH", "CLUSTERING", 1))

    def test_consumer_status_shows_all_clients_or_one(self) -> None:
        """All clients are shown, or one with all details."""
        self.client.tell()
        [row] = self.rows("consumerStatus", "-g", "g")
        self.assertEqual(row, {
            "client": self.client.client, "version": "V5_3_3", "type": "CONSUME_PASSIVELY",
            "orderly": False, "queues": 1, "subscriptions": ["T: *"], "started": 1_700_000_000_000})
        self.client.tell()
        rows = self.rows("consumerStatus", "-g", "g", "-i", self.client.client)
        self.assertIn({"section": "subscription", "name": "T", "value": "*"}, rows)
        self.assertIn({"section": "statistics", "name": "T", "value": '{"consumeOKTPS":1.5}'}, rows)

    def test_a_group_without_clients(self) -> None:
        """A group without clients, and one that is not there."""
        self.client.close()
        kernel = self.running.kernel
        wait_until("the client is gone", lambda: not self.running.call(
            lambda: kernel.clients.consumer_group("g")))
        self.assertIn("no consumer of group g is connected to 127.0.0.1",
                      self.refusal("consumerStatus", "-g", "g"))
        self.assertIn("no broker has a group other",
                      self.refusal("consumerProgress", "-g", "other"))
        rows = self.rows("consumerProgress", "-g", "g", "-s", "true")
        self.assertEqual([(row["queue"], row["diff"], row["client"]) for row in rows
                          if row["topic"] == "T"], [(0, 0, None), (1, 1, None)])


class NoRetryTopicTests(AdminCase):
    """A group whose clients chose their queues themselves has no retry topic."""

    def setUp(self) -> None:
        super().setUp()
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-r", "1", "-w", "1")
        self.rows("updateSubGroup", "-b", self.broker, "-g", "g")
        with self.running.client() as client:
            for _ in range(3):
                client.send("T", b"x", queue_id=0)
        self.queue = MessageQueue("T", "broker-a", 0)
        with Client(self.running.namesrv_address) as client:
            client.commit_group_offset("g", self.queue, 2)

    def committed(self, group: str) -> int:
        with Client(self.running.namesrv_address) as client:
            found = client.group_offset(group, self.queue)
        assert found is not None
        return found

    def test_progress(self) -> None:
        """The group is shown by every option, and among all groups."""
        for words in ((), ("-s", "true"), ("-t", "T"), ("-t", "T", "-s", "true")):
            [row] = self.rows("consumerProgress", "-g", "g", *words)
            self.assertEqual((row["topic"], row["diff"], row["client"]), ("T", 1, None), words)
        [row] = [row for row in self.rows("consumerProgress") if row["group"] == "g"]
        self.assertEqual((row["clients"], row["version"], row["diff"]), (0, "OFFLINE", 1))

    def test_nothing_committed(self) -> None:
        """A group that never committed an offset has an empty table."""
        self.rows("updateSubGroup", "-b", self.broker, "-g", "new")
        self.assertEqual(self.rows("consumerProgress", "-g", "new", "-s", "true"), [])

    def test_clients(self) -> None:
        """Commands about clients report that there are none."""
        for command in ("consumerConnection", "consumerStatus"):
            self.assertIn("no consumer of group g is connected", self.refusal(command, "-g", "g"))
        self.assertIn("not online", self.refusal("consumerStatus", "-g", "g", "-i", "nobody"))

    def test_offsets(self) -> None:
        """Offsets are copied, reset and moved to the end without a client."""
        self.rows("updateSubGroup", "-b", self.broker, "-g", "other")
        self.rows("cloneGroupOffset", "-s", "g", "-d", "other", "-t", "T")
        self.assertEqual(self.committed("other"), 2)
        self.rows("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0")
        self.assertEqual(self.committed("g"), 0)
        self.rows("skipAccumulatedMessage", "-g", "g", "-t", "T")
        self.assertEqual(self.committed("g"), 3)

    def test_deletion(self) -> None:
        """The group is deleted although it has no topics."""
        self.rows("deleteSubGroup", "-c", "DefaultCluster", "-g", "g", "-r", "true")
        self.assertIn("no broker has a group g", self.refusal("consumerProgress", "-g", "g"))
