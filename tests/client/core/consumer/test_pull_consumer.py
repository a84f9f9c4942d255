"""A pull member, as brokers and tools see it."""

from __future__ import annotations

from tests.client.core.consumer.pull_case import PullCase
from tests.client.core.group_box import BROKER
from twistmq.protocol.bodies import ConsumeType, HeartbeatData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.headers.client import ConsumeMessageDirectlyResultRequestHeader


class BrokerTests(PullCase):
    """The differences from a member with handlers."""

    def test_the_messages_of_a_poll_are_not_timed(self) -> None:
        """No message is sent back, and there is no retry topic."""
        self.poll()
        self.box.advance(3_600_000)
        self.assertEqual(self.broker.sent_back, [])
        beats = [HeartbeatData.decode(request.body) for _, request in self.box.requests
                 if request.code == RequestCode.HEART_BEAT]
        [data] = beats[-1].consumer_data_set
        self.assertEqual((data.consume_type, [each.topic for each in data.subscription_data_set]),
                         (ConsumeType.CONSUME_ACTIVELY, ["T"]))

    def test_a_tool_cannot_give_it_a_message(self) -> None:
        """No handler would answer."""
        self.box.push(BROKER, encode_request(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, 7, ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g"), self.broker.records["T", 0][0]))
        self.box.settle()
        [answer] = [request for _, request in self.box.requests if request.is_response]
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("is polled", answer.remark or "")
