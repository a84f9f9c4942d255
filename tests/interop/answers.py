"""Sends requests to a broker or a name server, and keeps the comparable parts of the answers."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from tests.interop.questions import Question
from twistmq.broker.testing.raw_client import records_of
from twistmq.plugins.replica.ask import HA_ADDRESS, HEARS_IDS, ROLE
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    KVTable,
    ResetOffsetBody,
    TopicStatsTable,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, decode_command, encode_request
from twistmq.protocol.frame import FrameDecoder

__all__ = ["OWN_ROWS", "Answer", "ask_all"]

#: Rows of the runtime information that Apache's brokers do not have, beside those of flow control.
OWN_ROWS: Final = frozenset({HA_ADDRESS, HEARS_IDS, ROLE})

#: Bodies that are no JSON: read as what they are.
_BODIES: Final = {
    RequestCode.GET_CONSUME_STATS: ConsumeStats, RequestCode.GET_TOPIC_STATS_INFO: TopicStatsTable,
    RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetSerializeWrapper,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsetBody,
    RequestCode.GET_BROKER_CONSUME_STATS: ConsumeStatsList,
    RequestCode.GET_BROKER_RUNTIME_INFO: KVTable,
}
_RECORDS: Final = (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID,
                   RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
#: What tells of queues or the index.
_DISPATCHED: Final = (
    *_RECORDS, RequestCode.GET_MAX_OFFSET, RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
#: What is not the same twice.
_PASSING: Final = ("counter", "delayTime")
#: How long a message may take into its queue.
_DISPATCH_SECONDS: Final = 60.0
#: How long a name server may take to let a broker go.
_DEPARTURE_SECONDS: Final = 5.0
#: A remark that tells of an exception in Java, or of a header or body in ours.
_FAULT: Final = re.compile(r"^(java\.|com\.|org\.|Cannot invoke|header of |body of )")
#: An exception of Java whose text is what ours says.
_WRAPPED: Final = re.compile(r"^java\.lang\.RuntimeException: (.*), org\.apache\..*$")
_VOLATILE: Final = (
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"), (re.compile(r"\b1[7-9]\d{11}\b"), "<time>"),
    (re.compile(r"[0-9A-F]{32}"), "<id>"), (re.compile(r"\b20\d\d-\d\d-\d\d#[\d:]+"), "<time>"),
)
#: Tables that hold what the differences above left behind.
_LEFT_BEHIND: Final = ("Negative", "New21", " ", "a*b")


@dataclass(frozen=True)
class Answer:
    """A reply without the parts that differ between runs."""

    code: int
    remark: str
    fields: str
    body: str


class Asker:
    """Sends one request after the other to a broker.

    Apache's broker enters messages into their queues a little after it has answered: what reads
    queues or the index is asked once the broker is behind with nothing. Its name server lets a
    broker go a little after it has answered, too.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder, self._opaques = FrameDecoder(), count(1)
        self._sent = False
        #: Addresses of the brokers that left since the last question of another kind.
        self._left: set[str] = set()

    def ask(self, question: Question) -> RemotingCommand:
        """Return the reply."""
        if self._sent and question.code in _DISPATCHED:
            self._wait_for_dispatch()
        self._sent = self._sent or question.code not in _DISPATCHED
        if question.code == RequestCode.UNREGISTER_BROKER:
            self._left.add(question.fields.get("brokerAddr", ""))
        elif self._left:
            self._wait_for_departures()
        return self._reply(question)

    def _wait_for_departures(self) -> None:
        """Wait until the broker has noticed the departures of clients, by its answers."""
        deadline = time.monotonic() + _DEPARTURE_SECONDS
        asked = Question("who is there", RequestCode.GET_BROKER_CLUSTER_INFO)
        while time.monotonic() < deadline:
            table = json_dialect.decode(self._reply(asked).body)["brokerAddrTable"]
            if not self._left.intersection(
                    address for data in table.values() for address in data["brokerAddrs"].values()):
                break
        self._left.clear()

    def _wait_for_dispatch(self) -> None:
        deadline = time.monotonic() + _DISPATCH_SECONDS
        while not self._has_dispatched():
            assert time.monotonic() < deadline, "messages did not come into their queues"
        self._sent = False

    def _has_dispatched(self) -> bool:
        """Whether everything is dispatched; Apache's broker raises an error in its first second."""
        reply = self._reply(Question("how far it is", RequestCode.GET_BROKER_RUNTIME_INFO))
        return reply.code == ResponseCode.SUCCESS and (
            json_dialect.decode(reply.body)["table"]["dispatchBehindBytes"] == "0")

    def _reply(self, question: Question) -> RemotingCommand:
        opaque = next(self._opaques)
        self._connection.sendall(encode_request(
            question.code, opaque, None, question.body, extra_fields=dict(question.fields)))
        reply: RemotingCommand | None = None
        while reply is None:
            data = self._connection.recv(65536)
            assert data, f"the connection was closed by: {question.name}"
            for command in map(decode_command, self._decoder.feed(data)):
                if command.is_response:
                    assert command.opaque == opaque, question.name
                    reply = command
        return reply


def ask_all(port: int, asked: Iterable[Question]) -> dict[str, Answer]:
    """Return the answers of one broker, by question."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        asker = Asker(connection)
        return {question.name: _answer(question, asker.ask(question)) for question in asked}


def _answer(question: Question, reply: RemotingCommand) -> Answer:
    remark = reply.remark or ""
    if reply.code == 0 and remark == "not set any response code":
        remark = ""  # What Apache's broker forgets to take away.
    remark = _WRAPPED.sub(r"\1", remark)
    if _FAULT.match(remark):
        remark = "<fault>"
    body: Any = reply.body
    if question.code in _BODIES and body:
        body = _BODIES[question.code].decode(body)
    elif question.code in _RECORDS and body:
        body = [(record.topic, record.body, record.queue_offset) for record in records_of(body)]
    elif body:
        body = _ordered(json_dialect.decode(body))
    fields = dict(sorted(reply.fields().items())) if reply.ext_fields else {}
    return Answer(reply.code, _steady(remark), _steady(fields), _steady(body))


def _ordered(value: Any) -> Any:
    """Return the value with Java's sets and maps in order."""
    if isinstance(value, dict):
        return {name: _ordered(item) for name, item in sorted(value.items())
                if name not in _LEFT_BEHIND and name not in _PASSING}
    if isinstance(value, list):
        return sorted(map(_ordered, value), key=repr)
    return value


def _steady(value: Any) -> str:
    if isinstance(value, ConsumeStats | ResetOffsetBody | TopicStatsTable):
        text = repr(sorted(map(repr, value.offset_table.items())))
    elif isinstance(value, ConsumeStatsList):
        text = _steady_progress(value)
    elif isinstance(value, KVTable):
        # The names say what is there. One of them ends with a folder of the test. Apache's broker
        # does not have our names of flow control, nor our two names for slaves.
        names = {re.sub("_/.*", "", name) for name in value.table
                 if not name.startswith("flowControl_")}
        text = repr(sorted(names - OWN_ROWS))
    else:
        text = value if isinstance(value, str) else repr(value)
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return text


def _steady_progress(value: ConsumeStatsList) -> str:
    """Return the progress of all groups without the pulled offset, which Apache's broker lacks."""
    groups = {group: sorted(f"{queue} {offset.broker_offset} {offset.consumer_offset} "
                            f"{offset.last_timestamp}"
                            for each in stats for queue, offset in each.offset_table.items())
              for row in value.consume_stats_list for group, stats in row.items()
              if group not in _LEFT_BEHIND}
    return repr((sorted(groups.items()), value.broker_addr, value.total_diff))
