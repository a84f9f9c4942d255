"""Messages that are sent back."""

from __future__ import annotations

from tests.client.core.box import NAMESRV, Answer, routes, stored
from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.client.core.consumer.retries import Retries
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.properties import parse_properties


class RetryTests(MemberCase):
    """They are sent to the broker, and to the retry topic."""

    def test_a_failed_message_is_sent_back_and_counts_as_finished(self) -> None:
        """The broker delivers it again later."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 1)
        box.member.fail(batch.assigned, batch.messages, 5)
        box.advance(15_000)
        [header] = self.broker.sent_back
        self.assertEqual((header.delay_level, header.max_reconsume_times), (5, 16))
        self.assertEqual(self.broker.offsets["g", "T", batch.assigned.queue.queue_id], 1)

    def test_a_message_that_cannot_be_sent_back_waits_here(self) -> None:
        """It is handed out again five seconds later, and its offset is not committed."""
        self.broker.refusals[RequestCode.CONSUMER_SEND_MSG_BACK] = ResponseCode.SYSTEM_ERROR
        box = GroupBox(self.broker)
        box.start()
        box.take_all()
        [assigned] = [each for each in box.member.assigned_queues.values()
                      if each.queue == queue(1)]
        [message] = [each for each in assigned.window.running() if each.offset == 0]
        box.member.fail(assigned, [message])
        box.advance(20_000)
        batch = self.take(box, 10)
        self.assertEqual([each.offset for each in batch.messages], [0])
        self.assertEqual(batch.messages[0].attempt, 2)

    def test_a_message_that_cannot_be_sent_back_goes_to_the_retry_topic(self) -> None:
        """The member sends a copy itself; the message counts as finished and waits nowhere."""
        self.broker.refusals[RequestCode.CONSUMER_SEND_MSG_BACK] = ResponseCode.SYSTEM_ERROR
        box = GroupBox(self.broker)
        sent: list[SendMessageRequestHeaderV2] = []

        def serve(command: RemotingCommand) -> Answer:
            if command.code != RequestCode.SEND_MESSAGE_V2:
                return self.broker(command)
            sent.append(command.header(SendMessageRequestHeaderV2))
            self.assertEqual(command.body, b"0")
            return stored(command)

        box.servers[BROKER] = serve
        box.servers[NAMESRV] = routes({"T": box.route, "%RETRY%g": box.route})
        box.start()
        batch = next(batch for batch in iter(lambda: self.take(box, 1), None)
                     if batch.messages[0].body == b"0")
        box.member.fail(batch.assigned, batch.messages)
        box.advance(20_000)
        [header] = sent
        self.assertEqual((header.topic, header.reconsume_times, header.max_reconsume_times),
                         ("%RETRY%g", 1, 16))
        self.assertEqual(self.broker.offsets["g", "T", 0], 1)
        self.assertNotIn(0, box.take_all())

    def test_the_copy_for_the_retry_topic_counts_the_attempt(self) -> None:
        """Its delay grows with each attempt, and the message becomes a dead letter at last."""
        for times in (0, 2):
            broker = GroupBroker(1)
            broker.put("T", 0, b"tried", reconsume_times=times)
            box = GroupBox(broker)
            box.start()
            [message] = self.take(box, 1).messages
            copy = Retries(box.core, "g", box.member.sender, 16).copy(message)
            self.assertEqual((copy.topic, copy.reconsume_times, copy.max_reconsume_times),
                             ("%RETRY%g", times + 1, 16))
            properties = parse_properties(copy.properties)
            self.assertEqual((properties["DELAY"], properties["RETRY_TOPIC"]),
                             (str(times + 3), "T"))
