"""A slave's copies of its master's tables."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import LogLevel, capturedLogs, formatEvent

from tests.kernel_case import run_task
from tests.plugins.ha.group_case import COPY, MASTER, GroupCase
from twistmq.plugins import ha, pop, timer
from twistmq.plugins.replica.kernel_tables import offsets_of
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from twistmq.plugins.static_topic.plugin import Plugin as StaticTopicPlugin
from twistmq.plugins.timer.checkpoint import TimerCheckpoint
from twistmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    LmqConsumerOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingTimeout
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

VIP = "127.0.0.1:10909"


class CopyTests(GroupCase):
    """A change on the master is on the slave within five seconds."""

    def offsets(self) -> dict[str, dict[int, int]]:
        return self.slave.kernel.consumer_offset.table

    def commit(self, offset: int, topic: str = "T", queue_id: int = 0) -> None:
        self.master.kernel.consumer_offset.commit("peer", "g", topic, queue_id, offset)

    def lines(self, events: list[Any]) -> list[str]:
        """Return the log lines of the copies above the level debug."""
        return [formatEvent(event) for event in events
                if event["log_level"] > LogLevel.debug and "replica" in event["log_namespace"]]

    def test_topics_groups_and_their_versions(self) -> None:
        """A row is created, changed and deleted; queues of a deleted topic go as well."""
        theirs = self.master.kernel
        ours = self.slave.kernel
        theirs.topic_config.update(TopicConfig("T", 4, 4), {})
        theirs.subscription_group.update(SubscriptionGroupConfig("g", retry_max_times=3), {})
        theirs.subscription_group.forbid("g", "T", 2, forbidden=True)
        self.send()
        self.copy_log()
        self.pass_time()
        theirs.topic_config.update(TopicConfig("T", 8, 8), {"+message.type": "FIFO"})
        self.pass_time()
        for name in ("topic_config", "subscription_group"):
            our, their = getattr(ours, name), getattr(theirs, name)
            self.assertEqual((our.table, our.data_version), (their.table, their.data_version))
        self.assertEqual(ours.subscription_group.forbidden, {"g": {"T": 4}})
        self.assertIn("T", ours.store.queues.ids_by_topic())
        theirs.tables.delete_topic("T")
        theirs.tables.delete_group("g", clean_offset=False)
        self.pass_time()
        self.assertNotIn("T", ours.topic_config.table)
        self.assertNotIn("T", ours.store.queues.ids_by_topic())
        self.assertNotIn("g", ours.subscription_group.table)
        self.assertEqual(ours.topic_config.data_version, theirs.topic_config.data_version)

    def test_copies_are_in_files(self) -> None:
        """A slave that is killed has the topics, groups and offsets that it copied."""
        theirs = self.master.kernel
        theirs.topic_config.update(TopicConfig("T", 4, 4), {})
        theirs.subscription_group.update(SubscriptionGroupConfig("g", retry_max_times=3), {})
        theirs.subscription_group.forbid("g", "T", 2, forbidden=True)
        self.send()
        self.commit(1)
        self.copy_log()
        self.pass_time()
        # The offsets wait for the next save, as on a master.
        run_task(self.slave, "save consumer offsets")
        self.slave.kernel.store.close()
        self.slave_disk.forget_locks()
        again = self.start_slave()
        self.addCleanup(again.stop)
        kernel = again.kernel
        self.assertEqual(kernel.topic_config.table["T"], theirs.topic_config.table["T"])
        self.assertEqual(kernel.subscription_group.table["g"], theirs.subscription_group.table["g"])
        self.assertEqual(kernel.subscription_group.forbidden, {"g": {"T": 4}})
        self.assertEqual(kernel.topic_config.data_version, theirs.topic_config.data_version)
        self.assertEqual(kernel.consumer_offset.query("g", "T", 0), 1)

    def test_a_topic_that_is_seen_deleted_and_made_again(self) -> None:
        """The slave deletes its queues, and the new messages begin at 0 there as well."""
        for body in (b"old 0", b"old 1"):
            self.send(body=body)
        self.copy_log()
        self.pass_time()
        self.master.kernel.tables.delete_topic("T")
        self.pass_time()
        self.assertNotIn("T", self.slave.kernel.store.queues.ids_by_topic())
        self.assertNotIn("T", self.slave.kernel.topic_config.table)
        self.send(body=b"new 0")
        self.copy_log()
        self.assertEqual([each.body for each in self.slave.stored("T", 0)], [b"new 0"])
        self.pass_time()
        self.assertIn("T", self.slave.kernel.topic_config.table)
        self.assertEqual([each.body for each in self.slave.stored("T", 0)], [b"new 0"])

    def test_an_unchanged_minute_writes_no_file(self) -> None:
        """The versions of the tables do not change either."""
        self.send()
        self.commit(1)
        self.copy_log()
        self.pass_time()
        self.slave.kernel.persist()
        version = self.slave.kernel.topic_config.data_version.encode()
        written: list[str] = []
        write = self.slave_disk.write_file_atomically

        def writing(path: str, data: bytes, **options: Any) -> None:
            written.append(path)
            write(path, data, **options)

        self.slave_disk.write_file_atomically = writing  # type: ignore[assignment,method-assign]
        self.pass_time(60_000)
        self.slave.kernel.persist()
        self.assertEqual(written, [])
        self.assertEqual(self.slave.kernel.topic_config.data_version.encode(), version)

    def test_a_change_on_the_slave_is_undone(self) -> None:
        """A slave takes the tables of its master again."""
        self.pass_time()
        self.slave.kernel.topic_config.update(TopicConfig("Mine", 4, 4), {})
        self.slave.kernel.subscription_group.update(SubscriptionGroupConfig("mine"), {})
        self.pass_time()
        self.assertNotIn("Mine", self.slave.kernel.topic_config.table)
        self.assertNotIn("mine", self.slave.kernel.subscription_group.table)

    def test_only_a_topic_that_the_master_had_counts_as_deleted(self) -> None:
        """The slave removes one that a client made there, but its master may make it later."""
        topics = self.slave.kernel.topic_config
        self.send("Deleted")
        self.pass_time()
        topics.update(TopicConfig("Mine", 4, 4), {})
        self.master.kernel.tables.delete_topic("Deleted")
        self.pass_time()
        end = self.master.kernel.store.commit_log.max_offset
        for topic in ("Deleted", "Mine"):
            self.assertNotIn(topic, topics.table)
            self.assertEqual(topics.is_deleted(topic, end - 1), topic == "Deleted")
        self.assertFalse(topics.is_deleted("Deleted", end))

    def test_offsets_wait_for_their_messages(self) -> None:
        """The offset of a message that the slave does not have yet would skip that message."""
        self.send()
        self.copy_log()
        self.pass_time()
        self.send()
        self.commit(2)
        self.pass_time()
        self.assertEqual(self.offsets(), {})
        self.copy_log()
        self.pass_time(250)
        self.assertEqual(self.offsets(), {"T@g": {0: 2}})
        self.assertEqual(self.slave.kernel.consumer_offset.data_version,
                         self.master.kernel.consumer_offset.data_version)

    def test_a_master_moves_offsets_back(self) -> None:
        """An operator has reset the offsets there."""
        for _ in range(3):
            self.send()
        self.commit(3)
        self.copy_log()
        self.pass_time()
        self.commit(1)
        self.pass_time()
        self.assertEqual(self.offsets(), {"T@g": {0: 1}})

    def test_tables_of_plugins(self) -> None:
        """The offsets of delays follow the log as well."""
        self.send(DELAY="1")
        self.copy_log()
        self.pass_time()
        body = b'{"offsetTable":{1:7}}'
        self.answers[MASTER, RequestCode.GET_ALL_DELAY_OFFSET] = RemotingCommand(0, body=body)
        self.send()
        self.pass_time()
        code = RequestCode.GET_ALL_DELAY_OFFSET
        self.assertNotIn(b"1:7", self.slave.ask(code).body)
        self.copy_log()
        self.pass_time(250)
        self.assertIn(b"1:7", self.slave.ask(code).body)

    def test_the_ports_that_are_asked(self) -> None:
        """Topics by the VIP port, others by the main port; by this one if the VIP port is shut."""
        self.pass_time(3000)
        self.assertIn((VIP, RequestCode.GET_ALL_TOPIC_CONFIG), self.asked)
        self.assertIn((MASTER, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG), self.asked)
        self.assertNotIn((MASTER, RequestCode.GET_ALL_TOPIC_CONFIG), self.asked)
        del self.servers[VIP]
        self.master.kernel.topic_config.update(TopicConfig("T", 4, 4), {})
        self.pass_time()
        self.assertIn((MASTER, RequestCode.GET_ALL_TOPIC_CONFIG), self.asked)
        self.assertIn("T", self.slave.kernel.topic_config.table)

    def test_progress_is_copied_seldom_while_the_log_stands_still(self) -> None:
        """The next message ends that at once; other tables keep their period."""
        codes = (RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_ALL_TOPIC_CONFIG)

        def asked() -> list[int]:
            counts = [[code for _, code in self.asked].count(code) for code in codes]
            self.asked.clear()
            return counts

        self.send()
        self.copy_log()
        self.pass_time(3000)
        asked()
        self.pass_time(9000)
        self.assertEqual(asked(), [36, 3])
        self.pass_time(6000)
        asked()
        self.pass_time(12_000)
        self.assertEqual(asked(), [4, 4])
        self.send()
        self.copy_log()
        self.pass_time(250)
        self.assertEqual(asked()[0], 1)
        self.pass_time(1000)
        self.assertEqual(asked()[0], 4)

    def test_requests_go_together(self) -> None:
        """No request waits for the answer to another one, except the one for the end of the log."""
        asked: list[tuple[int, Deferred[None]]] = []

        async def ask_server(
            address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
            timeout_ms: int,
        ) -> RemotingCommand:
            waiting: Deferred[None] = Deferred()
            asked.append((code, waiting))
            await waiting
            return await self.ask_server(address, code, header, body, timeout_ms=timeout_ms)

        self.slave.host.ask_server = ask_server  # type: ignore[method-assign]
        self.send()
        self.copy_log()
        run_task(self.slave, COPY)
        codes = [code for code, _ in asked]
        self.assertGreaterEqual(len(codes), 4)
        self.assertNotIn(RequestCode.GET_BROKER_RUNTIME_INFO, codes)
        for _, waiting in asked[::-1]:
            waiting.callback(None)
        self.assertEqual(len(asked), len(codes) + 1)
        self.assertNotIn("T", self.slave.kernel.topic_config.table)
        asked[-1][1].callback(None)
        self.assertIn("T", self.slave.kernel.topic_config.table)

    def test_a_table_that_an_older_master_lacks_is_said_once(self) -> None:
        """The table is requested seldom; the others are copied."""
        code = RequestCode.GET_ALL_DELAY_OFFSET
        self.answers[MASTER, code] = RemotingCommand(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=" request type 45 not supported")
        self.master.kernel.topic_config.update(TopicConfig("T", 4, 4), {})
        with capturedLogs() as events:
            self.pass_time(60_000)
        self.assertEqual(self.lines(events), [
            f"the master at {MASTER} has no delay offsets to copy (request 45)"])
        self.assertEqual(self.asked.count((MASTER, code)), 1)
        self.assertIn("T", self.slave.kernel.topic_config.table)

    def test_a_master_that_does_not_answer_is_said_once(self) -> None:
        """The copies continue when the master is back."""
        self.pass_time()
        servers = dict(self.servers)
        self.servers.clear()
        with capturedLogs() as events:
            self.pass_time(60_000)
        self.assertEqual(len(self.lines(events)), 1, self.lines(events))
        self.servers.update(servers)
        self.master.kernel.topic_config.update(TopicConfig("T", 4, 4), {})
        self.pass_time()
        self.assertIn("T", self.slave.kernel.topic_config.table)

    def test_answers_that_are_no_tables_change_nothing(self) -> None:
        """Each is logged once, and the others are copied."""
        self.pass_time()
        before = dict(self.slave.kernel.topic_config.table)
        self.answers[VIP, RequestCode.GET_ALL_TOPIC_CONFIG] = RemotingCommand(
            0, body=b'{"topicConfigTable":{"a/b":{"topicName":"a/b"}}}')
        self.answers[MASTER, RequestCode.GET_ALL_CONSUMER_OFFSET] = RemotingCommand(
            0, body=b"no table")
        self.master.kernel.subscription_group.update(SubscriptionGroupConfig("new"), {})
        with capturedLogs() as events:
            self.pass_time(30_000)
        self.assertEqual(len(self.lines(events)), 2, self.lines(events))
        self.assertEqual(self.slave.kernel.topic_config.table, before)
        self.assertIn("new", self.slave.kernel.subscription_group.table)

    def test_nothing_is_taken_of_a_master_that_lost_its_log(self) -> None:
        """Its tables may be lost too, and the slave would delete all topics."""
        self.send()
        self.copy_log()
        self.pass_time()
        self.assertIn("T", self.slave.kernel.topic_config.table)
        self.master.stop()
        self.master_disk = type(self.master_disk)()
        self.master = self.start_master()
        with capturedLogs() as events:
            self.pass_time(30_000)
        self.assertEqual(len(self.lines(events)), 1, self.lines(events))
        self.assertIn("its tables are not copied", self.lines(events)[0])
        self.assertIn("T", self.slave.kernel.topic_config.table)

    def test_a_log_whose_end_is_not_told_takes_nothing(self) -> None:
        """The row may be missing in the runtime table, or the table may not arrive."""
        for answer in (RemotingCommand(0, body=b'{"table":{}}'), RemotingTimeout("no reply")):
            self.answers[MASTER, RequestCode.GET_BROKER_RUNTIME_INFO] = answer
            self.master.kernel.topic_config.update(TopicConfig("T", 4, 4), {})
            self.pass_time()
            self.assertNotIn("T", self.slave.kernel.topic_config.table)

    def test_an_end_of_the_log_that_is_no_offset_is_one_line(self) -> None:
        """A master may report any text; the slave logs it once and copies nothing."""
        self.master.kernel.topic_config.update(TopicConfig("T", 4, 4), {})
        for text in ("x", "-1", "1" + "0" * 5000, str(1 << 70), str((1 << 62) + 1)):
            self.answers[MASTER, RequestCode.GET_BROKER_RUNTIME_INFO] = RemotingCommand(
                0, body=b'{"table":{"commitLogMaxOffset":"%s"}}' % text.encode())
            with capturedLogs() as events:
                self.pass_time(15_000)
            self.assertLessEqual(len(self.lines(events)), 1, text[:20])
            self.assertEqual(self.flushLoggedErrors(), [])
            self.assertNotIn("T", self.slave.kernel.topic_config.table)

    def test_a_promoted_broker_copies_nothing_more(self) -> None:
        """It copies the tables once more if the master can be reached, and asks no
        more as master.
        """
        self.send()
        self.commit(1)
        self.pass_time()
        self.copy_log()
        tables = self.slave.plugin(ha.Plugin).tables
        servers = dict(self.servers)
        self.servers.clear()
        self.successResultOf(tables.copy_last())
        self.assertEqual(self.offsets(), {"T@g": {0: 1}})
        self.servers.update(servers)
        self.send()
        self.copy_log()
        self.commit(2)
        # Name servers know no master between the end of the old one and the new one.
        self.slave.kernel.settings.put("ha.master", "")
        self.successResultOf(tables.copy_last())
        self.assertEqual(self.offsets(), {"T@g": {0: 2}})
        self.successResultOf(ensureDeferred(self.slave.kernel.change_role("ASYNC_MASTER", 0)))
        self.asked.clear()
        self.pass_time()
        self.assertEqual(self.asked, [])

    def test_a_broker_does_not_copy_from_itself(self) -> None:
        """A name server may still name the broker's own address."""
        self.slave.kernel.settings.put("ha.master", self.slave.kernel.broker_address)
        self.pass_time()
        self.assertEqual(self.asked, [])

    def test_ages(self) -> None:
        """Return the age of each table, since it was equal to the master's."""
        ages = self.slave.plugin(ha.Plugin).tables.ages_ms
        self.assertEqual(ages(), {})
        self.pass_time(3000)
        self.assertEqual(set(ages()), {"topics", "groups", "consumer offsets", "delay offsets"})
        self.servers.clear()
        self.pass_time(30_000)
        self.assertTrue(all(30_000 <= age <= 33_500 for age in ages().values()), ages())
        [family] = [each for each in self.slave.plugin(ha.Plugin).collect_metrics()
                    if each.name == "ha_table_age_seconds"]
        self.assertEqual(dict(family.samples),
                         {(name,): age / 1000 for name, age in ages().items()})

    def test_a_large_table_is_read_on_a_thread(self) -> None:
        """The table is in Apache's dialect, whose offsets have bare numbers as keys."""
        rows = ",".join(f'"T@group-{number}":{{0:1,1:2}}' for number in range(12_000))
        body = b'{"offsetTable":{%b}}' % rows.encode()
        self.assertGreater(len(body), 256 * 1024)
        self.answers[MASTER, RequestCode.GET_ALL_CONSUMER_OFFSET] = RemotingCommand(0, body=body)
        for _ in range(400):
            self.pass_time(250)
            self.slave.kernel.background.step()
        self.assertEqual(len(self.offsets()), 12_000)

    def test_offsets_of_light_queues(self) -> None:
        """A broker with enableLmq distinguishes them."""
        body = LmqConsumerOffsetSerializeWrapper(
            {"T@g": {1: 5}}, DataVersion(), {}, {"%LMQ%a@g": 7})
        self.assertEqual(offsets_of(body), {"T@g": {1: 5}, "%LMQ%a@g": {0: 7}})
        plain = LmqConsumerOffsetSerializeWrapper.decode(
            ConsumerOffsetSerializeWrapper({"T@g": {1: 5}}).encode())
        self.assertEqual(offsets_of(plain), {"T@g": {1: 5}})


class EveryTableTests(GroupCase):
    """The tables of the kernel and of all plugins that have one."""

    plugins = (*GroupCase.plugins, ("pop", pop.Plugin), ("static_topic", StaticTopicPlugin),
               ("timer", timer.Plugin))
    #: The requests that slaves of Apache's and ours make.
    codes = (
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS)

    def change(self) -> None:
        """Give the master something for each table."""
        theirs = self.master.kernel
        theirs.topic_config.update(TopicConfig("T", 4, 4), {})
        theirs.subscription_group.update(SubscriptionGroupConfig("g", retry_max_times=3), {})
        self.send()
        self.send(DELAY="1")
        self.send("Timed", TIMER_DELAY_SEC="600")
        theirs.consumer_offset.commit("peer", "g", "T", 0, 1)
        for code, header, body in (
            (RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps({
                "topic": "T", "consumerGroup": "g", "mode": "POP",
                "popShareQueueNum": 3}).encode()),
            (RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, CreateTopicRequestHeader(
                topic="S", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
                topic_filter_type="SINGLE_TAG"),
             TopicQueueMappingDetail(
                topic="S", total_queues=1, bname="broker-a", epoch=9, hosted_queues={
                    0: [LogicQueueMappingItem(0, 0, "broker-a", 0)]}).encode()),
        ):
            reply = self.master.ask(code, header, body)
            self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        self.master.now_ms += 2000
        for name in ("deliver delayed messages", "enter and deliver timed messages"):
            for task in self.master.kernel.periodic_tasks:
                if task.name == name:
                    task.run(self.master.now_ms)

    def test_each_table_is_answered_copied_and_kept(self) -> None:
        """A slave that is killed has them all, and answers as its master does."""
        self.change()
        self.copy_log()
        self.pass_time(12_000)
        words = (b'"T"', b'"g"', b"T@g", b'"offsetTable"', b'"popShareQueueNum":3', b"", b'"Timed"')
        for code, word in zip(self.codes, words, strict=True):
            theirs, ours = self.master.ask(code), self.slave.ask(code)
            self.assertEqual((theirs.code, ours.code), (0, 0), msg=code.name)
            self.assertIn(word, theirs.body, msg=code.name)
            if code == RequestCode.GET_TIMER_CHECK_POINT:
                # The values before the version are the progress of each broker itself.
                versions = [(each.state_version, each.timestamp, each.counter) for each in (
                    TimerCheckpoint.decode(theirs.body), TimerCheckpoint.decode(ours.body))]
                self.assertEqual(versions[0], versions[1])
                self.assertGreater(versions[0][2], 0)
            else:
                self.assertEqual(ours.body, theirs.body, msg=code.name)
        self.assertIn(b'"S":', self.slave.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
        for name in ("save consumer offsets", "save the progress of delayed messages"):
            run_task(self.slave, name)
        for name, word in (
            ("topics.json", b'"T"'), ("subscriptionGroup.json", b'"g"'),
            ("consumerOffset.json", b"T@g"), ("delayOffset.json", b"1"),
            ("messageRequestMode.json", b"popShareQueueNum"), ("topicQueueMapping.json", b'"S"'),
        ):
            self.assertIn(word, self.slave_disk.read_file(f"/store/config/{name}"), msg=name)
