"""Commands for topics."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.tools.admin.case import AdminCase


class TopicTests(AdminCase):
    """The life of a topic."""

    def test_create_show_delete(self) -> None:
        """A topic is created, shown, changed and deleted."""
        [made] = self.rows("updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w", "3")
        self.assertEqual(made, {
            "broker": "broker-a", "address": self.broker, "topic": "T", "read_queues": 4,
            "write_queues": 3, "perm": 6, "order": False})
        self.assertIn({"topic": "T"}, self.rows("topicList"))
        self.assertEqual(self.rows("topicRoute", "-t", "T"), [{
            "cluster": "DefaultCluster", "broker": "broker-a", "id": 0, "address": self.broker,
            "read_queues": 4, "write_queues": 3, "perm": 6}])
        self.assertEqual(self.rows("topicClusterList", "-t", "T"), [{"cluster": "DefaultCluster"}])
        [changed] = self.rows("updateTopicPerm", "-b", self.broker, "-t", "T", "-p", "4")
        self.assertEqual((changed["old_perm"], changed["perm"]), (6, 4))
        self.assertEqual([(row["read_queues"], row["write_queues"], row["perm"])
                          for row in self.rows("topicRoute", "-t", "T")], [(4, 3, 4)])
        [gone] = self.rows("deleteTopic", "-c", "DefaultCluster", "-t", "T")
        self.assertEqual(gone["topic"], "T")
        self.assertNotIn({"topic": "T"}, self.rows("topicList"))
        self.assertIn("answered 17", self.refusal("topicStatus", "-t", "T"))

    def test_settings_survive_a_change_of_permission(self) -> None:
        """A change of the permission leaves the rest of a topic as it is."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-o", "true", "-a",
                  "+message.type=FIFO")
        self.rows("updateTopicPerm", "-c", "DefaultCluster", "-t", "T", "-p", "2")
        config = self.running.call(self.running.kernel.topic_config.get, "T")
        assert config is not None
        self.assertEqual((config.perm, config.order, config.attributes),
                         (2, True, {"message.type": "FIFO"}))

    def test_the_bounds_of_queues(self) -> None:
        """The bounds of queues, and when the last message came."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-r", "2", "-w", "2")
        with self.running.client() as client:
            client.send("T", b"one", queue_id=1)
        rows = self.rows("topicStatus", "-t", "T")
        self.assertEqual([(row["queue"], row["min_offset"], row["max_offset"]) for row in rows],
                         [(0, 0, 0), (1, 0, 1)])
        self.assertGreater(rows[1]["last_updated"], 1_700_000_000_000)

    def test_list_with_groups(self) -> None:
        """The groups that consume a topic are shown with it."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T")
        self.member("g", "T")
        rows = self.rows("topicList", "-c")
        self.assertIn({"cluster": "DefaultCluster", "topic": "T", "group": "g"}, rows)
        self.assertIn({"cluster": "DefaultCluster", "topic": "TBW102", "group": ""}, rows)

    def test_order_configuration_is_registered_by_broker(self) -> None:
        """Name servers get the queues of an ordered topic, by broker."""
        self.rows("updateTopic", "-c", "DefaultCluster", "-t", "T", "-w", "5", "-o", "true")
        self.assertEqual(self.rows("updateOrderConf", "-t", "T", "-m", "get"),
                         [{"topic": "T", "order": "broker-a:5"}])
        self.rows("updateOrderConf", "-t", "T", "-m", "put", "-v", "broker-a:5;broker-b:2")
        # A change of one broker leaves the others.
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-w", "3", "-o", "true")
        self.assertEqual(self.rows("updateOrderConf", "-t", "T", "-m", "get"),
                         [{"topic": "T", "order": "broker-a:3;broker-b:2"}])
        self.assertEqual(self.rows("updateOrderConf", "-t", "T", "-m", "delete"),
                         [{"topic": "T", "order": ""}])
        self.assertIn("-v is needed", self.refusal("updateOrderConf", "-t", "T", "-m", "put"))

    def test_list_of_a_file(self) -> None:
        """The topics of a file are created; an invalid file is reported."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "topics.json"
            file.write_text(json.dumps([{"topicName": "A", "perm": 4}, {"topicName": "B"}]))
            rows = self.rows("updateTopicList", "-c", "DefaultCluster", "-f", str(file))
            self.assertEqual([(row["topic"], row["perm"], row["read_queues"]) for row in rows],
                             [("A", 4, 16), ("B", 6, 16)])
            file.write_text('[{"perm": 6}]')
            self.assertIn("topicName", self.refusal("updateTopicList", "-c", "DefaultCluster",
                                                    "-f", str(file)))
        names = {row["topic"] for row in self.rows("topicList")}
        self.assertLessEqual({"A", "B"}, names)

    def test_clients_share_queues_evenly(self) -> None:
        """The first clients get the remaining queues."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-r", "5")
        rows = self.rows("allocateMQ", "-t", "T", "-i", "b,a")
        self.assertEqual([(row["client"], row["queue"]) for row in rows],
                         [("b", 0), ("b", 1), ("b", 2), ("a", 3), ("a", 4)])

    def test_unknown_places(self) -> None:
        """The cluster or the broker does not exist."""
        self.assertIn("there is no cluster Nope; the name server knows DefaultCluster",
                      self.refusal("updateTopic", "-c", "Nope", "-t", "T"))
        self.assertIn("127.0.0.1:1", self.refusal("updateTopic", "-b", "127.0.0.1:1", "-t", "T"))
