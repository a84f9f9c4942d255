"""Request messages and their replies: results, dropped replies, and the end of a wait."""

from __future__ import annotations

from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes, stored
from twistmq.client.base.errors import (
    Busy,
    Closed,
    OptionError,
    RequestRefused,
    RequestTimeout,
    SendFailed,
)
from twistmq.client.base.messages import Message, MessageQueue, ReceivedMessage
from twistmq.client.core.connection.tasks import Task
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.replies import prepare_request, reply_to, request
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.headers.send import ReplyMessageRequestHeader, SendMessageResponseHeader
from twistmq.protocol.properties import (
    CLUSTER,
    CORRELATION_ID,
    MSG_TYPE,
    REPLY_TO_CLIENT,
    TTL,
    format_properties,
    parse_properties,
)
from twistmq.protocol.record import MAGIC_V1, StoredMessage

A, B = "10.0.0.2:10911", "10.0.0.3:10911"


class ReplyCase(SynchronousTestCase):
    """A client with two brokers of one cluster; the topic is at the first."""

    def setUp(self) -> None:
        """Create the client."""
        self.box = Box()
        self.box.servers[NAMESRV] = routes({
            "T": route({"a": A}), "c_REPLY_TOPIC": route({"a": A, "b": B}, queues=1)})
        self.box.servers[A] = self.box.servers[B] = stored
        ids = count()
        self.sender = Sender(self.box.core, ProducerOptions(group="g"),
                             lambda now_ms: f"ID{next(ids)}")
        self.box.core.add(self.sender)
        self.box.settle()

    def sent(self, *codes: int) -> list[tuple[str, RemotingCommand]]:
        """The requests of these codes that brokers got, with their addresses."""
        return [(where, command) for where, command in self.box.requests if command.code in codes]


class RequestTests(ReplyCase):
    """The side of the producer."""

    def begin(self, timeout_ms: float = 3000) -> Task[ReceivedMessage[Any]]:
        """Send a request message."""
        prepared = prepare_request(self.sender, Message("T", b"question"), timeout_ms)
        task = self.box.engine.tasks.spawn(request(self.sender, prepared, None, timeout_ms))
        task.when_done(lambda _: None)
        self.box.settle()
        return task

    def push(self, correlation_id: str, body: bytes = b"answer") -> None:
        """Let the second broker push a reply."""
        header = ReplyMessageRequestHeader(
            producer_group="x", topic="c_REPLY_TOPIC", default_topic="", queue_id=0,
            default_topic_queue_nums=4, sys_flag=0, born_timestamp=1, flag=0,
            born_host="10.0.0.7:1", store_host="10.0.0.3:10911", store_timestamp=2,
            properties=format_properties({CORRELATION_ID: correlation_id, "k": "v"}))
        self.box.push(B, encode_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 77, header, body))
        self.box.settle()

    def properties(self) -> dict[str, str]:
        """Return the properties of the last request message."""
        _, command = self.sent(RequestCode.SEND_MESSAGE_V2)[-1]
        return parse_properties(command.fields()["i"])

    def test_all_brokers_of_the_cluster_get_a_heartbeat_before_the_first_request(self) -> None:
        """A broker without the topic may push the reply; later requests register at new brokers."""
        self.begin()
        order = [(where, command.code) for where, command in self.sent(
            RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2)]
        first_send = order.index((A, RequestCode.SEND_MESSAGE_V2))
        self.assertEqual({where for where, _ in order[:first_send]}, {A, B})
        self.box.requests.clear()
        self.begin()
        self.assertEqual(self.sent(RequestCode.HEART_BEAT), [])
        self.box.cut(B)
        self.begin()
        self.assertIn(B, {where for where, _ in self.sent(RequestCode.HEART_BEAT)})

    def test_a_reply_ends_the_wait_of_its_request_and_is_answered(self) -> None:
        """The message has the requester and the time-out."""
        tasks = [self.begin(), self.begin(1500)]
        properties = self.properties()
        self.assertEqual((properties[REPLY_TO_CLIENT], properties[TTL]), ("10.0.0.1@test", "1500"))
        self.push(properties[CORRELATION_ID])
        self.assertFalse(tasks[0].is_done)
        reply = tasks[1].result()
        self.assertEqual((reply.body, reply.properties["k"], reply.born_host),
                         (b"answer", "v", "10.0.0.7:1"))
        [answer] = [command for where, command in self.box.requests if command.is_response]
        self.assertEqual((answer.opaque, answer.code), (77, ResponseCode.SUCCESS))

    def test_a_wait_ends_in_time_and_a_late_reply_is_dropped(self) -> None:
        """The late one is answered, so that the broker does not complain."""
        task = self.begin(1000)
        correlation_id = self.properties()[CORRELATION_ID]
        self.box.advance(990)
        self.assertFalse(task.is_done)
        self.box.advance(20)
        self.assertRaises(RequestTimeout, task.result)
        self.push(correlation_id)
        self.push("of no request")
        answers = [command.code for _, command in self.box.requests if command.is_response]
        self.assertEqual(answers, [ResponseCode.SUCCESS] * 2)

    def test_a_request_that_cannot_be_sent_fails_before_its_time(self) -> None:
        """The request fails with the error of the send."""
        self.box.servers[A] = lambda command: (ResponseCode.SYSTEM_ERROR, None, b"", "no")
        self.assertRaises(SendFailed, self.begin().result)

    def test_a_broker_that_stays_busy_is_told(self) -> None:
        """The error is the refusal, and not a missing reply, because nothing was stored."""
        for code in (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL):
            self.box.servers[A] = lambda command, code=code: (  # type: ignore[misc]
                (code, None, b"", "[PC_SYNCHRONIZED]broker busy")
                if command.code == RequestCode.SEND_MESSAGE_V2 else stored(command))
            task = self.begin(1000)
            self.box.advance(990)
            self.assertFalse(task.is_done)
            self.box.advance(80)
            self.assertIn("broker busy", str(self.assertRaises(Busy, task.result)))

    def test_a_broker_that_hangs_gives_no_reply(self) -> None:
        """The request may be stored, and the wait ends after its time-out."""
        self.box.servers[A] = lambda command: (
            None if command.code == RequestCode.SEND_MESSAGE_V2 else stored(command))
        task = self.begin(1000)
        self.box.advance(1080)
        self.assertRaises(RequestTimeout, task.result)

    def test_a_client_that_closes_ends_the_waits(self) -> None:
        """No call waits for ever."""
        task = self.begin()
        self.box.run(self.box.core.close())
        self.assertRaises(Closed, task.result)

    def test_a_request_with_a_delay_is_refused(self) -> None:
        """Its time-out would be over."""
        self.assertRaises(OptionError, prepare_request, self.sender,
                          Message("T", b"1", delay_level=3), 1000)


class ReplyTests(ReplyCase):
    """The side of the consumer."""

    def question(self, **changes: str) -> ReceivedMessage[Any]:
        """A request message that was read from the second broker."""
        properties = {CLUSTER: "c", CORRELATION_ID: "ID", REPLY_TO_CLIENT: "x@1", TTL: "500",
                      **changes}
        record = StoredMessage(0, MAGIC_V1, 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0,
                               b"question", "T", format_properties(properties))
        return ReceivedMessage(record, MessageQueue("T", "b", 0), 0, "T")

    def reply(self, **changes: str) -> None:
        """Send a reply."""
        self.box.run(reply_to(self.sender, self.question(**changes), b"answer"))

    def test_a_reply_goes_to_the_broker_that_has_the_question(self) -> None:
        """It has the client and the id of the request."""
        self.reply()
        [(where, command)] = self.sent(RequestCode.SEND_REPLY_MESSAGE_V2)
        self.assertEqual((where, command.fields()["b"], command.body),
                         (B, "c_REPLY_TOPIC", b"answer"))
        found = parse_properties(command.fields()["i"])
        self.assertEqual((found[MSG_TYPE], found[CORRELATION_ID], found[REPLY_TO_CLIENT],
                          found[TTL]), ("reply", "ID", "x@1", "500"))

    def test_a_broker_that_is_gone_is_replaced(self) -> None:
        """Every broker of the cluster knows the producer."""
        del self.box.servers[B]
        self.reply()
        self.assertEqual({where for where, _ in self.sent(RequestCode.SEND_REPLY_MESSAGE_V2)}, {A})

    def test_a_producer_that_is_gone_is_an_error_at_once(self) -> None:
        """The reply is not stored at the other broker as well."""
        def gone(command: RemotingCommand) -> Answer:
            return (ResponseCode.SYSTEM_ERROR, SendMessageResponseHeader("0", 0, 0), b"",
                    "channel not found")

        self.box.servers[A] = self.box.servers[B] = gone
        error = self.assertRaises(RequestRefused, self.reply)
        self.assertIn("channel not found", str(error))
        self.assertEqual(len(self.sent(RequestCode.SEND_REPLY_MESSAGE_V2)), 1)

    def test_only_a_request_message_can_be_replied_to(self) -> None:
        """Other messages have no requester."""
        for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT):
            self.assertRaises(OptionError, self.reply, **{name: ""})
