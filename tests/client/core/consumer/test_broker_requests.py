"""The answers of a member to requests that brokers send for tools."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.client.base.handlers import Retry, failure_level
from twistmq.client.core.consumer.broker_requests import DIRECT_MS, serve_tools
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies import (
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)


def queue(number: int) -> MessageQueue:
    """Return a queue of the topic."""
    return MessageQueue("T", "a", number)


class ToolCase(SynchronousTestCase):
    """A member with two queues of five messages each."""

    def setUp(self) -> None:
        """Start the member."""
        self.broker = GroupBroker(2)
        for number in range(10):
            self.broker.put("T", number % 2, b"%d" % number)
        self.start()

    def start(self, **options: Any) -> None:
        """Let a member of these options join."""
        self.box = GroupBox(self.broker, **options)
        serve_tools(self.box.core)
        self.box.start()

    def ask(self, code: int, header: CommandHeader, body: bytes = b"", *,
            oneway: bool = False) -> None:
        """Let the broker ask the member."""
        self.box.push(BROKER, encode_request(code, 77, header, body, oneway=oneway))
        self.box.settle()

    def answers(self) -> list[RemotingCommand]:
        """Return the answer of the member."""
        return [request for _, request in self.box.requests if request.is_response]


class OffsetTests(ToolCase):
    """The requests 220 and 221."""

    def reset(self, offsets: dict[MessageQueue, int], group: str = "g") -> None:
        """Let the broker set the offsets of the topic."""
        self.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                 ResetOffsetRequestHeader(group=group, topic="T"),
                 ResetOffsetBody(offsets).encode(), oneway=True)

    def test_a_reset_reads_the_queues_again_from_the_new_offsets(self) -> None:
        """Late results change nothing, and the offsets are committed at once."""
        batch = self.box.member.take(5)
        assert batch is not None
        self.box.take_all()
        self.reset({queue(0): 3, queue(1): 4})
        self.assertTrue(all(message.lost for message in batch.messages))
        self.assertEqual(self.broker.offsets, {("g", "T", 0): 3, ("g", "T", 1): 4})
        self.box.member.succeed(batch.assigned, batch.messages)
        self.box.advance(2000)
        self.assertEqual(sorted(self.box.take_all()), [6, 8, 9])
        self.box.advance(20_000)
        self.assertEqual(self.broker.offsets, {("g", "T", 0): 3, ("g", "T", 1): 4})
        self.assertEqual(self.answers(), [])

    def test_queues_of_other_members_and_other_groups_stay(self) -> None:
        """A negative offset is ignored as well."""
        self.reset({queue(7): 3, MessageQueue("U", "a", 0): 1, queue(0): -1})
        self.reset({queue(0): 3}, group="other")
        self.box.advance(2000)
        self.assertEqual(sorted(self.box.take_all()), list(range(10)))

    def test_resets_without_end_are_logged_ten_times_a_minute(self) -> None:
        """A broker may send any number of them."""
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            for number in range(50):
                self.reset({queue(0): number % 5})
        self.assertEqual(len(logs.output), 10)
        self.assertIn("continue at other offsets", logs.output[0])
        self.box.advance(60_000)
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            self.reset({queue(0): 1})
        self.assertIn("(40 more since the last line)", logs.output[0])

    def test_a_reset_moves_queues_of_its_own_topic_only(self) -> None:
        """The member has the queue that its body names, and the header names another topic."""
        self.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                 ResetOffsetRequestHeader(group="g", topic="U"),
                 ResetOffsetBody({queue(0): 3}).encode(), oneway=True)
        self.box.advance(2000)
        self.assertEqual(sorted(self.box.take_all()), list(range(10)))

    def test_the_status_is_how_far_each_queue_has_come(self) -> None:
        """An unknown group has no queues."""
        batch = self.box.member.take(2)
        assert batch is not None
        self.box.member.succeed(batch.assigned, batch.messages)
        for topic, group in (("T", "g"), ("", "g"), ("U", "g"), ("T", "other")):
            self.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                     GetConsumerStatusRequestHeader(topic=topic, group=group))
        other = queue(1 - batch.assigned.queue.queue_id)
        table = {batch.assigned.queue: 2, other: 0}
        self.assertEqual([GetConsumerStatusBody.decode(each.body).message_queue_table
                          for each in self.answers()], [table, table, {}, {}])


class RunningInfoTests(ToolCase):
    """The request 307."""

    def info(self, *, stack: bool = False, group: str = "g") -> RemotingCommand:
        """Request the state."""
        self.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id="10.0.0.1@test", jstack_enable=stack))
        return self.answers()[-1]

    def test_the_state_has_the_queues_and_the_rates_of_the_last_minute(self) -> None:
        """Times are in Unix ms."""
        member = self.box.member
        batch = member.take(4)
        assert batch is not None
        self.box.advance(200)
        member.succeed(batch.assigned, batch.messages[:3])
        member.fail(batch.assigned, batch.messages[3:])
        self.box.settle()
        info = ConsumerRunningInfo.decode(self.info().body)
        self.assertEqual((info.properties["PROP_CONSUME_TYPE"],
                          info.properties["PROP_CONSUMEORDERLY"]),
                         ("CONSUME_PASSIVELY", "false"))
        self.assertEqual({each.topic for each in info.subscription_set}, {"T", "%RETRY%g"})
        state = info.mq_table[batch.assigned.queue]
        self.assertEqual(
            [state[name] for name in ("commitOffset", "cachedMsgMinOffset", "cachedMsgMaxOffset",
                                      "cachedMsgCount", "locked", "droped")],
            [4, 4, 4, 1, False, False])
        self.assertEqual(state["lastConsumeTimestamp"], self.box.clock.wall_ms() - 200)
        rates = info.status_table["T"]
        self.assertEqual((rates["consumeOKTPS"], rates["consumeFailedMsgs"], rates["consumeRT"],
                          rates["pullTPS"]), (3 / 60, 1, 200.0, 10 / 60))
        self.assertIsNone(info.jstack)
        self.box.advance(70_000)
        rates = ConsumerRunningInfo.decode(self.info().body).status_table["T"]
        self.assertEqual((rates["consumeOKTPS"], rates["consumeFailedMsgs"]), (0.0, 1))

    def test_the_stacks_of_all_threads_come_when_asked_for(self) -> None:
        """For an unknown group the answer is an error."""
        info = ConsumerRunningInfo.decode(self.info(stack=True).body)
        assert info.jstack is not None
        self.assertIn("thread ", info.jstack)
        self.assertIn("test_the_stacks_of_all_threads", info.jstack)
        reply = self.info(group="other")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("no consumer of the group other", reply.remark or "")


class DirectTests(ToolCase):
    """The request 309."""

    def setUp(self) -> None:
        """Take all messages, so that only those of tools follow."""
        super().setUp()
        self.box.take_all()

    def consume(self, group: str = "g") -> None:
        """Let the broker hand out the third message of queue 0."""
        self.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id="10.0.0.1@test", msg_id="x", broker_name="a",
            topic="T"), self.broker.records["T", 0][2])

    def result(self) -> dict[str, Any]:
        """Return the body of the answer."""
        [answer] = self.answers()
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        found: dict[str, Any] = json_dialect.decode(answer.body)
        return found

    def end(self, error: Exception | None) -> None:
        """Let a handler process the message of the tool for 30 ms."""
        member = self.box.member
        batch = member.take(10)
        assert batch is not None
        [message] = batch.messages
        self.assertEqual((message.body, message.queue, message.offset), (b"4", queue(0), 2))
        self.box.advance(30)
        if error is None:
            member.succeed(batch.assigned, batch.messages)
        else:
            member.fail(batch.assigned, batch.messages, failure_level(message, error))
        self.box.settle()

    def test_a_message_of_a_tool_is_handed_out_and_its_result_is_the_answer(self) -> None:
        """It moves no offset."""
        self.consume()
        self.assertEqual(self.answers(), [])
        self.end(None)
        self.assertEqual(self.result(), {
            "order": False, "autoCommit": True, "consumeResult": "CR_SUCCESS", "remark": None,
            "spentTimeMills": 30})
        self.box.advance(20_000)
        self.assertEqual(self.broker.offsets, {("g", "T", 0): 0, ("g", "T", 1): 0})

    def test_a_failure_is_told_and_not_sent_back(self) -> None:
        """The remark is the text of the error."""
        for error, result in ((ValueError("bad"), "CR_THROW_EXCEPTION"), (Retry(3), "CR_LATER")):
            self.box.requests.clear()
            self.consume()
            self.end(error)
            self.assertEqual(self.result()["consumeResult"], result)
            self.assertEqual(self.result()["remark"],
                             "ValueError('bad')" if result != "CR_LATER" else None)
        self.assertEqual(self.broker.sent_back, [])

    def test_a_member_in_order_takes_it_too(self) -> None:
        """The lock of the message's queue is not needed."""
        self.start(in_order=True)
        self.box.take_all()
        self.consume()
        self.end(None)
        self.assertEqual((self.result()["order"], self.result()["consumeResult"]),
                         (True, "CR_SUCCESS"))

    def test_a_handler_that_takes_too_long_is_an_error_and_leaves_nothing(self) -> None:
        """A group that the client does not have is an error as well."""
        self.consume()
        self.consume("other")
        self.box.advance(DIRECT_MS + 100)
        self.assertEqual([each.code for each in self.answers()], [ResponseCode.SYSTEM_ERROR] * 2)
        self.assertIn("10000 ms", self.answers()[1].remark or "")
        self.assertIsNone(self.box.member.take(10))

    def test_messages_of_tools_are_bounded(self) -> None:
        """A broker that sends without end is refused."""
        for _ in range(70):
            self.consume()
        self.assertEqual([each.code for each in self.answers()], [ResponseCode.SYSTEM_ERROR] * 6)
