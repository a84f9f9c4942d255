"""The topics and groups of light queues, as clients see them."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from twistmq.protocol.json_dialect import decode as decode_json
from twistmq.protocol.properties import INNER_MULTI_DISPATCH

ON = {"enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": "3"}
LIGHT = "%LMQ%a"
OFFSETS = "/store/config/lmqConsumerOffset.json"


class LightTopicTests(SynchronousTestCase):
    """A broker with both switches on."""

    def setUp(self) -> None:
        self.box = KernelBox([], ON)
        self.addCleanup(self.box.stop)

    def send(self, names: str, topic: str = "Parent") -> RemotingCommand:
        """Send a message that names light queues."""
        return self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header(
            topic, self.box.now_ms, properties={INNER_MULTI_DISPATCH: names} if names else {}),
            b"body")

    def pull(self, topic: str, offset: int = 0, group: str = "%LMQ%g") -> RemotingCommand:
        """Send a pull."""
        return self.box.ask(RequestCode.PULL_MESSAGE, pull_header(topic, offset, group=group))

    def test_the_topic_needs_no_configuration(self) -> None:
        """Neither the topic nor the group needs a configuration, and none is created."""
        for _ in range(3):
            self.assertEqual(self.send(f"{LIGHT},%LMQ%b").code, ResponseCode.SUCCESS)
        reply = self.pull(LIGHT, 1)
        self.assertEqual([each.queue_offset for each in records_of(reply.body)], [1, 2])
        reply = self.box.ask(RequestCode.GET_MAX_OFFSET,
                             GetMaxOffsetRequestHeader(topic="%LMQ%b", queue_id=0))
        self.assertEqual(reply.header(GetMaxOffsetResponseHeader).offset, 3)
        self.assertNotIn(LIGHT, self.box.kernel.topic_config.table)
        self.assertNotIn("%LMQ%g", self.box.kernel.subscription_group.table)

    def test_a_pull_waits_for_a_light_queue(self) -> None:
        """It is woken by a message of another topic."""
        header = pull_header(LIGHT, 0, group="%LMQ%g")
        header.sys_flag |= 2
        header.suspend_timeout_millis = 15_000
        self.assertIsNone(self.box.send(self.box.peer(), RequestCode.PULL_MESSAGE, header))
        self.assertEqual(self.box.kernel.pull_hold.count, 1)
        self.send(LIGHT)
        self.assertEqual(self.box.kernel.pull_hold.count, 0)

    def test_too_many_light_queues_are_refused_in_apaches_words(self) -> None:
        """The text is Apache's."""
        self.assertEqual(self.send("%LMQ%a,%LMQ%b,%LMQ%c").code, ResponseCode.SUCCESS)
        reply = self.send("%LMQ%d")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]", reply.remark or "")
        reply = self.send("no_prefix")
        self.assertEqual(reply.code, ResponseCode.MESSAGE_ILLEGAL)

    def test_offsets_of_light_groups_have_their_own_file(self) -> None:
        """Offsets of light groups are in a separate file, and are loaded at a start."""
        self.send(LIGHT)
        self.pull("Parent", group="plain")
        for group, topic in (("%LMQ%g", LIGHT), ("plain", LIGHT), ("plain", "Parent")):
            reply = self.box.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
                    consumer_group=group, topic=topic, queue_id=0, commit_offset=1))
            self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        self.box.kernel.consumer_offset.persist()
        saved = decode_json(self.box.disk.read_file(OFFSETS))
        self.assertEqual(saved["lmqOffsetTable"], {f"{LIGHT}@%LMQ%g": 1})
        self.assertEqual(set(saved["offsetTable"]), {f"{LIGHT}@plain", "Parent@plain"})
        table = self.box.kernel.consumer_offset
        table.table.clear()
        table.load()
        reply = self.box.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(
                consumer_group="%LMQ%g", topic=LIGHT, queue_id=0))
        self.assertEqual(reply.header(QueryConsumerOffsetResponseHeader).offset, 1)

    def test_names_of_nothing(self) -> None:
        """Nothing is kept for a light queue without messages, or for a name that is too long."""
        self.send(LIGHT)
        for topic, group in (("%LMQ%none", "%LMQ%g"), ("%LMQ%" + "t" * 300, "%LMQ%g"),
                             (LIGHT, "%LMQ%" + "g" * 300)):
            self.pull(topic, group=group)
            reply = self.box.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
                    consumer_group=group, topic=topic, queue_id=0, commit_offset=0))
            self.assertNotEqual(reply.code, ResponseCode.SUCCESS)
        table = self.box.kernel.consumer_offset
        self.assertEqual((table.table, list(table.last_pulls())), ({}, []))

    def test_offsets_from_before(self) -> None:
        """The offsets of consumerOffset.json are used as long as the other file does not exist."""
        self.box.disk.make_directory("/store/config")
        self.box.disk.write_file("/store/config/consumerOffset.json",
                                 b'{"offsetTable":{"T@g":{0:7}}}')
        table = self.box.kernel.consumer_offset
        table.load()
        self.assertEqual(table.query("g", "T", 0), 7)

    def test_statistics_are_together(self) -> None:
        """Thousands of light topics have one row."""
        self.send("%LMQ%a,%LMQ%b")
        for topic in (LIGHT, "%LMQ%b"):
            self.pull(topic)
        stats = self.box.kernel.stats
        self.assertEqual(stats.sums("GROUP_GET", "%LMQ%", "%LMQ%").count, 2)

    def test_updates_are_ignored(self) -> None:
        """A light topic cannot be changed."""
        self.box.kernel.topic_config.update(TopicConfig(LIGHT, 8, 8, 6), {})
        self.box.kernel.subscription_group.update(SubscriptionGroupConfig("%LMQ%g"), {})
        self.assertNotIn(LIGHT, self.box.kernel.topic_config.table)
        self.assertNotIn("%LMQ%g", self.box.kernel.subscription_group.table)


class SwitchedOffTests(SynchronousTestCase):
    """Brokers with the default settings."""

    def test_nothing_is_known_of_light_topics(self) -> None:
        """A pull is refused, and the property is one like others."""
        box = KernelBox()
        self.addCleanup(box.stop)
        reply = box.ask(RequestCode.SEND_MESSAGE_V2, send_header(
            "Parent", box.now_ms, properties={INNER_MULTI_DISPATCH: LIGHT}), b"body")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        reply = box.ask(RequestCode.PULL_MESSAGE, pull_header(LIGHT, 0))
        self.assertEqual(reply.code, ResponseCode.TOPIC_NOT_EXIST)
        self.assertIsNone(box.kernel.store.queues.find(LIGHT, 0))
