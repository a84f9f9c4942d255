"""A broker for tests of pop members, with a clock of the test.

It hides what it gives out, and gives it out again when that time is over, one delivery later. What
a change of the invisible time or an acknowledgement says counts by its receipt only: one of an
earlier delivery does nothing.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from tests.client.core.box import NAMESRV, Answer, Box, HandClock, route, routes
from twistmq.client.core.pop.pop_consumer import PopMember
from twistmq.client.core.pop.receipts import Receipt
from twistmq.client.roles.parts import build_pop_consumer
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies import HeartbeatData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.protocol.properties import TAGS, tags_code
from twistmq.protocol.record import MessageRecord, encode_record, host_bytes

__all__ = ["BROKER", "PopBox", "PopBroker"]

BROKER: Final = "10.0.0.2:10911"


class _Message:
    """A message of the broker."""

    def __init__(self, queue_id: int, offset: int, body: bytes, tag: str) -> None:
        self.queue_id = queue_id
        self.offset = offset
        self.body = body
        self.tag = tag
        self.deliveries = 0
        self.is_done = False
        #: Hidden until then, by the receipt of this pop time.
        self.visible_ms = 0.0
        self.pop_ms = 0


class PopBroker:
    """One broker has one topic and takes all times from the clock."""

    def __init__(self, clock: HandClock, name: str = "a") -> None:
        self.clock = clock
        self.name = name
        self.messages: dict[tuple[int, int], _Message] = {}
        self.refusals: dict[int, int] = {}
        #: No answer comes to these.
        self.silent: set[int] = set()
        self.pops: list[PopMessageRequestHeader] = []
        self.changes: list[ChangeInvisibleTimeRequestHeader] = []
        self.acks: list[int] = []
        self.batches = 0
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        self.members: set[str] = set()
        #: The answer to who pops what; None: the mode is to pull.
        self.assignments: list[dict[str, Any]] | None = None
        self.orders_blocked = False
        #: Whether retries come under the name of their own topic.
        self.retry_mark = "0"

    def put(self, body: bytes, queue_id: int = 0, tag: str = "") -> None:
        """Store a message."""
        offset = sum(each.queue_id == queue_id for each in self.messages.values())
        self.messages[queue_id, offset] = _Message(queue_id, offset, body, tag)

    def open(self) -> list[int]:
        """The bodies, as numbers, of messages that are visible now."""
        return sorted(int(each.body) for each in self.messages.values() if self._is_visible(each))

    def _is_visible(self, message: _Message) -> bool:
        return not message.is_done and message.visible_ms <= self.clock.now_ms

    def __call__(self, command: RemotingCommand) -> Answer:
        """Answer a request."""
        if command.code in self.refusals:
            return self.refusals[command.code], None, b"", "refused by the test"
        answer: Answer = getattr(self, f"_{RequestCode(command.code).name.lower()}")(command)
        return None if command.code in self.silent else answer

    def _heart_beat(self, command: RemotingCommand) -> Answer:
        beat = HeartbeatData.decode(command.body)
        if beat.consumer_data_set:
            self.members.add(beat.client_id)
        return ResponseCode.SUCCESS, None, b"", None

    def _unregister_client(self, command: RemotingCommand) -> Answer:
        self.members.discard(command.fields()["clientID"])
        return ResponseCode.SUCCESS, None, b"", None

    def _query_assignment(self, command: RemotingCommand) -> Answer:
        asked = msgspec.json.decode(command.body)
        queues = self.assignments
        if queues is None:
            queues = [{"messageQueue": {"topic": asked["topic"], "brokerName": self.name,
                                        "queueId": number}, "mode": "PULL"} for number in (0, 1)]
        body = json_dialect.encode({"messageQueueAssignments": queues}, quote_int_keys=True)
        return ResponseCode.SUCCESS, None, body, None

    def _pop_message(self, command: RemotingCommand) -> Answer:
        header = command.header(PopMessageRequestHeader)
        self.pops.append(header)
        found = [each for each in self.messages.values() if self._is_visible(each)
                 and header.queue_id in (-1, each.queue_id)][:header.max_msg_nums]
        if not found:
            # A broker holds the pop; the box answers nothing.
            return None if header.poll_time else (
                ResponseCode.POLLING_TIMEOUT, PopMessageResponseHeader(0, 0, 0, 0), b"", None)
        now_ms = self.clock.wall_ms()
        for each in found:
            each.deliveries += 1
            each.pop_ms = now_ms
            each.visible_ms = self.clock.now_ms + header.invisible_time
        return 0, self._answer(header, found, now_ms), b"".join(map(self._record, found)), None

    def _answer(
        self, header: PopMessageRequestHeader, found: list[_Message], now_ms: int
    ) -> PopMessageResponseHeader:
        queues: dict[int, list[int]] = {}
        for each in found:
            queues.setdefault(each.queue_id, []).append(each.offset)
        mark = self.retry_mark
        counts = [f"{mark} qo{each.queue_id}%{each.offset} {each.deliveries - 1}"
                  for each in found if each.deliveries > 1]
        return PopMessageResponseHeader(
            now_ms, header.invisible_time, 999 if header.order else 3, 0,
            ";".join(f"{mark} {number} {min(each)}" for number, each in queues.items()),
            ";".join(f"{mark} {number} {','.join(map(str, each))}"
                     for number, each in queues.items()),
            ";".join(counts) if header.order else None)

    def _record(self, message: _Message) -> bytes:
        topic = {"0": "T", "1": "%RETRY%g_T", "2": "%RETRY%g+T"}[self.retry_mark]
        record = MessageRecord(
            topic, message.queue_id, message.body,
            f"{TAGS}\x01{message.tag}\x02" if message.tag else "", 1, host_bytes("10.0.0.1", 1),
            host_bytes("10.0.0.2", 10911), [], tags_code(message.tag),
            reconsume_times=0 if self.pops[-1].order else message.deliveries - 1)
        record.queue_offset = message.offset
        record.physical_offset = 1000 * message.queue_id + message.offset
        return encode_record(record)

    def _of(self, receipt: Receipt) -> _Message | None:
        """The message of a receipt that is the newest of it."""
        message = self.messages[receipt.queue_id, receipt.offset]
        return message if message.pop_ms == receipt.pop_ms and not message.is_done else None

    def _done(self, message: _Message | None) -> None:
        if message is not None:
            message.is_done = True
            self.acks.append(int(message.body))

    def _ack_message(self, command: RemotingCommand) -> Answer:
        self._done(self._of(Receipt.parse(command.header(AckMessageRequestHeader).extra_info)))
        return ResponseCode.SUCCESS, None, b"", None

    def _batch_ack_message(self, command: RemotingCommand) -> Answer:
        self.batches += 1
        for point in msgspec.json.decode(command.body)["acks"]:
            bits = int.from_bytes(base64.b64decode(point["b"]), "little")
            for index in range(bits.bit_length()):
                if bits >> index & 1:
                    self._done(self._of(Receipt(
                        point["so"], point["pt"], point["it"], point["rq"], point["r"], self.name,
                        point["q"], point["so"] + index)))
        return ResponseCode.SUCCESS, None, b"", None

    def _change_message_invisibletime(self, command: RemotingCommand) -> Answer:
        header = command.header(ChangeInvisibleTimeRequestHeader)
        self.changes.append(header)
        message = self._of(Receipt.parse(header.extra_info))
        if message is None:
            return ResponseCode.MESSAGE_ILLEGAL, None, b"", "is not given out"
        message.pop_ms += 1
        message.visible_ms = self.clock.now_ms + header.invisible_time
        return 0, ChangeInvisibleTimeResponseHeader(
            message.pop_ms, header.invisible_time, 3), b"", None

    def _consumer_send_msg_back(self, command: RemotingCommand) -> Answer:
        self.sent_back.append(command.header(ConsumerSendMsgBackRequestHeader))
        return 0, None, b"", None


class PopBox(Box):
    """A core with a member of a group ``g`` that pops topic ``T``; options as programs give them.

    The member subscribes with ``expression``.
    """

    def __init__(self, expression: str | None = None, **options: Any) -> None:
        super().__init__()
        self.broker = PopBroker(self.clock)
        self.servers[BROKER] = self.broker
        self.servers[NAMESRV] = routes({"T": route({"a": BROKER}, 2)})
        self.pop: PopMember[bytes] = build_pop_consumer(
            self.core, "g", {"T": expression}, {"start": "first", **options})
        self.member = self.pop.member

    def start(self) -> None:
        """Let the member join."""
        self.run(self.member.start())
        self.settle()

    def demand(self) -> None:
        """Wait for messages as a worker does, until some exist."""
        self.engine.tasks.spawn(self.member.ready(), "worker")
        self.settle()

    def take_all(self, most: int = 1000) -> list[int]:
        """Take all messages without finishing them; :returns: the bodies as numbers."""
        found: list[int] = []
        while (batch := self.member.take(most)) is not None:
            found += [int(message.body) for message in batch.messages]
        return found
