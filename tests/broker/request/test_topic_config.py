"""The table of topics: a new broker's topics, automatic creation, and its file."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import TOPIC_ROWS_KEPT, TOPIC_ROWS_SIZE_MAX
from twistmq.broker.request.topic_config import TopicConfigTable
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
)
from twistmq.protocol.errors import RequestRefused, StoreDamaged
from twistmq.protocol.flags import PERM_INHERIT, PERM_READ, PERM_WRITE
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LINES_A_MINUTE

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "config"
PATH = "/store/config/topics.json"
NOW_MS = 1_700_000_000_000
PEER = "10.0.0.1:4000"


class TableCase(SynchronousTestCase):
    """A disk and a clock; tables are made as wanted."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.now_ms = NOW_MS

    def make(self, **settings: str) -> TopicConfigTable:
        overrides = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", **settings}
        values = Settings.load(broker_rows(), overrides=overrides)
        return TopicConfigTable(values, ConfigFile(self.disk, PATH), lambda: self.now_ms)

    def write(self, text: str) -> None:
        self.disk.make_directory("/store/config")
        self.disk.write_file_atomically(PATH, text.encode(), keep_backup=False)


class FreshTableTests(TableCase):
    """A broker without a file."""

    def test_system_topics(self) -> None:
        """The topics a fresh 5.3.3 broker registers: queues to read, to write, permission."""
        table = self.make()
        rows = {name: (config.read_queue_nums, config.write_queue_nums, config.perm)
                for name, config in table.table.items()}
        self.assertEqual(rows, {
            "TBW102": (8, 8, 7), "SELF_TEST_TOPIC": (1, 1, 6), "BenchmarkTest": (1024, 1024, 6),
            "DefaultCluster": (16, 16, 7), "broker-a": (1, 1, 7), "OFFSET_MOVED_EVENT": (1, 1, 6),
            "SCHEDULE_TOPIC_XXXX": (18, 18, 6), "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
            "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
            "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
            "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6), "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
            "rmq_sys_wheel_timer": (1, 1, 6),
        })
        self.assertEqual(table.system_topics, set(rows))

    def test_settings_change_them(self) -> None:
        """Template, trace topic and permissions follow the settings."""
        table = self.make(autoCreateTopicEnable="false", traceTopicEnable="true",
                          msgTraceTopicName="Traces", clusterTopicEnable="false",
                          brokerTopicEnable="false", brokerClusterName="c")
        self.assertNotIn("TBW102", table.table)
        self.assertEqual(table.table["Traces"].write_queue_nums, 1)
        self.assertEqual((table.table["c"].perm, table.table["broker-a"].perm),
                         (PERM_INHERIT, PERM_INHERIT))
        self.assertEqual(self.make(defaultTopicQueueNums="3").table["TBW102"].read_queue_nums, 3)

    def test_a_fresh_table_is_not_taken_for_another_fresh_table(self) -> None:
        """Two new tables have different versions."""
        self.assertEqual(self.make().data_version, DataVersion(timestamp=NOW_MS))

    def test_system_topics_by_name_or_setting(self) -> None:
        """The cluster's name is the system's here, the fixed names everywhere."""
        table = self.make()
        for topic in ("DefaultCluster", "broker-a", "TBW102", "CHECKPOINT_TOPIC", "rmq_sys_x"):
            self.assertTrue(table.is_system_topic(topic), topic)
        self.assertFalse(table.is_system_topic("broker-b"))


class CreationTests(TableCase):
    """Topics that are created by sends."""

    def test_from_the_template(self) -> None:
        """It has the requested queues up to the template's, and its permission
        without inheritance.
        """
        table = self.make()
        for asked, queues in ((4, 4), (8, 8), (20, 8), (0, 0), (-3, 0)):
            topic = f"T{asked}"
            config = table.create_in_send(topic, "TBW102", PEER, asked, 5)
            self.assertEqual(config, TopicConfig(topic, queues, queues, PERM_READ | PERM_WRITE,
                                                 topic_sys_flag=5))
            self.assertIs(table.get(topic), config)
        self.assertEqual(table.data_version.counter, 5)

    def test_the_template_says_how_tags_are_filtered(self) -> None:
        """A topic made from one with several tags a message has them too."""
        table = self.make()
        table.table["TBW102"].topic_filter_type = TopicFilterType.MULTI_TAG
        config = table.create_in_send("T", "TBW102", PEER, 4, 0)
        assert config is not None
        self.assertEqual(config.topic_filter_type, TopicFilterType.MULTI_TAG)

    def test_the_template_says_what_is_permitted(self) -> None:
        """A topic made from one that is only read cannot be sent to either."""
        table = self.make()
        table.table["TBW102"].perm = PERM_READ | PERM_INHERIT
        config = table.create_in_send("T", "TBW102", PEER, 4, 0)
        assert config is not None
        self.assertEqual(config.perm, PERM_READ)

    def test_any_topic_that_inherits_is_a_template(self) -> None:
        """Any topic with the inheritance bit is a template; ordinary and missing ones are not."""
        table = self.make()
        config = table.create_in_send("T", "broker-a", PEER, 4, 0)
        assert config is not None
        self.assertEqual((config.write_queue_nums, config.perm), (1, 6))
        self.assertIsNone(table.create_in_send("U", "T", PEER, 4, 0))
        self.assertIsNone(table.create_in_send("U", "nope", PEER, 4, 0))
        self.assertNotIn("U", table.table)
        self.assertEqual(table.data_version.counter, 1)

    def test_lines_of_the_log(self) -> None:
        """Topics without a template, or that a tool makes, however many, fill no log."""
        table = self.make()
        with capturedLogs() as events:
            for number in range(200):
                table.create_in_send(f"T{number}", "nope", PEER, 4, 0)
                table.update(TopicConfig("U"), {})
        lines = [str(event["log_format"]) for event in events]
        self.assertEqual([len([line for line in lines if words in line])
                          for words in ("is not created", "replaces")],
                         [LINES_A_MINUTE, EVENTS_A_MINUTE])

    def test_switched_off(self) -> None:
        """A template in the file of a broker that created topics loses its bit."""
        self.make().persist()
        table = self.make(autoCreateTopicEnable="false")
        table.load()
        self.assertEqual(table.table["TBW102"].perm, 7)
        self.assertIsNone(table.create_in_send("T", "TBW102", PEER, 4, 0))
        self.assertEqual(table.table["TBW102"].perm, 6)
        # Only that template: the broker's own goes on.
        self.assertIsNotNone(table.create_in_send("T", "broker-a", PEER, 4, 0))

    def test_topic_that_is_there(self) -> None:
        """Two simultaneous sends create one topic."""
        table = self.make()
        first = table.create_in_send("T", "TBW102", PEER, 4, 0)
        self.assertIs(table.create_in_send("T", "TBW102", PEER, 2, 0), first)
        self.assertEqual(table.data_version.counter, 1)

    def test_retry_topic(self) -> None:
        """It is created as requested; only its order is corrected later."""
        table = self.make()
        config = table.create_in_send_back("%RETRY%G", 2, 6, 2)
        self.assertEqual(config, TopicConfig("%RETRY%G", 2, 2, 6, topic_sys_flag=2))
        self.assertIs(table.create_in_send_back("%RETRY%G", 5, 4, 0), config)
        self.assertEqual(table.data_version.counter, 1)
        table.create_in_send_back("%RETRY%G", 5, 4, 0, order=True)
        self.assertEqual((config.order, config.write_queue_nums), (True, 2))
        self.assertEqual(table.data_version.counter, 2)


class ChangeTests(TableCase):
    """Topics changed and deleted by an administrator."""

    def test_a_topic_is_replaced(self) -> None:
        """A topic is replaced, its attributes are changed."""
        table = self.make()
        table.update(TopicConfig("T", 4, 4), {"+message.type": "FIFO"})
        self.now_ms += 5
        table.update(TopicConfig("T", 2, 1), {"+message.type": "DELAY"})
        self.assertEqual(table.get("T"),
                         TopicConfig("T", 2, 1, attributes={"message.type": "DELAY"}))
        self.assertEqual(table.data_version, DataVersion(timestamp=NOW_MS + 5, counter=2))

    def test_refused_update_changes_nothing(self) -> None:
        """Neither the topic nor the version changes."""
        table = self.make()
        table.update(TopicConfig("T", 4, 4), {})
        with self.assertRaises(RequestRefused):
            table.update(TopicConfig("T", 1, 1), {"+nope": "1"})
        self.assertEqual(table.get("T"), TopicConfig("T", 4, 4))
        self.assertEqual(table.data_version.counter, 1)

    def test_a_topic_goes_once(self) -> None:
        """A topic is deleted once."""
        table = self.make()
        table.update(TopicConfig("T"), {})
        self.assertTrue(table.delete("T"))
        self.assertFalse(table.delete("T"))
        self.assertIsNone(table.get("T"))
        self.assertEqual(table.data_version.counter, 2)

    def test_who_asks_is_told_of_each_change(self) -> None:
        """Changes may come from a tool, a send, an order configuration or another
        broker's table.
        """
        table = self.make()
        told: list[str] = []
        table.on_change.append(told.append)
        table.update(TopicConfig("T"), {})
        table.update(TopicConfig("T", 1, 1), {})
        table.create_in_send_back("%RETRY%G", 1, 6, 0)
        table.update_order_topics({"T": "broker-a:4"})
        for _ in table.replacing({"U": TopicConfig("U")}):
            continue
        table.delete("T")
        table.delete("T")
        self.assertEqual(told, ["T", "T", "%RETRY%G", "T", "U", "T"])

    def test_order_topics(self) -> None:
        """The order from name servers is applied to existing topics, and saved."""
        table = self.make()
        for topic in ("T", "U", "V"):
            table.update(TopicConfig(topic), {})
        version = table.data_version.counter
        table.dirty = False
        table.update_order_topics({"T": "broker-a:4", "U": "broker-a:1", "elsewhere": "broker-b:4"})
        self.assertEqual([table.is_order_topic(each) for each in ("T", "U", "V", "elsewhere")],
                         [True, True, False, False])
        self.assertTrue(table.dirty)
        table.dirty = False
        table.update_order_topics({"T": "broker-a:4"})
        table.update_order_topics({})
        self.assertFalse(table.dirty)
        self.assertEqual(table.data_version.counter, version + 1)


class RegistrationTests(TableCase):
    """The registration at name servers."""

    def test_all_as_they_are(self) -> None:
        """A broker that may be read and written tells its topics as they are."""
        table = self.make()
        table.update(TopicConfig("T", 3, 2, 4, order=True), {"+message.type": "FIFO"})
        told = self.told(table)
        self.assertEqual(told.topic_config_table, table.table)
        self.assertEqual(told.data_version, table.data_version)
        self.assertEqual(table.registration(False)(),
                         RegisterBrokerBody(TopicConfigSerializeWrapper(
                             table.table, table.data_version,
                             topic_queue_mapping_info_map={})).encode())

    def told(self, table: TopicConfigTable, compressed: bool = False
             ) -> TopicConfigSerializeWrapper:
        """Return the content of the body of a registration."""
        body = table.registration(compressed)()
        return RegisterBrokerBody.decode(body, compressed).topic_config_serialize_wrapper

    def test_the_compressed_form_holds_the_same(self) -> None:
        """The compressed form has the same content."""
        table = self.make()
        table.update(TopicConfig("T", 3, 2, 4), {"+message.type": "FIFO"})
        self.assertEqual(self.told(table, compressed=True).topic_config_table, table.table)

    def test_topics_that_do_not_fit(self) -> None:
        """A topic that would make the registration too long is not created, nor are
        many at once.
        """
        table = self.make()
        name = "n" * 127
        many = [TopicConfig(f"{number}{name}"[:127]) for number in range(100_000)]
        self.assertRaises(RequestRefused, table.require_room, many)
        table.require_room(many[:1000])
        table.rows_size = TOPIC_ROWS_SIZE_MAX - 100
        before = dict(table.table)
        with self.assertRaises(RequestRefused) as caught:
            table.create_in_send("T", "TBW102", "peer", 4, 0)
        self.assertIn("topics", str(caught.exception))
        self.assertRaises(RequestRefused, table.create_in_send_back, "%RETRY%G", 1, 6, 0)
        self.assertEqual(table.table, before)
        self.assertEqual(table.create_in_send_back("TBW102", 1, 6, 0).topic_name, "TBW102")

    def test_room_for_groups(self) -> None:
        """Ordinary topics leave room: half for topics of any group, half for existing groups."""
        table = self.make()
        table.is_group = {"G"}.__contains__
        table.rows_size = TOPIC_ROWS_SIZE_MAX - TOPIC_ROWS_KEPT - 100
        for name in ("T", "%RETRY%H", "%DLQ%H"):
            self.assertRaises(RequestRefused, table.create_in_send, name, "TBW102", PEER, 4, 0)
            self.assertRaises(RequestRefused, table.require_room, [TopicConfig(name)])
        self.assertRaises(RequestRefused, table.require_room,
                          [TopicConfig("%RETRY%G"), TopicConfig("T")])
        table.require_room([TopicConfig("%RETRY%G"), TopicConfig("%DLQ%G")])
        table.create_in_send_back("%RETRY%G+T", 1, 6, 0)
        self.assertTrue(table.has_room_for_group("H"))
        table.rows_size = TOPIC_ROWS_SIZE_MAX - TOPIC_ROWS_KEPT // 2 - 100
        self.assertFalse(table.has_room_for_group("H"))
        self.assertRaises(RequestRefused, table.create_in_send_back, "%RETRY%G+U", 1, 6, 0)
        for name in ("%RETRY%G", "%DLQ%G", "TRANS_CHECK_MAX_TIME_TOPIC"):
            self.assertEqual(table.create_in_send_back(name, 1, 6, 0).topic_name, name)

    def test_name_of_no_directory(self) -> None:
        """A topic that the saved table could not be read with is not made."""
        table = self.make()
        self.assertRaises(RequestRefused, table.create_in_send_back, "n" * 256, 1, 6, 0)
        self.assertNotIn("n" * 256, table.table)

    def test_size_of_rows(self) -> None:
        """After each change the size is the sum of all rows, and no row exceeds its estimate."""
        table = self.make()
        empty = table.rows_size
        table.require_room([])
        table.update(TopicConfig("T"), {"+message.type": "FIFO"})
        table.update(TopicConfig("T", 5), {})
        table.create_in_send("New", "TBW102", "peer", 4, 0)
        self.assertEqual(table.rows_size, sum(map(len, table.rows.values())))
        for topic in ("T", "New"):
            self.assertLess(len(table.rows[topic]), 200 + 2 * len(topic) + 40)
            table.delete(topic)
        self.assertEqual(table.rows_size, empty)

    def test_a_broker_without_permission_masks_only_what_it_registers(self) -> None:
        """The broker masks the permissions that it registers, and keeps its own table unchanged."""
        table = self.make(brokerPermission="4")
        table.update(TopicConfig("T", 3, 2, 6, topic_sys_flag=1), {})
        told = self.told(table).topic_config_table
        self.assertEqual(told["T"], TopicConfig("T", 3, 2, 4, topic_sys_flag=1))
        self.assertEqual(told["rmq_sys_SYNC_BROKER_MEMBER_broker-a"].perm, 0)
        self.assertEqual(table.table["T"].perm, 6)


class FileTests(TableCase):
    """The file topics.json."""

    def test_round_trip(self) -> None:
        """Topics and the version are restored; missing system topics are added."""
        table = self.make()
        table.update(TopicConfig("T", 2, 3, 4, order=True), {"+message.type": "FIFO"})
        table.persist()
        again = self.make(brokerName="broker-b")
        again.load()
        self.assertEqual(again.get("T"), table.get("T"))
        self.assertEqual(again.data_version, table.data_version)
        self.assertIn("broker-b", again.table)
        self.assertIn("broker-a", again.table)

    def test_rows_are_written_as_the_whole_would_be(self) -> None:
        """Only changed rows are encoded again."""
        table = self.make()
        table.persist()
        table.update(TopicConfig("T", 2, 3, 4), {"+message.type": "FIFO"})
        table.persist()
        table.update(TopicConfig("T", 5), {})
        table.create_in_send("New", "TBW102", "peer", 4, 0)
        table.delete("SELF_TEST_TOPIC")
        table.persist()
        whole = TopicConfigSerializeWrapper(table.table, table.data_version)
        self.assertEqual(self.disk.read_file(PATH), whole.encode_pretty())

    def test_compacted_by_another_broker(self) -> None:
        """Such a topic is loaded unchanged, and a log line says that nothing compacts it."""
        self.write('{"topicConfigTable":{"t":{"topicName":"t","attributes":'
                   '{"cleanup.policy":"COMPACTION"}},"u":{"topicName":"u"}}}')
        table = self.make()
        with capturedLogs() as events:
            table.load()
        config = table.get("t")
        assert config is not None
        self.assertEqual(config.attributes, {"cleanup.policy": "COMPACTION"})
        self.assertEqual([formatEvent(event) for event in events], [
            "cleanup.policy=COMPACTION of 1 topics is not supported here: their messages are "
            "removed by age"])

    def test_what_cannot_be_topics(self) -> None:
        """A missing table or topic, or an invalid name, is damage, so the backup is used."""
        topic = '{"topicName":"%s","readQueueNums":1,"writeQueueNums":1,"perm":6}'
        self.write('{"topicConfigTable":{"t1":%s}}' % (topic % "t1"))
        self.disk.write_file(PATH + ".bak", self.disk.read_file(PATH))
        for table in ("null", '{"t1":null}', '{"../../../esc":%s}' % (topic % "../../../esc"),
                      '{"a":%s}' % (topic % "b")):
            self.write(f'{{"topicConfigTable":{table}}}')
            again = self.make()
            again.load()
            self.assertIn("t1", again.table, msg=table)
            self.assertNotIn("../../../esc", again.table)
        self.disk.remove(PATH + ".bak")
        self.assertRaises(StoreDamaged, self.make().load)

    def test_file_is_standard_json(self) -> None:
        """Any tool can read the file."""
        table = self.make()
        table.persist()
        saved = json.loads(self.disk.read_file(PATH))
        self.assertEqual(saved["topicConfigTable"]["TBW102"]["readQueueNums"], 8)
        self.assertEqual(saved["dataVersion"]["timestamp"], NOW_MS)

    def test_apaches_files(self) -> None:
        """Files of Apache's brokers are read completely."""
        for version in ("4.9.4", "5.3.3"):
            text = (GOLDEN / version / "topics.json").read_text()
            self.write(text)
            table = self.make()
            table.load()
            saved = json.loads(text)
            self.assertGreaterEqual(len(saved["topicConfigTable"]), 10)
            for name, fields in saved["topicConfigTable"].items():
                config = table.table[name]
                self.assertEqual(
                    (config.read_queue_nums, config.write_queue_nums, config.perm, config.order),
                    (fields["readQueueNums"], fields["writeQueueNums"], fields["perm"],
                     fields["order"]), name)
            self.assertEqual(table.data_version.counter, saved["dataVersion"]["counter"])

    def test_a_file_that_is_no_table_stops_the_start_and_is_named(self) -> None:
        """A file that is not a table stops the start, and the error names it."""
        self.write('{"topicConfigTable":{"T":{"topicName":"T","perm":"x"}}}')
        error = self.assertRaises(StoreDamaged, self.make().load)
        self.assertIn(PATH, str(error))
