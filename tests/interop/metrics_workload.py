"""A workload with a little of everything that a broker has metrics for, and a scrape."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from typing import Final

from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from twistmq.protocol.headers.pop import PopMessageRequestHeader
from twistmq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageResponseHeader,
)
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.record import SYS_TRANSACTION_PREPARED
from twistmq.protocol.topic_names import HALF_TOPIC

__all__ = ["GROUP", "POP_GROUP", "TOPIC", "Series", "Workload", "scrape", "series_of"]

TOPIC: Final = "Metered"
GROUP: Final = "meter_readers"
POP_GROUP: Final = "meter_poppers"
_COMMIT, _ROLL_BACK = 8, 12


_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? \S+(?: \d+)?")
_LABEL: Final = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
#: Labels that a histogram's samples have beside its own, and the one that says which library.
_NOT_ITS_OWN: Final = {"le", "otel_scope_name"}

#: By name, the unit with it and without a histogram's endings: the kind, the labels in order.
Series = dict[str, tuple[str, list[str]]]


def series_of(text: str) -> Series:
    """Return the series of a scrape; those of one name have the labels of all."""
    found: Series = {}
    kind = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            kind = line.split()[3]
        elif line and not line.startswith("#"):
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            name = sample[1]
            if kind == "histogram":
                name = re.sub("_(bucket|sum|count|created)$", "", name)
            labels = set(_LABEL.findall(sample[2] or "")) - _NOT_ITS_OWN
            found[name] = (kind, sorted(labels.union(found.get(name, ("", []))[1])))
    return found


def scrape(url: str) -> str:
    """Return the text of a scrape of Prometheus."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


class Workload:
    """Requests of a producer, a consumer and a tool, over one connection.

    :param client: connected to the broker.
    """

    def __init__(self, client: RawClient) -> None:
        self._client = client

    def run(self) -> None:
        """Ask for all of it once; five plain messages, the first three of them consumed."""
        self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic=TOPIC, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
            topic_filter_type="SINGLE_TAG"))
        for group in (GROUP, POP_GROUP):
            self._ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(
                {"groupName": group, "retryQueueNums": 1, "retryMaxTimes": 2}).encode())
        self._heartbeat()
        for number in range(5):
            self._client.send(TOPIC, b"%d" % number * 100)
        self._consume()
        for state in (_COMMIT, _ROLL_BACK, None):
            self._transaction(state)
        self._client.send(TOPIC, b"delayed", properties={"DELAY": "1"})
        self._client.send(TOPIC, b"timed", properties={"TIMER_DELAY_SEC": "60"})
        # A broker without POP says so, which is a request with a result as well.
        self._client.request(RequestCode.POP_MESSAGE, PopMessageRequestHeader(
            consumer_group=POP_GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=2,
            invisible_time=600_000, poll_time=0, born_time=_now_ms(), init_mode=0))

    def _ask(self, code: RequestCode, header: CommandHeader | None = None,
             body: bytes = b"") -> None:
        reply = self._client.request(code, header, body)
        assert reply.code == ResponseCode.SUCCESS, f"{code.name}: {reply.code} {reply.remark}"

    def _heartbeat(self) -> None:
        def consumer(group: str, kind: str) -> dict[str, object]:
            return {"groupName": group, "consumeType": kind, "unitMode": False,
                    "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [{"topic": TOPIC, "subString": "*", "subVersion": 1,
                                             "tagsSet": [], "codeSet": [],
                                             "expressionType": "TAG"}]}

        self._ask(RequestCode.HEART_BEAT, body=json.dumps({
            "clientID": "meter", "producerDataSet": [{"groupName": "meter_writers"}],
            "consumerDataSet": [consumer(GROUP, "CONSUME_PASSIVELY"),
                                consumer(POP_GROUP, "CONSUME_POP")]}).encode())

    def _consume(self) -> None:
        """Pull all, commit three, send one back that may be tried no more."""
        deadline = time.monotonic() + 10
        while True:
            reply = self._client.request(RequestCode.PULL_MESSAGE, pull_header(TOPIC, group=GROUP))
            messages = records_of(reply.body)
            if len(messages) == 5:
                break
            assert time.monotonic() < deadline, f"{len(messages)} messages: {reply.remark}"
        self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=3))
        self._ask(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
            offset=messages[0].physical_offset, group=GROUP, delay_level=-1, origin_topic=TOPIC,
            origin_msg_id="0", max_reconsume_times=0))

    def _transaction(self, state: int | None) -> None:
        """Send a half message, and its end if it has one."""
        header = send_header(TOPIC, _now_ms(), properties={
            "TRAN_MSG": "true", "PGROUP": "meter_writers", "UNIQ_KEY": f"{state or 0:032X}"})
        header.sys_flag = SYS_TRANSACTION_PREPARED
        reply = self._client.request(RequestCode.SEND_MESSAGE_V2, header, b"half")
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        if state is None:
            return
        sent = reply.header(SendMessageResponseHeader)
        place = int((sent.msg_id or "")[16:], 16)
        self._ask(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
            topic=HALF_TOPIC, producer_group="meter_writers", commit_or_rollback=state,
            tran_state_table_offset=sent.queue_offset, commit_log_offset=place,
            msg_id=f"{state:032X}", transaction_id=f"{state:032X}"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
