"""The requests of mqadmin about consume queues."""

from __future__ import annotations

from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import inner_batch, message
from twistmq.plugins import admin
from twistmq.plugins.admin.queues import (
    ENTRIES_MAX,
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
)
from twistmq.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.query import QueryConsumeQueueRequestHeader


class QueueQuestionsTests(SynchronousTestCase):
    """The request 321."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)], {"mappedFileSizeConsumeQueue": "200000"})
        self.addCleanup(self.box.stop)
        self.records = [message("T", body=bytes(size), tag="t") for size in (1, 2, 3)]
        self.box.kernel.append(self.records)

    def ask(
        self, index: int = 0, entries: int = 10, topic: str = "T", group: str | None = None
    ) -> RemotingCommand:
        return self.box.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(
            topic=topic, queue_id=0, index=index, count=entries, consumer_group=group))

    def body(self, index: int = 0, entries: int = 10,
             group: str | None = None) -> QueryConsumeQueueResponseBody:
        reply = self.ask(index, entries, group=group)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return QueryConsumeQueueResponseBody.decode(reply.body)

    def test_entries_are_returned_with_the_queues_bounds(self) -> None:
        """The response has the requested number of entries, and the bounds of the queue."""
        expected = [
            ConsumeQueueData(record.physical_offset, record.next_offset - record.physical_offset,
                             ord("t")) for record in self.records]
        self.assertEqual(self.body(), QueryConsumeQueueResponseBody(
            queue_data=expected, max_queue_index=3))
        self.assertEqual(self.body(1, 1).queue_data, expected[1:2])
        self.assertEqual(self.body(entries=0).queue_data, [])

    def test_batch_queue(self) -> None:
        """A batch queue has one entry for each record, whatever the number of its messages."""
        self.box.kernel.topic_config.update(TopicConfig("B", 1, 1, 6), {"+queue.type": "BatchCQ"})
        records = [inner_batch("B", [b"x"] * size) for size in (3, 1, 5)]
        self.box.kernel.append(records)
        body = QueryConsumeQueueResponseBody.decode(self.ask(1, topic="B").body)
        self.assertEqual(body.queue_data, [
            ConsumeQueueData(record.physical_offset, record.size, 0) for record in records])
        self.assertEqual(body.max_queue_index, 9)

    def test_outside_the_queue_the_answer_has_no_body(self) -> None:
        """If the offset has no entry, the response has a remark and no body."""
        for index in (-1, 3):
            reply = self.ask(index)
            self.assertEqual((reply.code, reply.body, reply.remark), (
                ResponseCode.SUCCESS, b"", f"Index {index} of 0@T is not exist!"))

    def test_a_queue_without_messages_is_refused(self) -> None:
        """Nothing was sent to the queue."""
        reply = self.ask(topic="U")
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.SYSTEM_ERROR, "0@U is not exist!"))

    def test_the_groups_subscription_is_returned_if_it_is_there(self) -> None:
        """The response has the subscription of the group if it exists."""
        self.assertEqual(self.body(group="g").filter_data, "g@T is not online!")
        heartbeat = HeartbeatData("client", consumer_data_set=(
            ConsumerData("g", subscription_data_set=(SubscriptionData("T", "t"),)),))
        self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard())
        self.assertEqual(self.body(group="g").subscription_data, SubscriptionData("T", "t"))

    def test_a_request_for_all_entries_gets_what_fits_in_slices(self) -> None:
        """A request for all entries returns as many as fit, and is served in slices."""
        records = [message("T", tag="t") for _ in range(ENTRIES_MAX + 10)]
        self.assertEqual(self.box.kernel.append(records), {})
        clock = count(self.box.now_ms)
        self.box.clock = lambda: next(clock)
        task, = (task for task in self.box.kernel.periodic_tasks
                 if task.name == "continue long work")
        peer = self.box.peer()
        self.assertIsNone(self.box.send(
            peer, RequestCode.QUERY_CONSUME_QUEUE,
            QueryConsumeQueueRequestHeader(topic="T", queue_id=0, index=0, count=2**31 - 1)))
        for _ in range(1000):
            task.run(0)
        reply, = self.box.late_replies(peer)
        body = QueryConsumeQueueResponseBody.decode(reply.body)
        assert body.queue_data is not None
        self.assertEqual((len(body.queue_data), body.max_queue_index),
                         (ENTRIES_MAX, ENTRIES_MAX + 13))
        self.assertEqual(len({entry.physic_offset for entry in body.queue_data}), ENTRIES_MAX)


class ExtensionTests(SynchronousTestCase):
    """The request 321 for a queue whose entries have extension units."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)], {"enableConsumeQueueExt": "true"})
        self.addCleanup(self.box.stop)
        self.box.kernel.store.dispatch.make_bitmap = (
            lambda record: bytes([0x80, 0, 0, 0, 0, 0, 0, 0, 1]) if record.body == b"b" else None)
        self.box.kernel.append([message("T", body, tag="t") for body in (b"a", b"b")])

    def rows(self, group: str | None = None) -> list[ConsumeQueueData]:
        reply = self.box.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(
            topic="T", queue_id=0, index=0, count=9, consumer_group=group))
        rows = QueryConsumeQueueResponseBody.decode(reply.body).queue_data
        assert rows
        return rows

    def test_the_unit_as_json_and_the_bitmap_as_digits(self) -> None:
        """The unit as JSON and the bitmap as digits; the code is the tag's."""
        first, second = self.rows()
        self.assertEqual((first.tags_code, first.bit_map, first.msg), (ord("t"), None, None))
        self.assertEqual(first.extend_data_json,
                         f'{{"msgStoreTime":{self.box.now_ms},"size":20,"tagsCode":116}}')
        self.assertEqual(second.bit_map, "00000001\n" + "00000000" * 7 + "10000000\n")
        self.assertIn('"filterBitMap":"gAAAAAAAAAAB","msgStoreTime"',
                      second.extend_data_json or "")

    def test_whether_a_groups_filter_takes_an_entry_is_said_when_the_group(self) -> None:
        """The response tells whether the filter of the group accepts an entry."""
        self.assertEqual([row.eval for row in self.rows("g")], [False, False])
        for group, expression, taken in (("g1", "t", True), ("g2", "u", False), ("g3", "*", True)):
            heartbeat = HeartbeatData("client", consumer_data_set=(ConsumerData(
                group, subscription_data_set=(SubscriptionData("T", expression),)),))
            self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard())
            self.assertEqual([row.eval for row in self.rows(group)], [taken] * 2, msg=group)

    def test_a_unit_that_is_missing_is_named(self) -> None:
        """A missing unit is named, and its address is returned in place of the code."""
        rows = ConsumeQueueData.of((5, 6, -(1 << 62)), None, None, True)
        self.assertEqual((rows.tags_code, rows.eval, rows.msg), (
            -(1 << 62), False, f"Cq extend not exist!addr: {-(1 << 62)}"))
