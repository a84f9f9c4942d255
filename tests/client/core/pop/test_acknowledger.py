"""The acknowledgements of popped messages."""

from __future__ import annotations

from tests.client.core.pop.pop_case import PopCase
from twistmq.protocol.bodies import (
    MessageQueue,
)
from twistmq.protocol.codes import RequestCode, ResponseCode


class AcknowledgerTests(PopCase):
    """They are sent together, repeated, and never sent too late."""

    def test_finished_messages_are_acknowledged_together(self) -> None:
        """A broker without batches gets them one by one."""
        box = self.start()
        batch = self.take()
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual((box.broker.acks, box.broker.batches), ([0, 2, 4, 6, 8], 1))
        box.broker.refusals = {
            RequestCode.BATCH_ACK_MESSAGE: ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
        batch = self.take()
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(sorted(box.broker.acks), list(range(10)))
        self.assertEqual(box.pop.acks.count, 0)
        for number in range(3):
            box.broker.put(b"%d" % number, 0)
        batch = self.take()
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(len(box.broker.acks), 13)
        asked = [request for _, request in box.requests
                 if request.code == RequestCode.BATCH_ACK_MESSAGE]
        self.assertEqual(len(asked), 2)

    def test_receipts_of_retries_name_the_topic_of_their_kind(self) -> None:
        """Both kinds of names are tested; the message has the topic of the subscription."""
        for mark, topic in (("1", "%RETRY%g_T"), ("2", "%RETRY%g+T")):
            box = self.start(0)
            box.broker.retry_mark = mark
            box.broker.put(b"1", 0)
            batch = self.take()
            [message] = batch.messages
            self.assertEqual((message.topic, message.queue), ("T", MessageQueue("T", "a", 0)))
            box.member.succeed(batch.assigned, [message])
            box.settle()
            [ack] = [request.fields() for _, request in box.requests
                     if request.code == RequestCode.ACK_MESSAGE]
            self.assertEqual(ack["topic"], topic)
            self.assertEqual(box.broker.acks, [1])

    def test_an_acknowledgement_is_tried_again_while_its_receipt_is_valid(self) -> None:
        """A broker that is away for a while costs no second delivery."""
        box = self.start(1)
        batch = self.take()
        box.broker.silent = {RequestCode.ACK_MESSAGE}
        box.broker.refusals = {RequestCode.ACK_MESSAGE: ResponseCode.SYSTEM_BUSY}
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(20_000)
        self.assertEqual(box.broker.acks, [])
        box.broker.refusals, box.broker.silent = {}, set()
        box.advance(2000)
        self.assertEqual(box.broker.acks, [0])

    def test_an_acknowledgement_whose_receipt_ended_is_not_sent(self) -> None:
        """Another member may have the message."""
        box = self.start(1, invisible_s=5)
        batch = self.take()
        box.broker.refusals = {RequestCode.ACK_MESSAGE: ResponseCode.SYSTEM_BUSY}
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(5500)
        box.broker.refusals = {}
        box.advance(5000)
        self.assertEqual((box.broker.acks, box.pop.acks.count), ([], 0))
        self.assertEqual(box.broker.open(), [0])

    def test_an_acknowledgement_waits_for_a_change_that_is_under_way(self) -> None:
        """Otherwise it would have the old receipt, and the message would be delivered again."""
        box = self.start(1, invisible_s=10)
        batch = self.take()
        [message] = batch.messages
        changing = box.engine.tasks.spawn(box.pop.acks.change(message, 9000))  # type: ignore[arg-type]
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertTrue(changing.is_done)
        self.assertEqual(box.broker.acks, [0])
        codes = [request.code for _, request in box.requests][-2:]
        self.assertEqual(codes, [RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                                 RequestCode.ACK_MESSAGE])
