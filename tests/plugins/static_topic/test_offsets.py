"""The offsets of static topics."""

from __future__ import annotations

from tests.plugins.static_topic.case import TOPIC, A, B, ClusterCase, item
from twistmq.protocol.bodies import SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers import offset as headers


class OffsetCase(ClusterCase):
    """Queue 0: three messages at broker-b, a second apart, then two at broker-a."""

    def setUp(self) -> None:
        super().setUp()
        self.updated(B, [item(0, B, 2, 0)])
        self.begin_ms = self.boxes[A].now_ms
        for n in range(3):
            self.send(b"old %d" % n, name=B)
            self.pass_second()
        self.parts = [item(0, B, 2, 0), item(1, A, 1, 10_000)]
        for name in (A, B):
            self.updated(name, self.parts, epoch=2)
        for n in range(2):
            self.send(b"new %d" % n)
            self.pass_second()
        for box in self.boxes.values():
            box.kernel.subscription_group.update(SubscriptionGroupConfig("g"), {})

    def pass_second(self) -> None:
        for box in self.boxes.values():
            box.now_ms += 1000


class GroupTests(OffsetCase):
    """The requests 14 and 15."""

    def commit(self, offset: int, name: str = A) -> int:
        header = headers.UpdateConsumerOffsetRequestHeader("g", TOPIC, 0, offset)
        return self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header, name).code

    def query(self, name: str = A, zero: bool | None = None) -> int:
        """Return the offset, or minus the code of the refusal."""
        reply = self.ask(RequestCode.QUERY_CONSUMER_OFFSET,
                         headers.QueryConsumerOffsetRequestHeader("g", TOPIC, 0, zero), name)
        return -reply.code if reply.code else reply.header(
            headers.QueryConsumerOffsetResponseHeader).offset

    def kept(self, name: str, queue_id: int) -> int:
        return self.boxes[name].kernel.consumer_offset.query("g", TOPIC, queue_id)

    def test_over_parts(self) -> None:
        """The broker of each part keeps its offset; the last part with an offset counts."""
        self.assertEqual(self.query(), -ResponseCode.QUERY_NOT_FOUND)
        self.assertEqual((self.commit(2), self.kept(A, 1), self.kept(B, 2)), (0, -1, 2))
        self.assertEqual(self.query(), 2)
        self.assertEqual((self.commit(10_001), self.kept(A, 1), self.kept(B, 2)), (0, 1, 2))
        self.assertEqual(self.query(), 10_001)
        self.assertEqual([fields["lo"] for _, _, fields in self.asked], [False] * 3)

    def test_of_one_part(self) -> None:
        """As for any queue, a group begins at the first message if that is in memory."""
        self.updated(A, self.parts, [item(0, A, 3, 0)], epoch=3)
        header = headers.QueryConsumerOffsetRequestHeader("g", TOPIC, 1)
        self.send(b"x", 1)
        reply = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        self.assertEqual(reply.header(headers.QueryConsumerOffsetResponseHeader).offset, 0)

    def test_led_elsewhere(self) -> None:
        """The code is 501."""
        self.assertEqual(self.commit(2, B), ResponseCode.NOT_LEADER_FOR_QUEUE)
        self.assertEqual(self.query(B), -ResponseCode.NOT_LEADER_FOR_QUEUE)

    def test_as_before(self) -> None:
        """A commit without offset, and a group that is not there, are refused as ever."""
        reply = self.ask(RequestCode.UPDATE_CONSUMER_OFFSET,
                         headers.UpdateConsumerOffsetRequestHeader("g", TOPIC, 0))
        self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER)
        reply = self.ask(RequestCode.UPDATE_CONSUMER_OFFSET,
                         headers.UpdateConsumerOffsetRequestHeader("no", TOPIC, 0, 10_000))
        self.assertEqual(reply.code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


class BoundTests(OffsetCase):
    """The requests 29, 30, 31 and 32."""

    def maximum(self) -> int:
        reply = self.ask(RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(TOPIC, 0))
        return reply.header(headers.GetMaxOffsetResponseHeader).offset

    def search(self, after_ms: int, boundary: str | None = None) -> int:
        reply = self.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, headers.SearchOffsetRequestHeader(
            TOPIC, 0, self.begin_ms + after_ms, boundary))
        self.assertEqual((reply.code, reply.remark), (0, None))
        return reply.header(headers.SearchOffsetResponseHeader).offset

    def test_the_queue_ends_where_its_last_part_does(self) -> None:
        """The queue ends with its last part and begins with its first part."""
        self.assertEqual(self.maximum(), 10_002)
        reply = self.ask(RequestCode.GET_MIN_OFFSET, headers.GetMinOffsetRequestHeader(TOPIC, 0))
        self.assertEqual(reply.header(headers.GetMinOffsetResponseHeader).offset, 0)
        reply = self.ask(RequestCode.GET_EARLIEST_MSG_STORETIME,
                         headers.GetEarliestMsgStoretimeRequestHeader(TOPIC, 0))
        found = reply.header(headers.GetEarliestMsgStoretimeResponseHeader)
        self.assertEqual(found.timestamp, self.begin_ms)

    def test_last_part_is_not_decided(self) -> None:
        """The queue ends with the part before it, whose broker is asked for the end."""
        self.updated(A, [item(0, B, 2, 0), item(4, A, 3, -1)], epoch=3)
        self.assertEqual(self.maximum(), 3)

    def test_by_time(self) -> None:
        """The offset is of the first message at the time or later, or the last one until then."""
        self.assertEqual([self.search(ms) for ms in (-1, 0, 500, 2000, 2500, 4000, 9000)],
                         [0, 0, 1, 2, 10_000, 10_001, 10_002])
        self.assertEqual([self.search(ms, "UPPER") for ms in (0, 500, 2500, 3500, 9000)],
                         [0, 0, 2, 10_000, 10_001])

    def test_led_elsewhere(self) -> None:
        """The code is 501, with Apache's remark."""
        for code, header, remark in (
            (RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(TOPIC, 0),
             f"S-0 does not exit in request process of current broker {B}"),
            (RequestCode.GET_MIN_OFFSET, headers.GetMinOffsetRequestHeader(TOPIC, 0),
             f"S-0 is not leader in broker {B}, request code 31"),
        ):
            reply = self.ask(code, header, B)
            self.assertEqual((reply.code, reply.remark),
                             (ResponseCode.NOT_LEADER_FOR_QUEUE, remark))

    def test_the_physical_queues_end(self) -> None:
        """The response has the end of the physical queue."""
        reply = self.ask(RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(TOPIC, 2),
                         B, lo="false")
        self.assertEqual(reply.header(headers.GetMaxOffsetResponseHeader).offset, 3)
