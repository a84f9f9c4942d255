"""The progress of groups, and its correction and copy."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import LONG_MAX
from twistmq.broker.testing.disk import MemoryFile
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import admin
from twistmq.protocol.bodies import (
    ConsumerData,
    ConsumeStatsList,
    GroupList,
    HeartbeatData,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    SubscriptionData,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.admin import GetConsumeStatsInBrokerHeader
from twistmq.protocol.headers.offset import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
)
from twistmq.protocol.headers.topic import QueryConsumeTimeSpanRequestHeader


class ProgressCase(SynchronousTestCase):
    """A broker with topics T and U of two queues, and a group that is part of the way."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel
        for topic in ("T", "U"):
            self.kernel.topic_config.update(TopicConfig(topic, 2, 2), {})
        self.kernel.subscription_group.find("g")
        self.begin_ms = self.box.now_ms
        for _ in range(3):
            self.box.now_ms += 1000
            self.kernel.append([message("T")])

    def commit(self, group: str, offset: int, topic: str = "T", queue_id: int = 0) -> None:
        self.kernel.consumer_offset.commit("test", group, topic, queue_id, offset)

    def subscribe(self, group: str, topic: str) -> None:
        data = ConsumerData(group, subscription_data_set=(SubscriptionData(topic),))
        self.box.ask(RequestCode.HEART_BEAT,
                     body=HeartbeatData("client", (), (data,)).encode_standard())


class TimeSpanTests(ProgressCase):
    """The request 303."""

    def spans(self, group: str = "g") -> list[QueueTimeSpan]:
        reply = self.box.ask(RequestCode.QUERY_CONSUME_TIME_SPAN,
                             QueryConsumeTimeSpanRequestHeader(topic="T", group=group))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        return QueryConsumeTimeSpanBody.decode(reply.body).consume_time_span_set

    def test_part_of_the_way(self) -> None:
        """First, last and consumed message, and how long the next one has waited."""
        self.commit("g", 1)
        self.box.now_ms += 500
        queue, empty = self.spans()
        self.assertEqual(queue, QueueTimeSpan(
            MessageQueue("T", "broker-a", 0), self.begin_ms + 1000, self.begin_ms + 3000,
            self.begin_ms + 1000, 1500).with_letters())
        self.assertEqual(empty, QueueTimeSpan(
            MessageQueue("T", "broker-a", 1), -1, -1, -1, 0).with_letters())

    def test_times_in_letters(self) -> None:
        """The response also has the times as texts, in the local time zone."""
        queue, _ = self.spans()
        first = datetime.fromtimestamp((self.begin_ms + 1000) // 1000)
        self.assertEqual(queue.min_time_stamp_str, f"{first:%Y-%m-%d#%H:%M:%S}:000")
        self.assertEqual(queue.consume_time_stamp_str, queue.min_time_stamp_str)
        self.assertNotEqual(queue.max_time_stamp_str, queue.min_time_stamp_str)

    def test_a_group_that_consumed_everything_has_no_span(self) -> None:
        """A group that has consumed everything has no waiting message."""
        self.commit("g", 3)
        queue, _ = self.spans()
        self.assertEqual((queue.consume_time_stamp, queue.delay_time), (self.begin_ms + 3000, 0))

    def test_not_begun(self) -> None:
        """A group that has consumed nothing is at the first message."""
        queue, _ = self.spans("other")
        self.assertEqual((queue.consume_time_stamp, queue.delay_time), (self.begin_ms + 1000, 2000))

    def test_unknown_topic(self) -> None:
        """The refusal names the topic."""
        reply = self.box.ask(RequestCode.QUERY_CONSUME_TIME_SPAN,
                             QueryConsumeTimeSpanRequestHeader(topic="nope", group="g"))
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.TOPIC_NOT_EXIST, "topic[nope] not exist"))


class CorrectionTests(ProgressCase):
    """The request 308."""

    def setUp(self) -> None:
        super().setUp()
        self.commit("slow", 1)
        self.commit("fast", 3)
        self.commit("fast", 0, queue_id=1)

    def slowest(self, compare: str, left_out: str | None = None) -> dict[int, int]:
        reply = self.box.ask(RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetHeader(
            topic="T", compare_group=compare, filter_groups=left_out))
        return QueryCorrectionOffsetBody.decode(reply.body).correction_offsets

    def test_the_smallest_offset_of_any_group_is_returned(self) -> None:
        """The smallest offset of any group, in each queue."""
        self.assertEqual(self.slowest("fast"), {0: 1, 1: 0})

    def test_compared_group_is_behind(self) -> None:
        """A queue in which the compared group is behind all others has the greatest number."""
        self.assertEqual(self.slowest("slow", "slow"), {0: LONG_MAX, 1: 0})

    def test_groups_left_out(self) -> None:
        """The excluded groups do not count, and the request changes no offsets."""
        self.assertEqual(self.slowest("fast", "slow,other"), {0: 3, 1: 0})
        self.assertEqual(self.kernel.consumer_offset.query("slow", "T", 0), 1)
        self.assertEqual(self.slowest("slow", "fast"), {0: 1})


class CloneTests(ProgressCase):
    """The request 314."""

    def setUp(self) -> None:
        super().setUp()
        self.commit("g", 2)
        self.commit("g", 5, "U", 1)

    def clone(self, topic: str | None = None, *, to: str = "h", offline: bool = True
              ) -> RemotingCommand:
        return self.box.ask(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader(
            src_group="g", dest_group=to, topic=topic, offline=offline))

    def offsets(self, group: str) -> dict[str, dict[int, int]]:
        table = self.kernel.consumer_offset
        return {topic: table.offsets_in(group, topic) for topic in table.topics_of_group(group)}

    def test_one_topic(self) -> None:
        """All queues of the topic are copied, and the offsets of the other group are replaced."""
        self.commit("h", 9, queue_id=1)
        self.assertEqual(self.clone("T").code, ResponseCode.SUCCESS)
        self.assertEqual(self.offsets("h"), {"T": {0: 2}})
        self.commit("g", 3)
        self.assertEqual(self.offsets("h"), {"T": {0: 2}})

    def test_all_topics(self) -> None:
        """Without a topic the offsets in all existing topics are copied."""
        self.commit("g", 7, "Gone")
        self.clone(" ")
        self.assertEqual(self.offsets("h"), {"T": {0: 2}, "U": {1: 5}})

    def test_group_that_is_online(self) -> None:
        """For a group that is online only its subscriptions are copied, unless it counts as
        offline.
        """
        self.subscribe("g", "U")
        self.clone(offline=False)
        self.assertEqual(self.offsets("h"), {"U": {1: 5}})
        self.clone(offline=True)
        self.assertEqual(self.offsets("h"), {"T": {0: 2}, "U": {1: 5}})

    def test_it_is_saved(self) -> None:
        """The copy survives a restart."""
        self.clone("T")
        self.kernel.persist()
        box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(box.stop)
        table = box.kernel.consumer_offset
        saved = self.box.disk.read_file("/store/config/consumerOffset.json")
        box.disk.make_directory("/store/config")
        box.disk.write_file_atomically("/store/config/consumerOffset.json", saved)
        table.load()
        self.assertEqual(table.query("h", "T", 0), 2)

    def test_group_that_cannot_be(self) -> None:
        """Nothing is stored for an invalid group name."""
        reply = self.clone("T", to="a*b")
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group a*b not exist!"))
        self.assertEqual(self.offsets("a*b"), {})


class AllProgressTests(ProgressCase):
    """The request 317."""

    def all(
        self, *, is_order: bool = False, with_times: bool | None = None, topic: str | None = None,
        body: bytes = b"",
    ) -> ConsumeStatsList:
        reply = self.box.ask(
            RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(
                is_order=is_order, with_times=with_times, topic=topic), body)
        return ConsumeStatsList.decode(reply.body)

    def offsets(self, answer: ConsumeStatsList, group: str) -> dict[tuple[str, int], OffsetWrapper]:
        found, = (row[group] for row in answer.consume_stats_list if group in row)
        return {(queue.topic, queue.queue_id): offset
                for stats in found for queue, offset in stats.offset_table.items()}

    def test_every_group_each_of_its_topics(self) -> None:
        """The response has each queue of each topic of each group, and the sum of what remains."""
        self.commit("g", 1)
        self.kernel.consumer_offset.pulled("g", "T", 0, 2)
        answer = self.all()
        self.assertEqual(self.offsets(answer, "g"), {
            ("T", 0): OffsetWrapper(3, 1, 2, self.begin_ms + 1000), ("T", 1): OffsetWrapper()})
        self.assertEqual(self.offsets(answer, "TOOLS_CONSUMER"), {})
        self.assertEqual((answer.total_diff, answer.total_inflight_diff, answer.broker_addr),
                         (2, 1, "127.0.0.1:10911"))

    def test_the_text_is_that_of_the_general_writer(self) -> None:
        """Names, numbers and their order are written as the writer of bodies does, also of resets.

        Plain groups, a rate, a topic with a percent sign, a queue without an offset, and a reset.
        """
        self.kernel.topic_config.update(TopicConfig("%RETRY%g", 3, 3), {})
        self.commit("g", 2)
        self.commit("g", 7, "%RETRY%g", 1)
        self.kernel.consumer_offset.pulled("g", "T", 0, 3)
        self.kernel.consumer_offset.reset("g", "T", 0, 1)
        for _ in range(3):
            self.kernel.stats.messages_got("g", "T", 600, 10)
            self.box.now_ms += 60_000
            self.kernel.stats.sample(self.kernel.steady.now_ms())
        body = self.box.ask(RequestCode.GET_BROKER_CONSUME_STATS,
                            GetConsumeStatsInBrokerHeader()).body
        answer = ConsumeStatsList.decode(body)
        self.assertEqual(body, answer.encode())
        self.assertEqual(self.offsets(answer, "g")["T", 0],
                         OffsetWrapper(3, 1, 3, self.begin_ms + 1000))
        self.assertIn(b'"consumeTps":0.0', body)

    def test_times_are_left_out_on_request(self) -> None:
        """They are 0 for a list that does not show them; all else stays the same."""
        self.commit("g", 1)
        answer = self.all(with_times=False)
        self.assertEqual(self.offsets(answer, "g")["T", 0], OffsetWrapper(3, 1, 1, 0))
        self.assertEqual(answer.total_diff, 2)

    def test_groups_and_a_topic_are_selected_on_request(self) -> None:
        """The others are left out of the rows and the sums, and their times are not read."""
        for group in ("g", "h"):
            self.kernel.subscription_group.find(group)
            for topic in ("T", "U"):
                self.commit(group, 1, topic)
        with patch.object(MemoryFile, "read_at", autospec=True,
                          side_effect=MemoryFile.read_at) as read_at:
            answer = self.all(topic="T", body=GroupList({"h", "unknown"}).encode_standard())
        self.assertEqual([*answer.consume_stats_list[0]], ["h"])
        self.assertEqual(len(answer.consume_stats_list), 1)
        self.assertEqual(self.offsets(answer, "h"), {
            ("T", 0): OffsetWrapper(3, 1, 1, self.begin_ms + 1000), ("T", 1): OffsetWrapper()})
        self.assertEqual(answer.total_diff, 2)
        self.assertEqual(read_at.call_count, 1)
        self.assertEqual(self.all(body=GroupList().encode_standard()).consume_stats_list, [])

    def test_a_list_of_groups_that_is_none(self) -> None:
        """The refusal names the body."""
        reply = self.box.ask(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(),
                             b"nonsense")
        self.assertNotEqual(reply.code, ResponseCode.SUCCESS)
        self.assertIn("GroupList", reply.remark or "")

    def test_many_groups_are_answered_in_slices(self) -> None:
        """Many groups are encoded in slices, so that other clients are served."""
        for number in range(300):
            self.kernel.subscription_group.find(f"g{number}")
            self.commit(f"g{number}", 1)
        ticks = count(self.box.now_ms)
        self.box.clock = lambda: next(ticks)
        peer = self.box.peer()
        self.assertIsNone(self.box.send(peer, RequestCode.GET_BROKER_CONSUME_STATS,
                                        GetConsumeStatsInBrokerHeader()))
        task, = (task for task in self.kernel.periodic_tasks
                 if task.name == "continue long work")
        steps = 0
        while not peer.written:
            task.run(0)
            steps += 1
        self.assertGreater(steps, 20)
        answer = ConsumeStatsList.decode(self.box.late_replies(peer)[0].body)
        self.assertEqual(answer.total_diff, 600)

    def test_topics_nobody_subscribes_to_any_more(self) -> None:
        """For a group that is online only its subscriptions count."""
        self.commit("g", 1)
        self.commit("g", 0, "U")
        self.subscribe("g", "U")
        answer = self.all()
        self.assertEqual(self.offsets(answer, "g").keys(), {("U", 0), ("U", 1)})
        self.assertEqual(answer.total_diff, 0)

    def test_ordered_topics(self) -> None:
        """Only ordered topics are returned if the request asks for them."""
        self.kernel.topic_config.update(TopicConfig("O", 1, 1, order=True), {})
        self.commit("g", 1)
        self.commit("g", 0, "O")
        self.assertEqual(self.offsets(self.all(is_order=True), "g").keys(), {("O", 0)})

    def test_topic_that_is_gone(self) -> None:
        """Offsets in deleted topics do not count."""
        self.commit("g", 4, "Gone")
        self.assertEqual(self.offsets(self.all(), "g"), {})
