"""The requests of mqadmin about topics."""

from __future__ import annotations

from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import count_put
from twistmq.broker.scheduling.scheduler import SLICE_MS
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import admin
from twistmq.protocol.bodies import (
    ConsumerData,
    GroupList,
    HeartbeatData,
    MessageQueue,
    SubscriptionData,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)


class TopicQuestionsTests(SynchronousTestCase):
    """The requests 202, 300, 305 and 351."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(self.box.stop)

    def create(self, topic: str, read_queues: int, write_queues: int) -> None:
        reply = self.box.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=read_queues,
            write_queue_nums=write_queues, perm=6, topic_filter_type="SINGLE_TAG"))
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)

    def offsets(self, topic: str) -> TopicStatsTable:
        reply = self.box.ask(RequestCode.GET_TOPIC_STATS_INFO,
                             GetTopicStatsInfoRequestHeader(topic=topic))
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return TopicStatsTable.decode(reply.body)

    def test_a_row_for_each_queue_that_can_be_read_or_written(self) -> None:
        """A row for each queue that can be read or written: bounds and the last store time."""
        self.create("T", 1, 2)
        self.box.kernel.append([message("T", queue_id=1), message("T", queue_id=1)])
        self.assertEqual(self.offsets("T").offset_table, {
            MessageQueue("T", "broker-a", 0): TopicOffset(0, 0, 0),
            MessageQueue("T", "broker-a", 1): TopicOffset(0, 2, self.box.now_ms),
        })

    def test_offsets_of_a_topic_without_queues(self) -> None:
        """The body has no rows, and can be read."""
        self.create("T", 0, 0)
        self.assertEqual(self.offsets("T"), TopicStatsTable())

    def test_messages_a_second_of_the_last_minute(self) -> None:
        """The rate is the number of messages a second in the last minute."""
        self.create("T", 1, 1)
        stats = self.box.kernel.stats
        count_put(stats, {"T": (20, 200)})
        self.box.now_ms += 10_000
        self.assertEqual(self.offsets("T").topic_put_tps, 2.0)

    def test_unknown_topic(self) -> None:
        """Both requests about one topic refuse an unknown one."""
        reply = self.box.ask(RequestCode.GET_TOPIC_STATS_INFO,
                             GetTopicStatsInfoRequestHeader(topic="no"))
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.TOPIC_NOT_EXIST, "topic[no] not exist"))
        reply = self.box.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="no"))
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker. topic: no"))

    def test_the_settings_of_one_topic(self) -> None:
        """The response has the settings of one topic as plain JSON."""
        self.create("T", 3, 4)
        reply = self.box.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="T"))
        self.assertEqual(TopicConfig.decode(reply.body), TopicConfig("T", 3, 4))
        self.assertIn(b'"topicFilterType":"SINGLE_TAG"', reply.body)

    def test_groups_that_consume_the_topic_now(self) -> None:
        """Groups that consume the topic now, and groups that ever did."""
        kernel = self.box.kernel
        kernel.consumer_offset.commit("here", "earlier", "T", 0, 5)
        kernel.consumer_offset.commit("here", "elsewhere", "U", 0, 5)
        heartbeat = HeartbeatData("client", consumer_data_set=(
            ConsumerData("now", subscription_data_set=(SubscriptionData("T"),)),))
        self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard())
        reply = self.box.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                             QueryTopicConsumeByWhoRequestHeader(topic="T"))
        self.assertEqual(GroupList.decode(reply.body).group_list, {"earlier", "now"})

    def test_system_topics(self) -> None:
        """The response has all system topics, including those named after the broker and its
        cluster.
        """
        self.create("T", 1, 1)
        reply = self.box.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        topics = TopicList.decode(reply.body).topic_list
        self.assertLessEqual(
            {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"}, topics)
        self.assertNotIn("T", topics)


class LongTopicTests(SynchronousTestCase):
    """A topic of 1024 queues, with a clock that runs."""

    def test_others_need_not_wait(self) -> None:
        """The answer is made in slices of a few milliseconds and is complete."""
        box = KernelBox([("admin", admin.Plugin)], {"mappedFileSizeCommitLog": "4194304"})
        self.addCleanup(box.stop)
        box.kernel.append([message("BenchmarkTest", queue_id=queue) for queue in range(1024)])
        task, = (task for task in box.kernel.periodic_tasks
                 if task.name == "continue long work")
        calls = count()
        # A row takes a tenth of a millisecond.
        box.clock = lambda: box.now_ms + next(calls) // 10
        peer = box.peer()
        self.assertIsNone(box.send(peer, RequestCode.GET_TOPIC_STATS_INFO,
                                   GetTopicStatsInfoRequestHeader(topic="BenchmarkTest")))
        slices = 1
        while not peer.written:
            before_ms = box.clock()
            task.run(before_ms)
            slices += 1
            self.assertLessEqual(box.clock() - before_ms, SLICE_MS + 1)
        self.assertGreater(slices, 10)
        reply, = box.late_replies(peer)
        table = TopicStatsTable.decode(reply.body).offset_table
        self.assertEqual(len(table), 1024)
        self.assertEqual({offset.max_offset for offset in table.values()}, {1})
        self.assertEqual(peer.held_bytes, 0)
