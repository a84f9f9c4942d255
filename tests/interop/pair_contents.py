"""Messages of every kind for a pair, and requests that both of its brokers answer equally."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence

from tests.plugins.ha.pair import wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.properties import format_properties
from twistmq.protocol.record import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
)

__all__ = ["TOPICS", "Workload", "queue_ends", "same_answers"]

TOPIC = "Mixed"
#: All topics that the messages come to be in, and their queues.
TOPICS = {TOPIC: 4, "SCHEDULE_TOPIC_XXXX": 1, "RMQ_SYS_TRANS_HALF_TOPIC": 1,
          "RMQ_SYS_TRANS_OP_HALF_TOPIC": 1}
_BATCH_COUNT = 3
#: Most bodies are shorter; of a few this is the length, at most.
_SIZE_MAX, _LARGE_MAX = 20_000, 390_000
#: Keys, and ids, that are asked for.
_ASKED = 300


class _Sender(threading.Thread):
    """Sends its share of the messages, over one connection."""

    def __init__(self, address: str, number: int, count: int) -> None:
        super().__init__()
        self._chance = random.Random(number)
        self._address, self._name, self._count = address, f"s{number}", count
        self.codes: set[int] = set()
        #: Key and place in the log of each message that is one by itself.
        self.sent: list[tuple[str, int]] = []

    def run(self) -> None:
        number = 0
        with RawClient(self._address) as client:
            while number < self._count:
                number += self._send(client, number)

    def _body(self) -> bytes:
        chance = self._chance
        largest = _LARGE_MAX if chance.random() < 0.001 else _SIZE_MAX
        return chance.randbytes(int(largest ** chance.random()))

    def _send(self, client: RawClient, number: int) -> int:
        """Send a message, or a batch; :returns: how many it were."""
        kind = self._chance.random()
        key, now_ms = f"{self._name}-{number}", time.time_ns() // 1_000_000
        queue_id = number % TOPICS[TOPIC]
        if kind < 0.05:
            header = send_header(TOPIC, now_ms, queue_id=queue_id)
            header.batch = True
            body = encode_batch([
                (0, self._body(), format_properties({"KEYS": f"{key}-{each}"}))
                for each in range(_BATCH_COUNT)])
            self.codes.add(client.request(RequestCode.SEND_BATCH_MESSAGE, header, body).code)
            return _BATCH_COUNT
        properties = {"KEYS": key, "TAGS": "abc"[number % 3]}
        if kind < 0.10:
            properties["DELAY"] = "1"
        if kind > 0.95:
            self._send_half(client, key, queue_id, now_ms)
            return 1
        header = send_header(TOPIC, now_ms, queue_id=queue_id, properties=properties)
        reply = client.request(RequestCode.SEND_MESSAGE_V2, header, self._body())
        self.codes.add(reply.code)
        if reply.code == ResponseCode.SUCCESS and "DELAY" not in properties:
            place = parse_offset_message_id(reply.header(SendMessageResponseHeader).msg_id)[2]
            self.sent.append((key, place))
        return 1

    def _send_half(self, client: RawClient, key: str, queue_id: int, now_ms: int) -> None:
        """Send a half message, and commit it or roll it back."""
        header = send_header(TOPIC, now_ms, queue_id=queue_id, properties={
            "KEYS": key, "UNIQ_KEY": f"u{key}", "TRAN_MSG": "true", "PGROUP": "p"})
        header.sys_flag = SYS_TRANSACTION_PREPARED
        half = client.request(RequestCode.SEND_MESSAGE_V2, header, self._body())
        found = half.header(SendMessageResponseHeader)
        end = client.request(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
            producer_group="p", tran_state_table_offset=found.queue_offset,
            commit_log_offset=parse_offset_message_id(found.msg_id)[2],
            commit_or_rollback=self._chance.choice(
                (SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK)), msg_id=found.msg_id))
        self.codes |= {half.code, end.code}


class Workload:
    """Messages that were sent to a broker: plain ones, batches, delayed and half messages.

    :param count: how many, batches counted by their messages.
    """

    def __init__(self, address: str, count: int, threads: int = 6) -> None:
        senders = [_Sender(address, number, count // threads) for number in range(threads)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        #: The codes of all answers.
        self.codes = set().union(*(sender.codes for sender in senders))
        #: Key and place in the log of each message that is one by itself.
        self.sent = [each for sender in senders for each in sender.sent]


def queue_ends(address: str) -> dict[tuple[str, int], int]:
    """Return the maximum offset of each queue of the messages at a broker."""
    with RawClient(address) as client:
        return {(topic, queue_id): client.max_offset(topic, queue_id)
                for topic, count in TOPICS.items() for queue_id in range(count)}


def _answers(
    client: RawClient, key: str, place: int
) -> tuple[int, bytes, int, bytes]:
    """The answers about a message: by its key, and by its id."""
    query = QueryMessageRequestHeader(topic=TOPIC, key=key, max_num=8, begin_timestamp=0,
                                      end_timestamp=2**62)
    by_key = client.request(RequestCode.QUERY_MESSAGE, query)
    by_id = client.request(RequestCode.VIEW_MESSAGE_BY_ID,
                           ViewMessageRequestHeader(offset=place, topic=TOPIC))
    return by_key.code, by_key.body, by_id.code, by_id.body


def same_answers(first: str, second: str, sent: Sequence[tuple[str, int]]) -> int:
    """Ask two brokers for messages by key and by id.

    :returns: for how many they gave the message, by key and by id, and the same.
    """
    step = max(1, len(sent) // _ASKED)
    count = 0
    with RawClient(first) as one, RawClient(second) as other:
        for key, place in sent[::step]:
            def are_same(key: str = key, place: int = place) -> bool:
                answers = _answers(one, key, place)
                return answers == _answers(other, key, place) and answers[1] == answers[3] != b""

            # The index is behind the log.
            wait_until(are_same, f"the answers about {key}", 60)
            count += 1
    return count
