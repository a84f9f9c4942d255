"""The requests ACK_MESSAGE and BATCH_ACK_MESSAGE."""

from __future__ import annotations

import json

from twisted.internet.defer import Deferred

from tests.plugins.pop.case import RETRY_TOPIC, PopTestCase
from twistmq.broker.constants import BATCH_ACK_POINTS_MAX, BATCH_ACK_SIZE_MAX
from twistmq.broker.request.acknowledgement import Stage
from twistmq.plugins.pop.check_point import CHECK_POINT_MESSAGES_MAX
from twistmq.plugins.pop.names import ORDER_REVIVE_QUEUE, REVIVE_GROUP
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import decode_command, encode_request
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.pop import AckMessageRequestHeader
from twistmq.protocol.topic_names import TIMER_TOPIC


class AckTests(PopTestCase):
    """An acknowledged message is not delivered again."""

    def acks(self) -> list[tuple[str, dict[str, object]]]:
        """Return the stored acknowledgements as (tag, body)."""
        return [(message.properties_map()["TAGS"], json.loads(message.body))
                for message in self.stored(TIMER_TOPIC)
                if message.properties_map()["TAGS"] != "ck"]

    def test_unacknowledged_messages_of_a_pop_come_again(self) -> None:
        """One of three messages is acknowledged; the others are delivered again."""
        self.send_some(3, 1)
        popped = self.pop()
        self.ack(popped[1])
        self.pass_time(8000)
        self.assertEqual(self.retries(), [b"0", b"2"])

    def test_as_stored(self) -> None:
        """The record has the same fields and properties as the record of Apache 5.3.3."""
        self.send(b"x")
        [popped] = self.pop()
        self.ack(popped)
        self.assertEqual(self.acks(), [("ack", {
            "ao": 0, "bn": "broker-a", "c": "g", "pt": self.box.now_ms, "q": 0, "so": 0,
            "t": "T"})])
        properties = self.stored(TIMER_TOPIC)[1].properties_map()
        self.assertEqual(properties["TIMER_DELIVER_MS"], str(self.box.now_ms + 5000))
        self.assertEqual(properties["UNIQ_KEY"], f"T@0@0@g@{self.box.now_ms}@broker-a@ack")

    def test_acknowledgements_of_one_check_point_are_one_record(self) -> None:
        """The acknowledgements of one check point in one read are one record, in one append."""
        self.send_some(6)
        popped = self.pop()
        peer = self.box.peer()
        frames = b"".join(encode_request(
            RequestCode.ACK_MESSAGE, number, self.ack_header(each))
            for number, each in enumerate(popped))
        appended: list[int] = []
        self.box.kernel.store.dispatch.on_dispatch.append(
            lambda records: appended.append(len(records)))
        replies = self.box.kernel.dispatcher.execute(
            peer, FrameDecoder().feed(frames), self.box.now_ms)
        commands = [decode_command(FrameDecoder().feed(reply)[0]) for reply in replies]
        self.assertEqual([(each.opaque, each.code) for each in commands],
                         [(number, ResponseCode.SUCCESS) for number in range(6)])
        self.assertEqual(appended, [2])
        self.assertEqual([(tag, body["aol"]) for tag, body in self.acks()],
                         [("bAck", [0, 1, 2]), ("bAck", [0, 1, 2])])
        self.pass_time(8000)
        self.assertEqual(self.retries(), [])

    def test_a_second_acknowledgement_changes_nothing(self) -> None:
        """A second acknowledgement changes nothing."""
        self.send(b"x")
        [popped] = self.pop()
        self.ack(popped, popped)
        self.pass_time(8000)
        self.assertEqual(self.retries(), [])

    def test_a_late_acknowledgement_counts_until_the_revive(self) -> None:
        """A late acknowledgement counts until the message is revived."""
        self.send(b"x")
        self.send(b"y")
        popped = self.pop()
        self.box.now_ms += 5500
        self.ack(popped[0])
        self.pass_time(5000)
        self.assertEqual(self.retries(), [b"y"])

    def test_refusals_have_apaches_codes(self) -> None:
        """Refusals have Apache's codes; an unknown revive queue is not created."""
        self.send(b"x")
        [popped] = self.pop()
        for change, code in (
            ({"topic": "no"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"queue_id": 99}, ResponseCode.MESSAGE_ILLEGAL),
            ({"queue_id": -1}, ResponseCode.MESSAGE_ILLEGAL),
            ({"offset": 7}, ResponseCode.NO_MESSAGE),
            ({"extra_info": "1 2"}, ResponseCode.SYSTEM_ERROR),
            ({"extra_info": "0 1 2 x 0 b 0 0"}, ResponseCode.SYSTEM_ERROR),
            ({"extra_info": "0 1 2 8 0 b 0 0"}, ResponseCode.MESSAGE_ILLEGAL),
            ({"extra_info": "0 1 2 -1 0 b 0 0"}, ResponseCode.MESSAGE_ILLEGAL),
            ({"extra_info": "0 1 2 0 0 " + "b" * 1020 + " 0 0"}, ResponseCode.SYSTEM_ERROR),
            ({"consumer_group": "no"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ):
            header = self.ack_header(popped)
            for name, value in change.items():
                setattr(header, name, value)
            reply = self.box.ask(RequestCode.ACK_MESSAGE, header)
            self.assertEqual(reply.code, code, msg=str(change))
        self.assertEqual(self.acks(), [])

    def test_an_acknowledgement_that_is_not_stored_is_refused(self) -> None:
        """The client gets an error, while Apache's broker reports success."""
        self.send(b"x")
        [popped] = self.pop()
        self.box.kernel.store.log_retention.disk_full = True
        self.assertEqual(self.ask_ack(popped).code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.box.kernel.store.log_retention.disk_full = False
        self.ack(popped)


class SyncFlushTests(PopTestCase):
    """Under SYNC_FLUSH an acknowledgement is answered when it is durable."""

    settings = {"flushDiskType": "SYNC_FLUSH"}  # noqa: RUF012

    def test_the_log_is_durable_to_its_end_when_the_answer_is_there(self) -> None:
        """When the response is sent, the log is durable up to its end."""
        self.send(b"x")
        [popped] = self.pop()
        self.ack(popped)
        store = self.box.kernel.store
        self.assertEqual(store.commit_log.flushed_offset, store.commit_log.max_offset)


class RefusedTests(PopTestCase):
    """A plugin asks replicas."""

    def test_acknowledgements_that_replicas_refuse_are_refused_one_by_one(self) -> None:
        """The acknowledgements of one read wait together, and each has its own response."""
        self.send_some(3)
        popped = self.pop()
        refusal: Deferred[None] = Deferred()
        self.box.kernel.acknowledgement.stages.append(
            Stage(lambda offset: refusal, ResponseCode.FLUSH_SLAVE_TIMEOUT))
        peer = self.box.peer()
        frames = b"".join(encode_request(
            RequestCode.ACK_MESSAGE, number, self.ack_header(each))
            for number, each in enumerate(popped))
        self.assertEqual(self.box.kernel.dispatcher.execute(
            peer, FrameDecoder().feed(frames), self.box.now_ms), [])
        refusal.errback(RequestRefused(1, "in-sync replicas not enough"))
        replies = self.box.late_replies(peer)
        self.assertEqual([(each.opaque, each.code, each.remark) for each in replies],
                         [(number, 1, "in-sync replicas not enough") for number in range(3)])


class BatchTests(PopTestCase):
    """The request BATCH_ACK_MESSAGE."""

    def test_the_messages_whose_bits_are_set(self) -> None:
        """The messages of the set bits are acknowledged."""
        self.send_some(4, 1)
        popped = self.pop()
        self.assertEqual(self.ask_batch_ack(popped[0], popped[2]).code, ResponseCode.SUCCESS)
        self.pass_time(8000)
        self.assertEqual(self.retries(), [b"1", b"3"])

    def test_of_retries(self) -> None:
        """The messages of a retry topic are acknowledged."""
        self.send_some(2, 1)
        self.pop()
        self.pass_time(8000)
        again = self.pop()
        self.assertEqual([each.topic for each in again], [RETRY_TOPIC, RETRY_TOPIC])
        self.assertEqual(self.ask_batch_ack(*again).code, ResponseCode.SUCCESS)
        self.pass_time(10_000)
        self.assertEqual(len(self.retries()), 2)

    def test_long_names(self) -> None:
        """Older clients send the full names of the fields."""
        self.send(b"x")
        [popped] = self.pop()
        receipt = popped.receipt.split(" ")
        body = {"brokerName": "broker-a", "acks": [{
            "consumerGroup": "g", "topic": "T", "retry": "0", "startOffset": 0, "queueId": 0,
            "reviveQueueId": int(receipt[3]), "popTime": int(receipt[1]),
            "invisibleTime": int(receipt[2]), "bitSet": "AQ=="}]}
        reply = self.box.ask(RequestCode.BATCH_ACK_MESSAGE, None, json.dumps(body).encode())
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.pass_time(8000)
        self.assertEqual(self.retries(), [])

    def test_malformed_batches_of_acknowledgements_are_refused(self) -> None:
        """Batches without content, with invalid bits, or with an invalid topic are refused."""
        ack = {"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1,
               "b": "AQ=="}
        self.send(b"x")
        self.pop()
        for body, code in (
            (b"", ResponseCode.NO_MESSAGE), (b'{"acks":[]}', ResponseCode.NO_MESSAGE),
            (b"x", ResponseCode.SYSTEM_ERROR),
            (json.dumps({"acks": [{**ack, "b": "?"}]}).encode(), ResponseCode.SYSTEM_ERROR),
            (json.dumps({"acks": [{**ack, "r": "7"}]}).encode(), ResponseCode.SYSTEM_ERROR),
            (json.dumps({"acks": [{**ack, "rq": 8}]}).encode(), ResponseCode.MESSAGE_ILLEGAL),
            (json.dumps({"acks": [{**ack, "pt": 2**70}]}).encode(), ResponseCode.SYSTEM_ERROR),
            (json.dumps({"acks": [{**ack, "t": "no"}]}).encode(), ResponseCode.SUCCESS),
            (json.dumps({"acks": [{**ack, "c": "no"}]}).encode(),
             ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            (json.dumps({"brokerName": "b" * 1025, "acks": [ack]}).encode(),
             ResponseCode.INVALID_PARAMETER),
        ):
            reply = self.box.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)
            self.assertEqual(reply.code, code, msg=repr(body))


    def test_as_many_as_a_check_point_has(self) -> None:
        """All messages of a check point may be acknowledged at once; one more bit is invalid."""
        self.send_some(33, 1)
        popped = self.pop()
        self.assertEqual(len(popped), CHECK_POINT_MESSAGES_MAX)
        self.assertEqual(self.ask_batch_ack(*popped, *self.pop()).code,
                         ResponseCode.INVALID_PARAMETER)
        self.assertEqual(self.ask_batch_ack(*popped).code, ResponseCode.SUCCESS)
        self.pass_time(8000)
        self.assertEqual(self.retries(), [b"32"])

    def test_far_apart(self) -> None:
        """Messages that a filter skipped lie between two messages of one check point."""
        for number in range(700):
            self.send(b"%d" % number, tag="a" if number in (0, 699) else "b")
        popped = self.pop(expression="a")
        self.assertEqual([each.offset for each in popped], [0, 699])
        self.assertEqual(self.ask_batch_ack(*popped).code, ResponseCode.SUCCESS)
        self.pass_time(8000)
        self.assertEqual(self.retries(), [])

    def test_as_many_as_a_frame_needs(self) -> None:
        """More check points than any pop makes, or more bytes, are refused before they are read."""
        ack = {"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1,
               "b": "AQ=="}
        self.send(b"x")
        self.pop()
        for count, code in ((BATCH_ACK_POINTS_MAX, ResponseCode.SUCCESS),
                            (BATCH_ACK_POINTS_MAX + 1, ResponseCode.INVALID_PARAMETER)):
            acks = json.dumps({"acks": [ack] * count}).encode()
            self.assertEqual(self.box.ask(RequestCode.BATCH_ACK_MESSAGE, None, acks).code, code)
        room = BATCH_ACK_SIZE_MAX - len(json.dumps({"acks": [ack]}))
        for size, code in ((room, ResponseCode.SUCCESS),
                           (room + 1, ResponseCode.INVALID_PARAMETER)):
            body = json.dumps({"acks": [ack]}).encode() + b" " * size
            self.assertEqual(self.box.ask(RequestCode.BATCH_ACK_MESSAGE, None, body).code, code)


class OrderTests(PopTestCase):
    """Acknowledgements of a group with ordered consumption."""

    def offsets(self) -> dict[str, dict[int, int]]:
        """Return the consumer offsets of all groups except the internal ones."""
        return {key: dict(queues) for key, queues in self.box.kernel.consumer_offset.table.items()
                if REVIVE_GROUP not in key}

    def test_made_up(self) -> None:
        """A receipt of no pop moves no offset and makes no group, alone or in a batch."""
        self.send_some(3, 1)
        self.pop(order=True, count=1)
        self.pop(group="unordered", count=1)
        before = self.offsets()
        groups = set(self.box.kernel.subscription_group.table)
        for group, code in (("g", ResponseCode.SUCCESS), ("nobody", None), ("a@b\n", None),
                            ("unordered", ResponseCode.MESSAGE_ILLEGAL), ("n" * 60_000, None)):
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST if code is None else code
            header = AckMessageRequestHeader(
                consumer_group=group, topic="T", queue_id=0, extra_info="0 1 1 999 0 b 0 0",
                offset=0)
            self.assertEqual(self.box.ask(RequestCode.ACK_MESSAGE, header).code, code)
            body = json.dumps({"acks": [{
                "c": group, "t": "T", "r": "0", "so": 0, "q": 0, "rq": ORDER_REVIVE_QUEUE,
                "pt": 1, "it": 1, "b": "AQ=="}]}).encode()
            self.assertEqual(self.box.ask(RequestCode.BATCH_ACK_MESSAGE, None, body).code, code)
        self.assertEqual(self.offsets(), before)
        self.assertEqual(set(self.box.kernel.subscription_group.table), groups)

    def test_after_a_reset(self) -> None:
        """Messages that were popped before a reset no longer move the offset."""
        self.send_some(3, 1)
        popped = self.pop(order=True)
        self.box.kernel.consumer_offset.reset("g", "T", 0, 1)
        self.pop(order=True, count=1)
        self.service.state.orders.clear(("T", "g", 0))
        self.assertEqual(self.ask_ack(popped[2]).code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual(self.offset(), 1)

    def test_consumer_offset(self) -> None:
        """The group's offset is the offset of the first message without an acknowledgement."""
        self.send_some(3, 1)
        popped = self.pop(order=True)
        self.assertEqual(popped[0].receipt.split(" ")[3], str(ORDER_REVIVE_QUEUE))
        for index, offset in ((1, 0), (0, 2), (2, 3)):
            self.ack(popped[index])
            self.assertEqual(self.offset(), offset)

    def test_in_a_batch(self) -> None:
        """One request acknowledges several messages."""
        self.send_some(3, 1)
        popped = self.pop(order=True)
        self.assertEqual(self.ask_batch_ack(*popped).code, ResponseCode.SUCCESS)
        self.assertEqual(self.offset(), 3)

    def test_not_given_out(self) -> None:
        """A message that was not popped is refused."""
        self.send_some(3, 1)
        [first] = self.pop(order=True, count=1)
        header = self.ack_header(first)
        header.offset = 2
        reply = self.box.ask(RequestCode.ACK_MESSAGE, header)
        self.assertEqual(reply.code, ResponseCode.MESSAGE_ILLEGAL)

    def test_of_an_older_pop(self) -> None:
        """The acknowledgement of an earlier pop does not count after the message
        was popped again.
        """
        self.send(b"x")
        [old] = self.pop(order=True)
        self.box.now_ms += 6000
        [new] = self.pop(order=True)
        self.ack(old)
        self.assertEqual(self.offset(), 0)
        self.ack(new)
        self.assertEqual(self.offset(), 1)
