"""A producer of transactions that uses our client, for brokers in their own processes."""

from __future__ import annotations

import contextlib
import json
from collections import Counter

from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RemotingTimeout
from twistmq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import decode_record
from twistmq.protocol.topic_names import HALF_TOPIC, OP_HALF_TOPIC

__all__ = ["TOPIC", "Producer"]

COMMIT, ROLLBACK = 8, 12
GROUP, TOPIC, SYSTEM_GROUP = "kept_producers", "Kept", "CID_RMQ_SYS_TRANS"
#: How long there is no question when there is none, seconds.
_QUIET_SECONDS = 0.05


class Producer:
    """A client that sends half messages and answers questions.

    Bodies are numbers: even ones are to be committed, odd ones to be rolled back.
    """

    def __init__(self, client: RawClient) -> None:
        self.client = client
        #: How often each body was asked for and answered.
        self.answers: Counter[bytes] = Counter()
        reply = client.request(RequestCode.HEART_BEAT, None, json.dumps({
            "clientID": "kept@1", "producerDataSet": [{"groupName": GROUP}],
            "consumerDataSet": []}).encode())
        assert reply.code == ResponseCode.SUCCESS, reply.remark

    @staticmethod
    def decision(body: bytes) -> int:
        return ROLLBACK if int(body) % 2 else COMMIT

    def half(self, number: int) -> SendMessageResponseHeader:
        return self.client.send(TOPIC, b"%d" % number, queue_id=1, properties={
            "TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"K{number}"})

    def end(self, body: bytes, offset: int, place: int, asked: bool = False) -> None:
        reply = self.client.request(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
            producer_group=GROUP, tran_state_table_offset=offset, commit_log_offset=place,
            commit_or_rollback=self.decision(body), from_transaction_check=asked, msg_id=""))
        assert reply.code == ResponseCode.SUCCESS, (body, reply.code, reply.remark)

    def end_half(self, number: int, half: SendMessageResponseHeader) -> None:
        self.end(b"%d" % number, half.queue_offset, parse_offset_message_id(half.msg_id)[2])

    def next_question(self) -> tuple[bytes, CheckTransactionStateRequestHeader]:
        """Wait for the next question; :returns: the body asked for, and the header."""
        question = self.client.wait_for_request(RequestCode.CHECK_TRANSACTION_STATE)
        return (decode_record(question.body).body,
                question.header(CheckTransactionStateRequestHeader))

    def answer_next(self) -> bytes:
        """Answer the next question; :returns: the body of the message that it is about."""
        body, header = self.next_question()
        self.answers[body] += 1
        self.end(body, header.tran_state_table_offset, header.commit_log_offset, asked=True)
        return body

    def delivered(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        while messages := self.client.pull(TOPIC, sum(found.values()), queue_id=1):
            found.update(message.body for message in messages)
        return found

    def progress(self, topic: str) -> int:
        """Return the committed offset of the checks for a topic; -1 before the first commit."""
        reply = self.client.request(
            RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(
                consumer_group=SYSTEM_GROUP, topic=topic, queue_id=0))
        if reply.code != ResponseCode.SUCCESS:
            return -1
        return reply.header(QueryConsumerOffsetResponseHeader).offset

    def is_all_checked(self) -> bool:
        """Whether no half message is open; answers the questions that arrive in the meantime."""
        timeout_s, self.client.timeout_s = self.client.timeout_s, _QUIET_SECONDS
        with contextlib.suppress(RemotingTimeout):
            self.client.reply(-1)  # there is no such reply: questions come meanwhile
        self.client.timeout_s = timeout_s
        while self.client.requests:
            self.answer_next()
        return self.progress(HALF_TOPIC) == self.client.max_offset(HALF_TOPIC)

    # --- what is in the system's topics

    def ops(self) -> list[int]:
        """Return the queue offsets that the op messages contain."""
        offsets: list[int] = []
        count = 0
        while messages := self.client.pull(OP_HALF_TOPIC, count):
            count += len(messages)
            offsets += [int(text) for each in messages for text in each.body.split(b",") if text]
        return offsets

    def ended(self) -> set[bytes]:
        """Return the bodies of the half messages whose ends are written."""
        bodies: dict[int, bytes] = {}
        while messages := self.client.pull(HALF_TOPIC, len(bodies)):
            bodies.update((each.queue_offset, each.body) for each in messages)
        return {bodies[offset] for offset in self.ops()}
