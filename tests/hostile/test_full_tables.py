"""Tables that an attacker has filled: other clients continue."""

from __future__ import annotations

from tests.hostile.case import HostileCase
from tests.interop.servers import Servers
from twistmq.broker.testing.raw_client import RawClient, send_header
from twistmq.plugins.orderly import LOCK_QUEUES_MAX
from twistmq.protocol.bodies import (
    ConsumerData,
    CreateTopicListRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    SubscriptionData,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader

_A_FRAME = 4000


class FullTopicTableTests(HostileCase):
    """A topic table with room for no ordinary topic."""

    growth_max_kib = 256 * 1024

    def make_servers(self) -> Servers:
        return self.own_servers()

    def test_groups_go_on(self) -> None:
        """A new group registers, receives a message, and sends it back."""
        attacker, client = RawClient(self.broker, 30.0), RawClient(self.broker)
        self.addCleanup(attacker.close)
        self.addCleanup(client.close)
        number, count, reply = 0, _A_FRAME, None
        while count:
            # Ever fewer at once, until not one more fits.
            topics = [TopicConfig(f"{each:06}".ljust(127, "n"), 1, 1)
                      for each in range(number, number + count)]
            reply = attacker.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
                                     body=CreateTopicListRequestBody(topics).encode_standard())
            if reply.code == ResponseCode.SUCCESS:
                number += count
            else:
                count //= 5
        assert reply is not None
        self.assertIn("topics", reply.remark or "")
        heartbeat = HeartbeatData("new", consumer_data_set=(ConsumerData(
            "new_group", subscription_data_set=(SubscriptionData("good_topic"),)),))
        self.assertEqual(client.request(
            RequestCode.HEART_BEAT, body=heartbeat.encode_standard()).code, 0)
        [message, *_] = client.pull("good_topic", 0, group="new_group")
        for level in (0, -1):
            back = client.request(
                RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
                    offset=message.physical_offset, group="new_group", delay_level=level,
                    origin_topic="good_topic"))
            self.assertEqual((back.code, back.remark), (0, None))
        # One that is ordinary is refused, with the reason.
        refused = client.request(
            RequestCode.SEND_MESSAGE_V2, send_header("one_more".ljust(127, "n"), 0), b"")
        self.assertEqual(refused.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("topics", refused.remark or "")


class LockTableTests(HostileCase):
    """The table of locks is full with groups that do not exist."""

    growth_max_kib = 128 * 1024

    def make_servers(self) -> Servers:
        return self.own_servers()

    def test_group_locks(self) -> None:
        """A group that registers gets its queues."""
        attacker, client = RawClient(self.broker, 30.0), RawClient(self.broker)
        self.addCleanup(attacker.close)
        self.addCleanup(client.close)
        queues = tuple(MessageQueue("good_topic", "b", number)
                       for number in range(LOCK_QUEUES_MAX))
        for number in range(40):
            reply = attacker.request(RequestCode.LOCK_BATCH_MQ, body=LockBatchRequestBody(
                f"{number}", "attacker", mq_set=queues).encode_standard())
            if reply.code:
                break
        self.assertEqual(reply.code, ResponseCode.SYSTEM_BUSY)
        heartbeat = HeartbeatData("new", consumer_data_set=(ConsumerData(
            "new_group", subscription_data_set=(SubscriptionData("good_topic"),)),))
        self.assertEqual(client.request(
            RequestCode.HEART_BEAT, body=heartbeat.encode_standard()).code, 0)
        own = queues[:4]
        reply = client.request(RequestCode.LOCK_BATCH_MQ, body=LockBatchRequestBody(
            "new_group", "new", mq_set=own).encode_standard())
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        self.assertEqual(LockBatchResponseBody.decode(reply.body).lock_ok_mq_set, own)


class StatisticsTests(HostileCase):
    """A sender invents names in properties that no other client uses."""

    def test_forged_origins(self) -> None:
        """Retries with invented original topics leave nothing in memory."""
        with RawClient(self.broker, 30.0) as attacker:
            for begin in range(0, 2500, 50):
                asked = []
                for number in range(begin, begin + 50):
                    header = send_header("%RETRY%forgers", 0, properties={
                        "RETRY_TOPIC": f"{number}".ljust(30_000, "n")})
                    header.reconsume_times = 99
                    asked.append(attacker.begin(RequestCode.SEND_MESSAGE_V2, header, b""))
                for reply in map(attacker.reply, asked):
                    self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
