"""Our broker answers as Apache's does, code and remark and fields and body."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from tests.interop.clients import JavaTestCase
from tests.interop.questions import Question, questions
from tests.interop.servers import PEER, Servers, free_port
from twistmq.broker.codes import RequestCode
from twistmq.broker.testing.blocking_client import records_of
from twistmq.broker.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    TopicStatsTable,
)
from twistmq.broker.wire.command import RemotingCommand, decode_command, encode_request
from twistmq.broker.wire.frame import FrameDecoder

#: What is answered otherwise on purpose, and why.
DIFFERENT: Final = {
    "UPDATE_AND_CREATE_TOPIC negative queues": "nobody can use such a topic",
    "UPDATE_AND_CREATE_TOPIC with '+message.type='": "the refusal tells the values",
    "UPDATE_AND_CREATE_TOPIC with '+message.type=FIFO=x'": "the rest is not dropped in silence",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP blank": "no client lets anybody use it",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP illegal": "no client lets anybody use it",
    "UPDATE_CONSUMER_OFFSET negative": "no message has such an offset",
    "END_TRANSACTION rollback after it": "it was committed, and that stays so",
}
#: No half message is checked meanwhile, and no end written: what is in the log is asked about.
_NEVER: Final = ("transactionCheckInterval=3600000", "transactionOpBatchInterval=3600000")
#: Bodies that are no JSON: read as what they are.
_BODIES: Final = {
    RequestCode.GET_CONSUME_STATS: ConsumeStats, RequestCode.GET_TOPIC_STATS_INFO: TopicStatsTable,
    RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetSerializeWrapper,
}
_RECORDS: Final = (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID)
#: A remark that tells of an exception in Java, or of a header or body in ours.
_FAULT: Final = re.compile(r"^(java\.|com\.|org\.|Cannot invoke|header of |body of )")
#: An exception of Java whose text is what ours says.
_WRAPPED: Final = re.compile(r"^java\.lang\.RuntimeException: (.*), org\.apache\..*$")
_VOLATILE: Final = (
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"), (re.compile(r"\b1[7-9]\d{11}\b"), "<time>"),
    (re.compile(r"[0-9A-F]{32}"), "<id>"),
)
#: Tables that hold what the differences above left behind.
_LEFT_BEHIND: Final = ("Negative", "New21", " ", "a*b")


@dataclass(frozen=True)
class Answer:
    """A reply, without what differs from run to run."""

    code: int
    remark: str
    fields: str
    body: str


def ask_all(port: int, asked: Iterable[Question]) -> dict[str, Answer]:
    """The answers of one broker, by question."""
    decoder, opaques = FrameDecoder(), count(1)
    answers: dict[str, Answer] = {}
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        for question in asked:
            opaque = next(opaques)
            connection.sendall(encode_request(question.code, opaque, None, question.body,
                                              extra_fields=dict(question.fields)))
            reply: RemotingCommand | None = None
            while reply is None:
                data = connection.recv(65536)
                assert data, f"the connection was closed by: {question.name}"
                for command in map(decode_command, decoder.feed(data)):
                    if command.is_response:
                        assert command.opaque == opaque, question.name
                        reply = command
            answers[question.name] = _answer(question, reply)
    return answers


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
        body = _ordered(json.loads(body))
    fields = dict(sorted(reply.fields().items())) if reply.ext_fields else {}
    return Answer(reply.code, _steady(remark), _steady(fields), _steady(body))


def _ordered(value: Any) -> Any:
    """Java's sets and maps have any order."""
    if isinstance(value, dict):
        return {name: _ordered(item) for name, item in sorted(value.items())
                if name not in _LEFT_BEHIND and name != "counter"}
    if isinstance(value, list):
        return sorted(map(_ordered, value), key=repr)
    return value


def _steady(value: Any) -> str:
    if isinstance(value, ConsumeStats | TopicStatsTable):
        text = repr(sorted(map(repr, value.offset_table.items())))
    else:
        text = value if isinstance(value, str) else repr(value)
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return text


class AnswersTests(JavaTestCase):
    """About two hundred questions to both brokers."""

    timeout = 120

    def apache(self) -> int:
        """Start Apache's broker; its port."""
        command, home = [sys.executable, str(PEER)], str(self.folder / "peer")
        port = free_port()
        self.addCleanup(subprocess.run, [*command, "stop", home], check=True)
        subprocess.run([*command, "start", home, "--heap", "512m", "--namesrv", str(free_port()),
                        "--broker", str(port), "--set", "brokerName=broker-a",
                        "--set", "enablePropertyFilter=false", "--set", "traceTopicEnable=false",
                        "--set", _NEVER[0], "--set", _NEVER[1]],
                       check=True, stdout=subprocess.DEVNULL)
        return port

    def ours(self) -> int:
        """Start ours; its port."""
        running = Servers(self.folder / "ours", "brokerName=broker-a", "brokerIP1=127.0.0.1",
                          *_NEVER)
        running.start()
        self.addCleanup(running.stop)
        return running.broker_port

    def test_same_answers(self) -> None:
        """All are the same but those that are meant not to be, and those are indeed not."""
        asked = list(questions())
        self.assertEqual(len({question.name for question in asked}), len(asked))
        apache, ours = ask_all(self.apache(), asked), ask_all(self.ours(), asked)
        different = {name: (apache[name], ours[name]) for name in apache
                     if apache[name] != ours[name]}
        wrong = {name: pair for name, pair in different.items() if name not in DIFFERENT}
        self.assertEqual(wrong, {}, "\n".join(
            f"{name}\n  Apache {theirs}\n  ours   {mine}"
            for name, (theirs, mine) in wrong.items()))
        self.assertEqual(sorted(different), sorted(DIFFERENT))
