"""The offsets of queues and groups: requests 14, 15, 29-32 and 43."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import OFFSETS_BYTES_MAX
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.broker.testing.store import message
from twistmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from twistmq.protocol.headers.pull import PullMessageResponseHeader

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class OffsetCase(SynchronousTestCase):
    """A broker with the topic T of two queues and the group G."""

    def setUp(self) -> None:
        self.box = KernelBox()
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel
        self.kernel.topic_config.update(TopicConfig("T", 2, 2), {})
        self.kernel.subscription_group.update(SubscriptionGroupConfig("G"), {})

    def fill(self, count: int, step_ms: int = 0) -> None:
        """Put messages into queue 1 of T, one each ``step_ms``."""
        for _ in range(count):
            self.kernel.append([message("T", queue_id=1)])
            self.box.now_ms += step_ms

    def query(self, queue_id: int = 1, **fields: Any) -> RemotingCommand:
        return self.box.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(
            **{"consumer_group": "G", "topic": "T", "queue_id": queue_id, **fields}))

    def queried(self, queue_id: int = 1, **fields: Any) -> int:
        reply = self.query(queue_id, **fields)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return reply.header(QueryConsumerOffsetResponseHeader).offset

    def update(self, **fields: Any) -> tuple[int, str | None]:
        reply = self.box.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
            **{"consumer_group": "G", "topic": "T", "queue_id": 1, "commit_offset": 5, **fields}))
        return reply.code, reply.remark


class CommitTests(OffsetCase):
    """The requests 14 and 15 about the progress of a group."""

    def test_commit_and_query(self) -> None:
        """A committed offset is returned, also that of the next message."""
        self.fill(5)
        self.assertEqual(self.update(), (ResponseCode.SUCCESS, None))
        self.assertEqual(self.queried(), 5)
        self.assertEqual(self.update(commit_offset=2), (ResponseCode.SUCCESS, None))
        self.assertEqual(self.queried(), 2)

    def test_queues_and_offsets_that_are_none(self) -> None:
        """They are refused and not stored; a former queue is valid while it has messages."""
        for queue_id in (-1, 2, 2**31 - 1):
            self.assertEqual(self.update(queue_id=queue_id), (
                ResponseCode.INVALID_PARAMETER, f"topic T has no queue {queue_id}"))
        self.assertEqual(self.update(commit_offset=-1), (
            ResponseCode.INVALID_PARAMETER, "offset -1 of topic T is negative"))
        self.fill(4)
        for offset in (5, 2**63 - 1):
            self.assertEqual(self.update(commit_offset=offset), (
                ResponseCode.INVALID_PARAMETER,
                f"offset {offset} is beyond the end of queue 1 of topic T, 4"))
        self.assertEqual(self.kernel.consumer_offset.table, {})
        self.fill(1)
        self.kernel.topic_config.update(TopicConfig("T", 1, 1), {})
        self.assertEqual(self.update(), (ResponseCode.SUCCESS, None))

    def test_group_that_never_came(self) -> None:
        """Its first offset is 0 if the first message of the queue is still in memory."""
        self.fill(3)
        self.assertEqual(self.queried(), 0)
        reply = self.query(set_zero_if_not_found=False)
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, do not set to zero, maybe this group boot first"))
        self.assertEqual(self.queried(set_zero_if_not_found=True), 0)

    def test_queue_without_messages(self) -> None:
        """No first message exists, and no topic does either."""
        for queue_id, topic in ((0, "T"), (9, "T"), (-1, "T"), (0, "nope")):
            reply = self.query(queue_id, topic=topic)
            self.assertEqual((reply.code, reply.remark),
                             (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND), (queue_id, topic))

    def test_queue_that_lost_its_first_messages(self) -> None:
        """A new group does not begin in the middle of a queue whose beginning is lost."""
        self.fill(3)
        self.kernel.store.queues.min_offset = lambda topic, queue_id: 1  # type: ignore
        reply = self.query()
        self.assertEqual((reply.code, reply.remark), (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND))

    def test_messages_far_back(self) -> None:
        """A new group does not begin at a first message that is no longer in memory."""
        self.fill(3)
        self.kernel.store.reader._in_memory_bytes = -1
        reply = self.query()
        self.assertEqual((reply.code, reply.remark), (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND))

    def test_unknown_names_and_missing_numbers(self) -> None:
        """Unknown names and missing numbers, with Apache's codes and remarks, in its order."""
        for fields, code, remark in (
            ({"consumer_group": "X", "topic": "X"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
             "Group X not exist!"),
            ({"topic": "X", "queue_id": None}, ResponseCode.TOPIC_NOT_EXIST, "Topic X not exist!"),
            ({"queue_id": None, "commit_offset": None}, ResponseCode.INVALID_PARAMETER,
             "QueueId is null, topic is T"),
            ({"commit_offset": None}, ResponseCode.INVALID_PARAMETER,
             "Offset is null, topic is T"),
        ):
            self.assertEqual(self.update(**fields), (code, remark))
        self.assertEqual(self.kernel.consumer_offset.table, {})

    def test_reset_wins(self) -> None:
        """While a reset waits for a pull, commits are accepted and dropped."""
        self.fill(5)
        self.kernel.consumer_offset.reset("G", "T", 1, 9)
        self.assertEqual(self.update(), (ResponseCode.SUCCESS, "Offset has been previously reset"))
        self.assertEqual(self.queried(), 9)

    def test_a_full_table_takes_no_new_queue_of_a_group(self) -> None:
        """At the limit no queue is added; existing ones can still be committed."""
        self.fill(5)
        self.assertEqual(self.update(commit_offset=1)[0], ResponseCode.SUCCESS)
        self.kernel.consumer_offset.size_bytes = OFFSETS_BYTES_MAX
        self.kernel.subscription_group.find("H")
        for fields in ({"queue_id": 0, "commit_offset": 0}, {"consumer_group": "H"}):
            code, remark = self.update(**fields)
            self.assertEqual(code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("room", remark or "")
        self.assertEqual(self.update(), (ResponseCode.SUCCESS, None))
        self.assertEqual(self.kernel.consumer_offset.table, {"T@G": {1: 5}})

    def test_missing_fields(self) -> None:
        """A query without a queue is refused."""
        reply = self.box.send(self.box.peer(), RequestCode.QUERY_CONSUMER_OFFSET,
                              extra_fields={"consumerGroup": "G", "topic": "T"})
        assert reply is not None
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("queueId", reply.remark or "")

    def test_saved_each_interval(self) -> None:
        """A task saves the offsets every flushConsumerOffsetInterval, then a restart has them."""
        task, = (task for task in self.kernel.periodic_tasks
                 if task.name == "save consumer offsets")
        assert callable(task.period_ms)
        self.assertEqual((task.first_ms, task.period_ms()), (10_000, 5000))
        self.fill(5)
        self.update()
        task.run(self.box.now_ms)
        self.kernel.consumer_offset.table.clear()
        self.kernel.consumer_offset.load()
        self.assertEqual(self.queried(), 5)


class BoundTests(OffsetCase):
    """The requests 30, 31 and 32 about the bounds of a queue."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int, int]:
        """(first offset, next offset, store time of the first message)."""
        ask = self.box.ask
        return (
            ask(RequestCode.GET_MIN_OFFSET,
                GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
                ).header(GetMinOffsetResponseHeader).offset,
            ask(RequestCode.GET_MAX_OFFSET,
                GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
                ).header(GetMaxOffsetResponseHeader).offset,
            ask(RequestCode.GET_EARLIEST_MSG_STORETIME,
                GetEarliestMsgStoretimeRequestHeader(topic=topic, queue_id=queue_id)
                ).header(GetEarliestMsgStoretimeResponseHeader).timestamp)

    def test_batch_queue(self) -> None:
        """A batch queue without messages has no first offset, as with Apache's broker."""
        table = self.box.kernel.topic_config
        table.update(TopicConfig("B", 2, 2, 6), {"+queue.type": "BatchCQ"})
        self.assertEqual(self.bounds("B", 0), (-1, 0, -1))
        reply = self.box.ask(RequestCode.PULL_MESSAGE, pull_header("B", 0))
        self.assertEqual(reply.header(PullMessageResponseHeader).min_offset, -1)
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header("B", 1), b"x")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(self.bounds("B", 0)[:2], (0, 1))
        self.assertEqual(self.bounds("B", 1)[:2], (-1, 0))

    def test_bounds_follow_the_messages(self) -> None:
        """The bounds change with the messages."""
        begin_ms = self.box.now_ms
        self.fill(3, step_ms=10)
        self.assertEqual(self.bounds("T", 1), (0, 3, begin_ms))

    def test_queues_without_messages(self) -> None:
        """The bounds are 0 and the earliest time is missing, whether or not the queue exists."""
        for topic, queue_id in (("T", 0), ("T", 9), ("T", -1), ("nope", 0)):
            self.assertEqual(self.bounds(topic, queue_id), (0, 0, -1), (topic, queue_id))


class SearchTests(OffsetCase):
    """The request 29, which finds an offset by time."""

    def search(self, timestamp: int, boundary: str | None = None, topic: str = "T") -> int:
        reply = self.box.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader(
            topic=topic, queue_id=1, timestamp=timestamp, boundary_type=boundary))
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return reply.header(SearchOffsetResponseHeader).offset

    def test_the_boundary_chooses_among_equal_times(self) -> None:
        """Of equal times the first one, or the last one for the upper boundary."""
        begin_ms = self.box.now_ms
        self.fill(3)
        self.box.now_ms += 10
        self.fill(2)
        for boundary in (None, "lower", "LOWER", "nonsense"):
            self.assertEqual(self.search(begin_ms, boundary), 0)
            self.assertEqual(self.search(begin_ms + 10, boundary), 3)
        for boundary in ("upper", "UPPER"):
            self.assertEqual(self.search(begin_ms, boundary), 2)
            self.assertEqual(self.search(begin_ms + 10, boundary), 4)

    def test_before_all_messages_the_first(self) -> None:
        """Before all messages it is the first one; after all of them it is the next one."""
        begin_ms = self.box.now_ms
        self.fill(3, step_ms=10)
        self.assertEqual(self.search(begin_ms - 1000), 0)
        self.assertEqual(self.search(begin_ms + 100_000), 3)

    def test_a_search_in_an_unknown_topic_answers_0(self) -> None:
        """For an unknown topic the offset is 0."""
        self.assertEqual(self.search(5, topic="nope"), 0)


class AllOffsetsTests(OffsetCase):
    """The request 43."""

    def test_every_groups_offsets(self) -> None:
        """Every group's offsets, with the topics of each group."""
        self.fill(5)
        self.kernel.append([message("T")])
        self.update()
        self.update(queue_id=0, commit_offset=1)
        reply = self.box.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        body = ConsumerOffsetSerializeWrapper.decode(reply.body)
        self.assertEqual(body.offset_table, {"T@G": {0: 1, 1: 5}})
        self.assertEqual(body.group_topic_map, {"G": {"T"}})
        self.assertIn(b'"T@G":{1:5,0:1}', reply.body)
