"""A pop member, as programs and tools see it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.client.core.pop.pop_case import PopCase
from tests.client.core.pop_box import BROKER, PopBox
from twistmq.client.base.errors import OptionError
from twistmq.protocol.bodies import (
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
)
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from twistmq.protocol.headers.pop import PopMessageRequestHeader


class OptionTests(PopCase):
    """Options that a broker cannot support."""

    def test_a_group_cannot_begin_at_a_time(self) -> None:
        """Brokers support only the first and the last message."""
        with self.assertRaises(OptionError):
            PopBox(start=datetime(2026, 1, 1, tzinfo=UTC))


class ToolTests(PopCase):
    """The requests of tools."""

    def ask(self, code: int, header: Any, body: bytes = b"") -> Any:
        """Let the broker ask; :returns: the client's answer."""
        self.box.push(BROKER, encode_request(code, 7, header, body))
        self.box.settle()
        [answer] = [request for _, request in self.box.requests if request.is_response]
        self.box.requests.clear()
        return answer

    def test_the_running_info_shows_what_is_popped(self) -> None:
        """It has Apache's fields, and no queues that are pulled."""
        box = self.start()
        self.take()
        answer = self.ask(RequestCode.GET_CONSUMER_RUNNING_INFO,
                          GetConsumerRunningInfoRequestHeader("g", box.core.client_id))
        info = ConsumerRunningInfo.decode(answer.body)
        self.assertEqual(info.mq_table, {})
        self.assertEqual(info.mq_pop_table, {MessageQueue("T", "a", -1): {
            "waitAckCount": 10, "droped": False, "lastPopTimestamp": box.clock.wall_ms()}})
        self.assertEqual(info.status_table["T"]["pullTPS"], 10 / 60)

    def test_a_member_has_no_offsets(self) -> None:
        """Brokers have them, so a reset changes nothing here."""
        box = self.start()
        batch = self.take(1)
        answer = self.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                          GetConsumerStatusRequestHeader("T", "g", box.core.client_id))
        self.assertEqual(GetConsumerStatusBody.decode(answer.body).message_queue_table, {})
        body = ResetOffsetBody({MessageQueue("T", "a", 0): 0}).encode_standard()
        self.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                 ResetOffsetRequestHeader("g", "T", is_force=True), body)
        self.assertFalse(batch.messages[0].lost)

    def test_a_tool_gives_a_message_to_a_handler(self) -> None:
        """It was not popped, so nothing is acknowledged."""
        box = self.start(0)
        box.push(BROKER, encode_request(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, 7, ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g"), self.record()))
        box.settle()
        batch = box.member.take(1)
        assert batch is not None
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        [answer] = [request for _, request in box.requests if request.is_response]
        self.assertIn(b"CR_SUCCESS", answer.body)
        self.assertEqual(box.pop.acks.count, 0)

    def record(self) -> bytes:
        """Return a message as a broker stores it."""
        self.box.broker.put(b"5")
        self.box.broker.pops.append(PopMessageRequestHeader("g", "T", 0, 1, 0, 0, 0))
        return self.box.broker._record(self.box.broker.messages.pop((0, 0)))
