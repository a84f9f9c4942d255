"""Sends to static topics."""

from __future__ import annotations

from typing import Any, ClassVar
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.static_topic.case import TOPIC, A, B, ClusterCase, item
from twistmq.broker.remoting.messages import RequestHandler
from twistmq.broker.request.acknowledgement import Stage
from twistmq.broker.request.send import LARGE_BATCH_COUNT
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins.static_topic.sends import wrapped_send
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import decode_command, encode_request
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)


class NoStaticTopicTests(SynchronousTestCase):
    """A broker without static topics."""

    def test_nothing_is_looked_at(self) -> None:
        """The requests of one read are passed on unchanged, even if they are not real requests."""
        row = RequestHandler(RequestCode.SEND_MESSAGE, mock.sentinel.handle,
                             handle_batch=lambda requests: [requests])
        found = wrapped_send(row, mock.Mock(table={})).handle_batch
        assert found is not None
        batch: Any = [object(), object()]
        self.assertIs(found(batch)[0], batch)


class SendTests(ClusterCase):
    """The requests 10, 310 and 320."""

    def setUp(self) -> None:
        super().setUp()
        self.updated(A, [item(0, A, 3, 0)], [item(0, A, 0, 0), item(1, B, 0, -1)],
                     [item(0, B, 0, 0), item(1, A, 1, 10_000)],
                     [item(0, B, 1, 0), item(1, A, 2, -1)])

    def test_to_the_physical_queue(self) -> None:
        """The message is stored there; the response has the logical queue and its offset."""
        self.assertEqual([self.send(b"%d" % n) for n in range(3)], [(0, 0), (0, 1), (0, 2)])
        self.assertEqual(self.send(b"x", 2), (2, 10_000))
        stored = self.boxes[A].stored
        self.assertEqual([m.body for m in stored(TOPIC, 3)], [b"0", b"1", b"2"])
        self.assertEqual([m.body for m in stored(TOPIC, 1)], [b"x"])
        self.assertEqual([m.body for m in stored(TOPIC, 0)], [])

    def test_to_the_physical_queue_by_each_code(self) -> None:
        """Sends with long names in their headers, with short ones, and batches."""
        short = send_header(TOPIC, 1, queue_id=2)
        batch = send_header(TOPIC, 1, queue_id=2)
        batch.batch = True
        long = SendMessageRequestHeader(
            producer_group="g", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4,
            queue_id=2, sys_flag=0, born_timestamp=1, flag=0)
        for count, (code, header, body) in enumerate((
                (RequestCode.SEND_MESSAGE, long, b"1"), (RequestCode.SEND_MESSAGE_V2, short, b"2"),
                (RequestCode.SEND_BATCH_MESSAGE, batch, encode_batch([(0, b"3", "")])))):
            reply = self.boxes[A].ask(code, header, body)
            self.assertEqual((reply.code, reply.remark), (0, None))
            found = reply.header(SendMessageResponseHeader)
            self.assertEqual((found.queue_id, found.queue_offset), (2, 10_000 + count))
        self.assertEqual([m.body for m in self.boxes[A].stored(TOPIC, 1)], [b"1", b"2", b"3"])

    def test_not_decided_yet(self) -> None:
        """The message is stored, but its logical offset is unknown."""
        self.assertEqual(self.send(b"x", 3), (3, -1))
        self.assertEqual([m.body for m in self.boxes[A].stored(TOPIC, 2)], [b"x"])

    def test_led_elsewhere(self) -> None:
        """A queue that is not led here, or not there, is refused by 501."""
        box = self.boxes[A]
        for queue in (1, 9):
            reply = box.ask(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, 1, queue_id=queue),
                            b"x")
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"S-{queue} does not exit in request process of current broker {A}"))
        self.assertEqual(box.stored(TOPIC, 0), [])

    def test_any_queue(self) -> None:
        """A sender that names no queue gets one that this broker leads."""
        self.assertEqual(self.send(b"x", -1), (0, 0))

    def test_a_forwarded_queue_is_the_physical_one(self) -> None:
        """The queue of a forwarded send is the physical one."""
        self.assertEqual(self.send(b"x", 0, lo="false"), (0, 0))
        self.assertEqual([m.body for m in self.boxes[A].stored(TOPIC, 0)], [b"x"])

    def test_many_of_one_read(self) -> None:
        """Sends to other topics, refused sends and batches get their own responses."""
        headers = [send_header(TOPIC, 1, queue_id=2), send_header("Other", 1, queue_id=2),
                   send_header(TOPIC, 1, queue_id=1), send_header(TOPIC, 1, queue_id=0),
                   send_header(TOPIC, 1, queue_id=2)]
        box = self.boxes[A]
        data = b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, n, header, b"%d" % n)
                        for n, header in enumerate(headers))
        replies = box.kernel.dispatcher.execute(box.peer(), FrameDecoder().feed(data), box.now_ms)
        answers = [decode_command(FrameDecoder().feed(reply)[0]) for reply in replies]
        self.assertEqual([answer.opaque for answer in answers], [0, 1, 2, 3, 4])
        self.assertEqual([answer.code for answer in answers],
                         [0, 0, ResponseCode.NOT_LEADER_FOR_QUEUE, 0, 0])
        places = [(found.queue_id, found.queue_offset) for found in (
            answer.header(SendMessageResponseHeader) for answer in answers if not answer.code)]
        self.assertEqual(places, [(2, 10_000), (2, 0), (0, 0), (2, 10_001)])

    def test_a_batch_has_one_answer(self) -> None:
        """A batch has one response."""
        header = send_header(TOPIC, 1, queue_id=2)
        header.batch = True
        reply = self.boxes[A].ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(
            [(0, b"1", ""), (0, b"2", "")]))
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        found = reply.header(SendMessageResponseHeader)
        self.assertEqual((found.queue_id, found.queue_offset), (2, 10_000))
        self.assertEqual(self.send(b"3", 2), (2, 10_002))


    def test_a_batch_that_is_taken_apart_in_slices(self) -> None:
        """The response is a Deferred, and has the logical queue as well."""
        header = send_header(TOPIC, 1, queue_id=2)
        header.batch = True
        answer = self.boxes[A].ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(
            [(0, b"x", "")] * (LARGE_BATCH_COUNT + 1)))
        found = answer.header(SendMessageResponseHeader)
        self.assertEqual((answer.code, found.queue_id, found.queue_offset), (0, 2, 10_000))


class SyncFlushTests(ClusterCase):
    """Responses that wait for the disk."""

    settings: ClassVar = {"flushDiskType": "SYNC_FLUSH"}

    def test_answers_held_for_the_disk_name_the_logical_queue(self) -> None:
        """Responses that wait for the disk name the logical queue as well."""
        self.updated(A, [item(0, B, 0, 0), item(1, A, 2, 10_000)])
        box = self.boxes[A]
        peer = box.peer()
        reply = box.send(peer, RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, 1), b"x")
        [answer] = [reply] if reply is not None else box.late_replies(peer)
        found = answer.header(SendMessageResponseHeader)
        self.assertEqual((answer.code, found.queue_id, found.queue_offset), (0, 0, 10_000))

    def test_not_safe_yet(self) -> None:
        """A response that another stage delays names the logical queue, too."""
        self.updated(A, [item(0, B, 0, 0), item(1, A, 2, 10_000)])
        box = self.boxes[A]
        safe: Deferred[None] = Deferred()
        box.kernel.acknowledgement.stages.append(
            Stage(lambda offset: safe, ResponseCode.FLUSH_SLAVE_TIMEOUT))
        peer = box.peer()
        self.assertIsNone(
            box.send(peer, RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, 1), b"x"))
        self.assertEqual(box.late_replies(peer), [])
        safe.callback(None)
        [answer] = box.late_replies(peer)
        found = answer.header(SendMessageResponseHeader)
        self.assertEqual((answer.code, found.queue_id, found.queue_offset), (0, 0, 10_000))
