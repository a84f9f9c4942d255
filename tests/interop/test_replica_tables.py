"""The tables of a master and a slave, one of them Apache's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.interop.clients import JavaTestCase
from tests.interop.peer import Peer
from tests.plugins.ha.pair import LOCAL, LoneBroker, lone_broker, wait_until, within
from twistmq.broker.testing import RawClient, RunningBroker, running_broker
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from twistmq.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
)

#: A Java master's change is on our slave after this time, s.
WITHIN_SECONDS = 5.0
#: A Java slave of 5.3.3 copies its first tables after more than a minute.
JAVA_SECONDS = 100.0


class JavaMasterTests(JavaTestCase):
    """A slave of ours has the tables of a master 5.3.3."""

    #: Topic attributes, which 4.9.4 does not have.
    attributes: str | None = "+message.type=FIFO"

    def setUp(self) -> None:
        super().setUp()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.peer = self.start_apache(settings={"brokerIP2": "127.0.0.1"})
        self.master = self.stack.enter_context(RawClient(f"127.0.0.1:{self.peer.broker_port}"))

    def start_slave(self) -> LoneBroker:
        return self.stack.enter_context(lone_broker(self.folder / "slave", {
            "brokerName": "broker-peer", "namesrvAddr": self.peer.namesrv_address,
            "brokerRole": "SLAVE", "brokerId": "1", "mappedFileSizeCommitLog": str(2**30)}))

    def ask(self, code: int, header: CommandHeader | None = None, body: bytes = b"") -> bytes:
        reply = self.master.request(code, header, body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return reply.body

    def is_same(self, slave: LoneBroker) -> bool:
        """Whether topics and groups of the slave are the master's, with their versions."""
        topics = TopicConfigSerializeWrapper.decode_reply(
            self.ask(RequestCode.GET_ALL_TOPIC_CONFIG))
        groups = SubscriptionGroupWrapper.decode_reply(
            self.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        ours, our_groups = slave.kernel.topic_config, slave.kernel.subscription_group
        return (ours.data_version == topics.data_version
                and our_groups.data_version == groups.data_version
                and topics.topic_config_table.items() <= ours.table.items()
                and groups.subscription_group_table.items() <= our_groups.table.items())

    def has_more(self, slave: LoneBroker) -> bool:
        """Whether static topics and request modes of the slave are the master's."""
        with slave.client() as client:
            mappings = [
                (tables.topic_queue_mapping_detail_map, tables.mapping_data_version)
                for tables in (TopicConfigSerializeWrapper.decode_reply(body) for body in (
                    self.ask(RequestCode.GET_ALL_TOPIC_CONFIG),
                    client.request(RequestCode.GET_ALL_TOPIC_CONFIG).body))]
            modes = [json.loads(body) for body in (
                self.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE),
                client.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).body)]
        return mappings[0] == mappings[1] and modes[0] == modes[1]

    def change_more(self, slave: LoneBroker) -> None:
        """A static topic and a request mode are created; the topic is deleted."""
        name = "broker-peer"
        self.ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, CreateTopicRequestHeader(
            topic="S", default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
            topic_filter_type="SINGLE_TAG"), TopicQueueMappingDetail(
                topic="S", total_queues=2, bname=name, epoch=9, hosted_queues={
                    number: [LogicQueueMappingItem(0, number, name, 0)] for number in range(2)},
            ).encode())
        self.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps({
            "topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3}).encode())

        def has(topic: str) -> bool:
            with slave.client() as client:
                reply = client.request(RequestCode.GET_ALL_TOPIC_CONFIG)
                modes = client.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).body
            tables = TopicConfigSerializeWrapper.decode_reply(reply.body)
            return topic in (tables.topic_queue_mapping_detail_map or {}) and (
                b'"popShareQueueNum":3' in modes)

        within(WITHIN_SECONDS, lambda: has("S") and self.has_more(slave),
               "the mapping and the mode")
        self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="S"))
        within(WITHIN_SECONDS, lambda: not has("S") and self.has_more(slave),
               "the mapping is deleted")

    def test_topics_and_groups_follow_within_five_seconds(self) -> None:
        """Rows that are there, are created, and are deleted."""
        slave = self.start_slave()
        within(WITHIN_SECONDS, lambda: self.is_same(slave), "the first copy")
        self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic="T", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG", attributes=self.attributes))
        self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                 SubscriptionGroupConfig("g", retry_max_times=3).encode())
        within(WITHIN_SECONDS, lambda: (
            "T" in slave.kernel.topic_config.table and self.is_same(slave)), "what was created")
        self.assertEqual(slave.kernel.subscription_group.table["g"].retry_max_times, 3)
        self.change_more(slave)
        self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
        within(WITHIN_SECONDS, lambda: (
            "T" not in slave.kernel.topic_config.table and self.is_same(slave)), "what was deleted")


class OldJavaMasterTests(JavaMasterTests):
    """The same of a master 4.9.4, which lacks some of the requests."""

    version = "4.9.4"
    attributes = None

    def change_more(self, slave: LoneBroker) -> None:
        """The version has neither static topics nor request modes."""


class JavaSlaveTests(JavaTestCase):
    """A slave 5.3.3 of Apache's has the tables of our master."""

    #: Files of tables, below the store's config, with words of what a slave has copied.
    saved_words: Mapping[str, str] = {
        "topics.json": '"T"', "subscriptionGroup.json": '"g"', "consumerOffset.json": "T@g",
        "delayOffset.json": "1:", "messageRequestMode.json": "popShareQueueNum",
        "timermetrics": "Timed"}

    def start_slave(self, master_name: str, namesrv: str, file_size: int) -> Peer:
        return self.start_apache(with_namesrv=False, namesrv_address=namesrv, with_log=True,
                                 settings={
            "brokerName": master_name, "brokerIP2": "127.0.0.1", "brokerRole": "SLAVE",
            "brokerId": "1", "mappedFileSizeCommitLog": str(file_size)})

    def saved(self, path: Path) -> str:
        return path.read_text() if path.exists() else ""

    def test_it_gets_the_body_of_every_table(self) -> None:
        """All are in its files, and it logs no error."""
        with running_broker({**LOCAL, "mappedFileSizeCommitLog": str(2**20)}) as master:
            self.change(master)
            kernel = master.kernel
            peer = self.start_slave(kernel.broker_name, master.namesrv_address, 2**20)
            config = peer.home / "store" / "config"
            for name, word in self.saved_words.items():
                wait_until(lambda name=name, word=word: word in self.saved(config / name),
                           f"the Java slave has {name}", JAVA_SECONDS)
            topics = json.loads(self.saved(config / "topics.json"))["topicConfigTable"]
            self.assertLessEqual(
                master.call(lambda: set(kernel.topic_config.table)), set(topics))
            log = self.saved(peer.home / "broker.log")
        self.assertIn("WARN", log)
        self.assertEqual([line for line in log.splitlines()
                          if line.startswith("ERROR") or "Exception" in line], [])

    def change(self, master: RunningBroker) -> None:
        """Give a master of ours something for each table."""
        kernel = master.kernel

        def rows() -> None:
            kernel.topic_config.update(TopicConfig("T", 4, 4), {})
            kernel.subscription_group.update(SubscriptionGroupConfig("g"), {})
            kernel.consumer_offset.commit("peer", "g", "T", 0, 1)

        master.call(rows)
        with master.client() as client:
            client.send("T", b"x")
            client.send("T", b"x", properties={"DELAY": "1"})
            client.send("Timed", b"x", properties={"TIMER_DELAY_SEC": "600"})
            self.assertEqual(client.request(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps({
                "topic": "T", "consumerGroup": "g", "mode": "POP",
                "popShareQueueNum": 0}).encode()).code, ResponseCode.SUCCESS)


class OldJavaSlaveTests(JavaSlaveTests):
    """The same of a slave 4.9.4, which asks for fewer tables."""

    version = "4.9.4"
    saved_words: Mapping[str, str] = {
        name: JavaSlaveTests.saved_words[name] for name in (
            "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")}
