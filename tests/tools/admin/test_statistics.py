"""Commands for statistics of topics and groups, for producers, and for settings."""

from __future__ import annotations

from tests.tools.admin.case import AdminCase
from twistmq.client import Client
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode


class StatisticsTests(AdminCase):
    """A topic that three messages were sent to, and a group that consumed one."""

    def setUp(self) -> None:
        super().setUp()
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-r", "1", "-w", "1")
        self.client = self.member("g", "T")
        with self.running.client() as sender, \
                Client(self.running.namesrv_address) as client:
            for _ in range(3):
                self.sent = sender.send("T", b"x", queue_id=0)
            client.commit_group_offset("g", MessageQueue("T", "broker-a", 0), 1)

    def test_topics_with_lag_are_shown_by_group(self) -> None:
        """A topic without a lag is shown, unless nothing is sent or consumed."""
        [row] = self.rows("statsAll", "-t", "T")
        self.assertEqual((row["topic"], row["group"], row["waiting"]), ("T", "g", 2))
        rows = {(row["topic"], row["group"]): row for row in self.rows("statsAll")}
        self.assertEqual(rows["TBW102", None]["in_day"], 0)
        self.assertNotIn("%RETRY%g", {topic for topic, _ in rows})
        self.assertNotIn(("TBW102", None), {(row["topic"], row["group"])
                                            for row in self.rows("statsAll", "-a")})

    def test_all_groups_of_a_broker(self) -> None:
        """The lag of each group is shown, from a given one on."""
        [row] = self.rows("brokerConsumeStats", "-b", self.broker)
        self.assertEqual((row["topic"], row["group"], row["queue"], row["diff"]), ("T", "g", 0, 2))
        self.assertEqual(self.rows("brokerConsumeStats", "-b", self.broker, "-l", "3"), [])

    def test_all_producers_of_a_broker_are_listed(self) -> None:
        """All producers of a broker."""
        [row] = [row for row in self.rows("producer", "-b", self.broker)
                 if row["group"] == "g-producer"]
        self.assertEqual((row["client"], row["version"]), (self.client.client, "V5_3_3"))

    def test_a_pushed_message_reports_its_consume_result(self) -> None:
        """One client gets a message and reports the result."""
        told = self.client.tell((RequestCode.CONSUME_MESSAGE_DIRECTLY, (
            b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"remark":"done",'
            b'"spentTimeMills":7}')))
        [row] = self.rows("queryMsgById", "-t", "T", "-i", self.sent.msg_id, "-g", "g", "-d",
                          self.client.client)
        told.join(10)
        self.assertEqual((row["client"], row["result"], row["remark"], row["ms"]),
                         (self.client.client, "CR_SUCCESS", "done", 7))

    def test_settings_are_changed(self) -> None:
        """A setting of a broker and of a name server is changed; an invalid value is refused."""
        for place in (("-b", self.broker), ("-c", "DefaultCluster")):
            [row] = self.rows("updateBrokerConfig", *place, "-k", "fileReservedTime", "-v", "71")
            self.assertEqual((row["name"], row["value"]), ("fileReservedTime", "71"))
        table = {row["name"]: row["value"] for row in self.rows("getBrokerConfig", "-b",
                                                                self.broker)}
        self.assertEqual(table["fileReservedTime"], "71")
        self.assertIn("fileReservedTime", self.refusal(
            "updateBrokerConfig", "-b", self.broker, "-k", "fileReservedTime", "-v", "long"))
        self.rows("updateNamesrvConfig", "-k", "enableTopicList", "-v", "false")
        table = {row["name"]: row["value"] for row in self.rows("getNamesrvConfig")}
        self.assertEqual(table["enableTopicList"], "false")
