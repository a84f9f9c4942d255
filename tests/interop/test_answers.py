"""Our broker answers as Apache's does, code and remark and fields and body."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from tests.interop.admin_questions import admin_questions
from tests.interop.answers import ask_all
from tests.interop.clients import JavaTestCase
from tests.interop.lock_questions import lock_questions
from tests.interop.permission_questions import (
    CLOSED,
    READ_ONLY,
    WRITE_ONLY,
    closed_questions,
    permission_questions,
    read_only_questions,
    write_only_questions,
)
from tests.interop.questions import Question, questions
from tests.interop.servers import PEER, Servers, free_port
from twistmq.broker.codes import RequestCode
from twistmq.broker.config.apache_settings import UNREAD
from twistmq.broker.config.setting_rows import up_rows
from twistmq.broker.pages.settings_page import stock_plugin_rows
from twistmq.broker.testing.raw_client import RawClient

#: What is answered otherwise on purpose, and why.
DIFFERENT: Final = {
    "LOCK_BATCH_MQ topic that is not there": "a queue of no topic is not locked",
    "UPDATE_AND_CREATE_TOPIC negative queues": "nobody can use such a topic",
    "UPDATE_AND_CREATE_TOPIC with '+message.type='": "the refusal tells the values",
    "UPDATE_AND_CREATE_TOPIC with '+message.type=FIFO=x'": "the rest is not dropped in silence",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP blank": "no client lets anybody use it",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP illegal": "no client lets anybody use it",
    "UPDATE_CONSUMER_OFFSET negative": "no message has such an offset",
    "END_TRANSACTION rollback after it": "it was committed, and that stays so",
    "LOCK_BATCH_MQ queues missing": "no queues are locked, which is no fault of the broker",
    "LOCK_BATCH_MQ nobody": "the refusal tells what is missing",
    "LOCK_BATCH_MQ no group": "the refusal tells what is missing",
    "UNLOCK_BATCH_MQ nobody": "the refusal tells what is missing",
    "UNLOCK_BATCH_MQ no group": "the refusal tells what is missing",
    "INVOKE_BROKER_TO_GET_CONSUMER_STATUS nobody": "the refusal says so, not where Java failed",
    "CONSUME_MESSAGE_DIRECTLY nothing there": "the refusal says so, not where Java failed",
    "UPDATE_BROKER_CONFIG no number": "a value without meaning is refused, not skipped",
    "UPDATE_BROKER_CONFIG unknown": "a name that is no setting is refused, not forgotten",
    "CONSUME_MESSAGE_DIRECTLY no id": "the refusal says so, not where Java failed",
}
DIFFERENT_PERMISSIONS: Final = {
    "PULL_MESSAGE of ''": "no client has a group without a name",
    "SEND_BATCH_MESSAGE none": "the refusal says what is wrong, not where Java failed",
    "SEND_BATCH_MESSAGE broken": "the refusal says what is wrong, not where Java failed",
    "SEND_BATCH_MESSAGE too long": "the code is that of a message that is too long",
}
DIFFERENT_CLOSED: Final = {
    "GET_TOPIC_CONFIG Nobody": "a refused send does not make the topic of a group there is not",
    "SEND_BATCH_MESSAGE longer": "the code is that of a message that is too long",
}
#: No half message is checked meanwhile, and no end written: what is in the log is asked about.
_NEVER: Final = ("transactionCheckInterval=3600000", "transactionOpBatchInterval=3600000")
#: Settings of both.
_ALIKE: Final = (*_NEVER, "brokerName=broker-a", "enablePropertyFilter=false",
                 "traceTopicEnable=false")


class AnswersTests(JavaTestCase):
    """Some hundreds of questions to both brokers."""

    timeout = 120

    def apache(self, *settings: str) -> int:
        """Start Apache's broker; its port."""
        command, home = [sys.executable, str(PEER)], str(self.folder / "peer")
        port = free_port()
        self.addCleanup(subprocess.run, [*command, "stop", home], check=True)
        options = [word for pair in (*_ALIKE, *settings) for word in ("--set", pair)]
        subprocess.run([*command, "start", home, "--heap", "512m", "--namesrv", str(free_port()),
                        "--broker", str(port), *options],
                       check=True, stdout=subprocess.DEVNULL)
        return port

    def ours(self, *settings: str) -> int:
        """Start ours; its port."""
        running = Servers(self.folder / "ours", "brokerIP1=127.0.0.1", *_ALIKE, *settings)
        running.start()
        self.addCleanup(running.stop)
        return running.broker_port

    def same(
        self, asked: list[Question], different: Mapping[str, str], settings: Iterable[str] = ()
    ) -> None:
        """All answers are the same but those that are meant not to be, and those are not."""
        self.assertEqual(len({question.name for question in asked}), len(asked))
        apache = ask_all(self.apache(*settings), asked)
        ours = ask_all(self.ours(*settings), asked)
        found = {name: (apache[name], ours[name]) for name in apache
                 if apache[name] != ours[name]}
        wrong = {name: pair for name, pair in found.items() if name not in different}
        self.assertEqual(wrong, {}, "\n".join(
            f"{name}\n  Apache {theirs}\n  ours   {mine}"
            for name, (theirs, mine) in wrong.items()))
        self.assertEqual(sorted(found), sorted(different))

    def test_same_answers(self) -> None:
        """Of brokers as they come."""
        self.same([*questions(), *lock_questions(), *admin_questions()], DIFFERENT)

    def test_settings_that_nothing_reads(self) -> None:
        """Those a tool may set all the same are the rest of what Apache's broker has."""
        with RawClient(f"127.0.0.1:{self.apache()}") as client:
            reply = client.request(RequestCode.GET_BROKER_CONFIG)
        theirs = {line.partition("=")[0] for line in reply.body.decode().splitlines()}
        plugins = {row.name for _, rows in stock_plugin_rows() for row in rows}
        self.assertEqual(theirs - {row.name for row in up_rows()} - plugins, UNREAD)

    def test_permissions_of_topics_and_groups(self) -> None:
        """Permissions of topics and groups, and how long things may be."""
        self.same(list(permission_questions()), DIFFERENT_PERMISSIONS)

    def test_a_broker_that_creates_nothing(self) -> None:
        """A broker that creates nothing, refuses half messages and takes short bodies."""
        self.same(list(closed_questions()), DIFFERENT_CLOSED, CLOSED)

    def test_read_only(self) -> None:
        """A broker that may not be written."""
        self.same(list(read_only_questions()), {}, READ_ONLY)

    def long_write_only(self) -> None:
        """A broker that may not be read."""
        self.same(list(write_only_questions()), {}, WRITE_ONLY)
