"""Pulls from static topics."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.static_topic.case import TOPIC, A, B, ClusterCase, item
from twistmq.broker.testing.raw_client import pull_header
from twistmq.plugins.static_topic.mapping import TopicQueueMappingDetail
from twistmq.plugins.static_topic.pulls import Bounds, physical_header, rewritten
from twistmq.plugins.static_topic.table import LogicalPlace
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pull import PullMessageRequestHeader

FOUND, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
RETRY, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED
FIRST, MIDDLE, LEADER = item(0, B, 0, 0), item(1, A, 1, 100), item(2, A, 2, 200)
PARTS = [FIRST, MIDDLE, LEADER]


class RewrittenTests(SynchronousTestCase):
    """Answers without messages; physical offsets of a queue from 10 to 20."""

    def answer(self, code: int, asked: int, part: int, parts: int = 3) -> tuple[int, int, int]:
        """Code, where to go on, and generation of the part that is meant."""
        items = PARTS[:parts]
        found = rewritten(Bounds(code, 7, 10, 20, items[part]), asked, items)
        return found.code, found.next_begin, found.item.gen

    def test_first_part(self) -> None:
        """Before the part the client is moved to its beginning, at its end to the next part."""
        self.assertEqual(self.answer(MOVED, 5, 0), (MOVED, 10, 0))
        self.assertEqual(self.answer(NOT_FOUND, 5, 0), (MOVED, 10, 0))
        self.assertEqual(self.answer(RETRY, 15, 0), (RETRY, 7, 0))
        self.assertEqual(self.answer(NOT_FOUND, 20, 0), (RETRY, 0, 1))
        self.assertEqual(self.answer(MOVED, 25, 0), (RETRY, 0, 1))

    def test_middle_part(self) -> None:
        """A middle part has no beginning that a client would see."""
        self.assertEqual(self.answer(MOVED, 5, 1), (RETRY, 10, 1))
        self.assertEqual(self.answer(RETRY, 15, 1), (RETRY, 7, 1))
        self.assertEqual(self.answer(NOT_FOUND, 20, 1), (RETRY, 0, 2))

    def test_the_leaders_end_has_no_message_yet(self) -> None:
        """At the end of the leader's part no message exists yet."""
        self.assertEqual(self.answer(MOVED, 5, 2), (RETRY, 10, 2))
        self.assertEqual(self.answer(NOT_FOUND, 20, 2), (NOT_FOUND, 7, 2))
        self.assertEqual(self.answer(MOVED, 25, 2), (MOVED, 20, 2))

    def test_only_part(self) -> None:
        """The only part is the first and the last one."""
        self.assertEqual(self.answer(MOVED, 5, 0, 1), (MOVED, 10, 0))
        self.assertEqual(self.answer(NOT_FOUND, 20, 0, 1), (NOT_FOUND, 7, 0))
        self.assertEqual(self.answer(MOVED, 25, 0, 1), (NOT_FOUND, 20, 0))

    def test_next_is_not_decided(self) -> None:
        """The client must wait until it is decided."""
        items = [FIRST, item(1, A, 1, -1)]
        found = rewritten(Bounds(NOT_FOUND, 20, 10, 20, FIRST), 20, items)
        self.assertEqual((found.code, found.item), (NOT_FOUND, FIRST))


class HeaderTests(SynchronousTestCase):
    """The header of the request for one part."""

    def header(self, part: int, offset: int, *, sys_flag: int = 0, commit: int = 0
               ) -> PullMessageRequestHeader:
        detail = TopicQueueMappingDetail(topic=TOPIC, bname=A, hosted_queues={5: PARTS})
        header = pull_header(TOPIC, offset, queue_id=5)
        header.sys_flag, header.commit_offset = sys_flag, commit
        found = physical_header(header, LogicalPlace(5, detail, PARTS), PARTS[part])
        self.assertEqual(header.queue_id, 5)
        return found

    def test_queue_and_offset_are_physical(self) -> None:
        """The queue and the offset are physical."""
        for part, offset, queue, physical in ((0, 7, 0, 7), (1, 107, 1, 7), (2, 200, 2, 0)):
            found = self.header(part, offset)
            self.assertEqual((found.queue_id, found.queue_offset), (queue, physical))

    def test_only_at_the_last_part_it_may_wait(self) -> None:
        """Only the last part may wait; the committed offset belongs to the part that is read."""
        self.assertEqual([self.header(part, 0, sys_flag=6).sys_flag for part in range(3)],
                         [4, 4, 6])
        found = self.header(2, 210, sys_flag=7, commit=205)
        self.assertEqual((found.sys_flag, found.commit_offset), (7, 5))
        self.assertEqual(self.header(2, 210, sys_flag=7, commit=105).sys_flag, 6)
        self.assertEqual(self.header(0, 5, sys_flag=7, commit=3).sys_flag, 4)

    def test_no_more_than_a_part_has_whose_end_is_known(self) -> None:
        """The request asks for no more messages than the part has, if its end is known."""
        ended = item(0, A, 0, 0, end_offset=4)
        detail = TopicQueueMappingDetail(topic=TOPIC, bname=A)
        place = LogicalPlace(0, detail, [ended, MIDDLE])
        header = pull_header(TOPIC, 0)
        self.assertEqual(physical_header(header, place, ended).max_msg_nums, 4)
        self.assertEqual(physical_header(header, place, MIDDLE).max_msg_nums, 32)


class PullTests(ClusterCase):
    """Pulls over two brokers."""

    def setUp(self) -> None:
        """Queue 0 was at broker-b with three messages, and is at broker-a, with two."""
        super().setUp()
        self.updated(B, [item(0, B, 2, 0)])
        for n in range(3):
            self.send(b"old %d" % n, name=B)
        parts = [item(0, B, 2, 0), item(1, A, 1, 10_000)]
        for name in (A, B):
            self.updated(name, parts, epoch=2)
        for n in range(2):
            self.send(b"new %d" % n)

    def test_messages_of_the_part_that_is_here(self) -> None:
        """Messages of the part that is here, with logical offsets."""
        code, header, bodies = self.pulled(10_000)
        self.assertEqual((code, bodies), (FOUND, [b"new 0", b"new 1"]))
        self.assertEqual((header.next_begin_offset, header.min_offset, header.max_offset,
                          header.offset_delta), (10_002, 10_000, 10_002, 10_000))
        self.assertEqual(self.asked, [])

    def test_messages_of_a_remote_part_are_asked_for_without_waiting(self) -> None:
        """The other broker is asked for the messages of its part, without a wait."""
        code, header, bodies = self.pulled(1)
        self.assertEqual((code, bodies), (FOUND, [b"old 1", b"old 2"]))
        self.assertEqual((header.next_begin_offset, header.min_offset, header.max_offset,
                          header.offset_delta), (3, 0, 10_000, 0))
        [(address, asked, fields)] = self.asked
        self.assertEqual((address, asked, fields["lo"], fields["bname"], fields["queue_id"],
                          fields["queue_offset"]), (B, RequestCode.PULL_MESSAGE, False, B, 2, 1))
        self.assertEqual(fields["sys_flag"] & 3, 0)

    def test_from_one_to_the_other(self) -> None:
        """At the end of the first part the client is sent to the second one."""
        bodies, offset = [], 0
        for _ in range(3):
            _, header, found = self.pulled(offset)
            bodies += found
            offset = header.next_begin_offset
        self.assertEqual((bodies, offset),
                         ([b"old 0", b"old 1", b"old 2", b"new 0", b"new 1"], 10_002))

    def test_a_pull_at_the_end_waits_for_the_next_message(self) -> None:
        """The response has the logical offset of the next message."""
        peer = self.boxes[A].peer()
        self.assertIsNone(self.pull(10_002, peer=peer, hold_ms=1000))
        self.send(b"late")
        [reply] = self.boxes[A].late_replies(peer)
        code, header, bodies = self.taken_apart(reply, 10_002)
        self.assertEqual((code, bodies, header.next_begin_offset), (FOUND, [b"late"], 10_003))
        self.assertEqual(peer.held_bytes, 0)

    def test_led_elsewhere(self) -> None:
        """The code 501 makes the client read the route again."""
        reply = self.pull(0, name=B)
        assert reply is not None
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.NOT_LEADER_FOR_QUEUE,
            f"S-0 cannot find mapping item in request process of current broker {B}"))

    def test_offsets_and_queue_of_a_forwarded_pull_are_taken_as_they_are(self) -> None:
        """The offsets and the queue of a forwarded pull are used unchanged."""
        code, header, bodies = self.pulled(0, 2, B, lo="false")
        self.assertEqual((code, len(bodies), header.offset_delta), (FOUND, 3, None))

    def test_the_other_is_gone(self) -> None:
        """The pull fails; the next one asks name servers for the broker."""
        self.silent = {B}
        reply = self.pull(0)
        assert reply is not None
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR, f"broker {B}: no reply"))
        self.silent = set()
        self.assertEqual(self.pulled(0)[0], FOUND)
        self.assertEqual(self.found, [B, B])
        self.assertEqual(self.pulled(0)[0], FOUND)
        self.assertEqual(self.found, [B, B])

    def test_a_pulls_commit_is_kept_at_its_part(self) -> None:
        """The offset that a pull commits is kept on the broker of its part."""
        header = pull_header(TOPIC, 10_001)
        header.sys_flag |= 1
        header.commit_offset = 10_001
        box = self.boxes[A]
        self.assertEqual(box.ask(RequestCode.PULL_MESSAGE, header).code, FOUND)
        self.assertEqual(box.kernel.consumer_offset.query("test_consumer", TOPIC, 1), 1)

    def test_nothing_decided(self) -> None:
        """Nothing can be read from a queue whose beginning is not decided."""
        self.updated(A, [item(5, A, 3, -1)], epoch=3)
        reply = self.pull(0)
        assert reply is not None
        self.assertEqual(reply.code, NOT_FOUND)
