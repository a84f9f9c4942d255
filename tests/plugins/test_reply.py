"""Reply messages: they are pushed to the requester and stored, and the replier gets a response."""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.request.client_table import Client
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox, Peer, SentRequest
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import reply
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingSendError, RemotingTimeout
from twistmq.protocol.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from twistmq.protocol.log_rate import LINES_A_MINUTE
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.properties import parse_properties
from twistmq.protocol.record import StoredMessage, decode_record

TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKED = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "10.0.0.9@1", "TTL": "3000",
         "MSG_TYPE": "reply"}


class ReplyTestCase(SynchronousTestCase):
    """A kernel with the plugin, a requester and a replier."""

    def setUp(self) -> None:
        self.start()

    def start(self, **settings: str) -> None:
        self.disk = FaultyDisk()
        self.box = KernelBox([("reply", reply.Plugin)], settings, self.disk)
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel
        self.asker, self.answerer = self.box.peer(), self.box.peer()
        self.register(self.asker)

    def register(self, peer: Peer, client_id: str = "10.0.0.9@1", group: str = "P") -> None:
        self.kernel.clients.register_producer(
            group, Client(client_id, peer, "JAVA", 479, self.box.now_ms, self.box.now_ms))

    def answer(self, properties: dict[str, str] | None = None, *, queue_id: int = 0,
               topic: str = TOPIC, body: bytes = b"answer") -> RemotingCommand | None:
        """Send a reply message; :returns: the immediate response."""
        header = send_header(topic, self.box.now_ms, queue_id=queue_id,
                             properties=ASKED if properties is None else properties)
        return self.box.send(self.answerer, RequestCode.SEND_REPLY_MESSAGE_V2, header, body)

    def pushed(self) -> SentRequest:
        [push] = self.asker.requests
        return push

    def take(self, code: int = ResponseCode.SUCCESS) -> RemotingCommand:
        """Answer the push as the requester; :returns: the response that the replier gets."""
        push = self.pushed()
        assert push.reply is not None
        push.reply.callback(RemotingCommand(code, flag=1, remark="no room"))
        [told] = self.box.late_replies(self.answerer)
        return told

    def stored(self) -> list[StoredMessage]:
        found = self.kernel.store.get_message(TOPIC, 0, 0, 32).messages
        return [decode_record(data) for data in found]

    def assert_told(self, told: RemotingCommand | None, code: int, remark: str | None,
                    **fields: Any) -> None:
        assert told is not None
        self.assertEqual((told.code, told.remark), (code, remark))
        self.assertEqual(told.fields(), {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
                                           **fields})


class PushTests(ReplyTestCase):
    """The way of a reply to its requester."""

    def test_asker_gets_the_answer(self) -> None:
        """The push has all that was sent, with the time; the response to the
        replier waits for it.
        """
        self.box.now_ms += 5
        header = send_header(TOPIC, 1234, properties=ASKED)
        header.sys_flag, header.flag, header.reconsume_times, header.unit_mode = 1, 7, 2, True
        self.assertIsNone(self.box.send(
            self.answerer, RequestCode.SEND_REPLY_MESSAGE_V2, header, b"answer"))
        push = self.pushed()
        self.assertEqual((push.code, push.body, push.timeout_ms), (
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer", 10_000))
        assert isinstance(push.header, ReplyMessageRequestHeader)
        self.assertEqual(parse_properties(push.header.properties or ""),
                         {**ASKED, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
                          "PUSH_REPLY_TIME": str(self.box.now_ms)})
        push.header.properties = None
        self.assertEqual(push.header, ReplyMessageRequestHeader(
            producer_group="test_producer", topic=TOPIC, default_topic="TBW102",
            default_topic_queue_nums=4, queue_id=0, sys_flag=1, born_timestamp=1234, flag=7,
            born_host=self.answerer.remote_address, store_host="127.0.0.1:10911",
            store_timestamp=self.box.now_ms, reconsume_times=2, unit_mode=True))
        told = self.take()
        [message] = self.stored()
        place = offset_message_id(message.store_host, message.physical_offset)
        self.assert_told(told, ResponseCode.SUCCESS, None, msgId=place, queueId="0",
                         queueOffset="0")

    def test_first_form_of_the_request(self) -> None:
        """The code 324 is served as 325 is."""
        header = send_header(TOPIC, self.box.now_ms, properties=ASKED)
        first = SendMessageRequestHeader(
            **{name: getattr(header, name) for name in SendMessageRequestHeader.__struct_fields__})
        self.assertIsNone(self.box.send(
            self.answerer, RequestCode.SEND_REPLY_MESSAGE, first, b"answer"))
        self.assertEqual(self.take().code, ResponseCode.SUCCESS)

    def test_asker_does_not_take_it(self) -> None:
        """Its refusal is passed on without the reason, as by Apache; the reply is stored."""
        self.assertIsNone(self.answer())
        told = self.take(ResponseCode.SYSTEM_ERROR)
        self.assertEqual((told.code, told.remark),
                         (ResponseCode.SYSTEM_ERROR, "push reply message to 10.0.0.9@1fail."))
        self.assertEqual(told.header(SendMessageResponseHeader).queue_offset, 0)
        self.assertEqual(len(self.stored()), 1)

    def test_push_fails(self) -> None:
        """A lost connection and a silent requester have the same response."""
        for error in (RemotingTimeout("silent"), RemotingSendError("lost")):
            self.start(storeReplyMessageEnable="false")
            self.assertIsNone(self.answer())
            pending = self.pushed().reply
            assert pending is not None
            pending.errback(error)
            [told] = self.box.late_replies(self.answerer)
            self.assert_told(told, ResponseCode.SYSTEM_ERROR,
                             "push reply message to 10.0.0.9@1fail.")

    def test_asker_is_gone(self) -> None:
        """The response is sent immediately, and the reply is stored."""
        self.asker.active = False
        self.kernel.channels.remove(self.asker)
        told = self.answer()
        assert told is not None
        self.assertEqual(
            (told.code, told.remark),
            (ResponseCode.SYSTEM_ERROR,
             "push reply message fail, channel of <10.0.0.9@1> not found."))
        self.assertEqual(told.header(SendMessageResponseHeader).queue_offset, 0)
        self.assertEqual([message.body for message in self.stored()], [b"answer"])

    def test_nobody_is_named(self) -> None:
        """The reply message does not name its requester."""
        told = self.answer({"CORRELATION_ID": "c1"})
        assert told is not None
        self.assertEqual((told.code, told.remark),
                         (ResponseCode.SYSTEM_ERROR,
                          "reply message properties[REPLY_TO_CLIENT] is null"))

    def test_lines_of_the_log(self) -> None:
        """Many replies to clients that have left do not fill the log."""
        for properties in ({**ASKED, "REPLY_TO_CLIENT": "nobody"}, {"CORRELATION_ID": "c1"}):
            with capturedLogs() as events:
                for _ in range(50):
                    self.assertIsNotNone(self.answer(properties))
            self.assertEqual(len([event for event in events
                                  if event["log_level"] is LogLevel.warn]), LINES_A_MINUTE)
        with capturedLogs() as events:
            for _ in range(50):
                self.answer()
            for code in (ResponseCode.SYSTEM_ERROR, None):
                for push in self.asker.requests[:25] if code else self.asker.requests[25:]:
                    assert push.reply is not None
                    if code is None:
                        push.reply.errback(RemotingTimeout("silent"))
                    else:
                        push.reply.callback(RemotingCommand(code, flag=1, remark="no room"))
        self.assertEqual(len([event for event in events
                              if event["log_level"] is LogLevel.warn]), 2 * LINES_A_MINUTE)

    def test_asker_is_back_on_another_connection(self) -> None:
        """The newest live connection of the client id gets the reply."""
        self.register(again := self.box.peer())
        self.asker.active = False
        self.kernel.channels.remove(self.asker)
        self.assertIsNone(self.answer())
        self.assertEqual((len(again.requests), len(self.asker.requests)), (1, 0))
        pending = again.requests[0].reply
        assert pending is not None
        pending.callback(RemotingCommand(ResponseCode.SUCCESS, flag=1))


class CheckTests(ReplyTestCase):
    """Replies that are refused before the push, as sends are."""

    def test_queue_that_is_not_there(self) -> None:
        """The topic has one queue."""
        told = self.answer(queue_id=1)
        assert told is not None
        self.assertEqual(told.code, ResponseCode.INVALID_PARAMETER)
        self.assertIn("request queueId[1] is illegal, ", told.remark or "")
        self.assertEqual(self.asker.requests, [])

    def test_topic_that_nobody_may_send_to(self) -> None:
        """A topic of the broker, and an invalid name."""
        for topic, code in (("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
                            ("no/name", ResponseCode.INVALID_PARAMETER)):
            told = self.answer(topic=topic)
            assert told is not None
            self.assertEqual(told.code, code, msg=topic)
            self.assertEqual(told.fields(), {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})
        self.assertEqual(self.asker.requests, [])

    def test_broker_chooses_the_queue(self) -> None:
        """A negative queue id lets the broker choose; the push has the original value."""
        self.assertIsNone(self.answer(queue_id=-1))
        header = self.pushed().header
        assert isinstance(header, ReplyMessageRequestHeader)
        self.assertEqual(header.queue_id, -1)
        self.assertEqual(self.take().header(SendMessageResponseHeader).queue_id, 0)


class StoreTests(ReplyTestCase):
    """The storage of replies."""

    def test_it_is_not_stored(self) -> None:
        """With storeReplyMessageEnable=false the sender is given ids that clients can read."""
        self.start(storeReplyMessageEnable="false")
        self.assertIsNone(self.answer())
        self.assert_told(self.take(), ResponseCode.SUCCESS, None, msgId="0", queueId="0",
                         queueOffset="0")
        self.assertEqual(self.stored(), [])

    def test_compressed_answer_can_be_read(self) -> None:
        """The stored message has the flag for a compressed body, and no other flags."""
        header = send_header(TOPIC, self.box.now_ms, properties=ASKED)
        header.sys_flag = 0x301 | 0x4
        self.assertIsNone(self.box.send(
            self.answerer, RequestCode.SEND_REPLY_MESSAGE_V2, header, b"zipped"))
        self.take()
        [message] = self.stored()
        self.assertEqual(message.sys_flag, 0x301)
        self.assertEqual(message.properties_map(),
                         {**ASKED, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})

    def test_disk_is_full(self) -> None:
        """A reply that was delivered counts, even if it cannot be stored."""
        self.disk.room_bytes = 0
        self.assertIsNone(self.answer())
        self.assert_told(self.take(), ResponseCode.SUCCESS, None, msgId="0", queueId="0",
                         queueOffset="0")

    def test_sync_flush(self) -> None:
        """With SYNC_FLUSH the replier gets its response when the reply is durable."""
        self.start(flushDiskType="SYNC_FLUSH")
        self.assertIsNone(self.answer())
        self.assertEqual(self.take().code, ResponseCode.SUCCESS)
        self.assertGreaterEqual(self.kernel.store.commit_log.flushed_offset, self.stored()[0].size)

    def test_stored_answers_are_among_the_messages_put_into_the_topic(self) -> None:
        """Stored answers are among the messages put into the topic."""
        self.assertIsNone(self.answer())
        self.take()
        self.assertEqual(self.kernel.stats.put_total, 1)
