"""Our broker answers as Apache's does: code, remark, fields and body."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.interop.admin_questions import admin_questions
from tests.interop.answers import ask_all
from tests.interop.clients import JavaTestCase
from tests.interop.kept import kept
from tests.interop.lock_questions import lock_questions
from tests.interop.peer import Peer
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
from tests.interop.servers import Servers, free_port
from twistmq.broker.config.apache_settings import UNREAD
from twistmq.broker.config.setting_rows import up_rows
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.codes import RequestCode
from twistmq.tools.pages.settings_page import stock_plugin_rows

#: What is answered otherwise on purpose, and why.
DIFFERENT: Final = {
    "LOCK_BATCH_MQ topic that is not there": "a queue of no topic is not locked",
    "UPDATE_AND_CREATE_TOPIC negative queues": "nobody can use such a topic",
    "UPDATE_AND_CREATE_TOPIC with '+message.type='": "the refusal tells the values",
    "UPDATE_AND_CREATE_TOPIC with '+message.type=FIFO=x'": "the rest is not dropped in silence",
    "UPDATE_AND_CREATE_TOPIC with '+message.type=XX'": "the list of types is that of 5.5",
    "UPDATE_AND_CREATE_TOPIC later with '+message.type= FIFO'": "the list of types is that of 5.5",
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


def start(folder: Path, stack: ExitStack, *settings: str) -> tuple[int, int]:
    """Start Apache's broker, without a name server, and ours; their ports."""
    alike = (*_ALIKE, *settings)
    peer = Peer(folder / "peer", broker_port=free_port(), heap="512m", with_namesrv=False,
                settings={"namesrvAddr": "", **dict(pair.split("=", 1) for pair in alike)})
    stack.callback(peer.stop, kill=True)
    peer.start()
    ours = Servers(folder / "ours", "brokerIP1=127.0.0.1", *alike)
    stack.callback(ours.stop)
    ours.start()
    return peer.broker_port, ours.broker_port


class AnswersTests(JavaTestCase):
    """Some hundreds of requests to both brokers."""

    def brokers(self, *settings: str) -> tuple[int, int]:
        """The ports of brokers of this test's own, Apache's and ours."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        return start(self.folder, stack, *settings)

    def same(
        self, asked: list[Question], different: Mapping[str, str], brokers: tuple[int, int]
    ) -> None:
        """All answers are equal, except those with a known difference.

        :param brokers: the ports of Apache's and ours.
        """
        self.assertEqual(len({question.name for question in asked}), len(asked))
        apache, ours = (ask_all(port, asked) for port in brokers)
        found = {name: (apache[name], ours[name]) for name in apache
                 if apache[name] != ours[name]}
        wrong = {name: pair for name, pair in found.items() if name not in different}
        self.assertEqual(wrong, {}, "\n".join(
            f"{name}\n  Apache {theirs}\n  ours   {mine}"
            for name, (theirs, mine) in wrong.items()))
        self.assertEqual(sorted(found), sorted(different))

    def test_same_answers(self) -> None:
        """The brokers have their default settings."""
        self.same([*questions(), *lock_questions(), *admin_questions()], DIFFERENT,
                  self.brokers())

    def test_settings_that_nothing_reads(self) -> None:
        """The settings of Apache's broker that ours does not read can still be
        changed by a tool.
        """
        with RawClient(f"127.0.0.1:{kept(self, start)[0]}") as client:
            reply = client.request(RequestCode.GET_BROKER_CONFIG)
        theirs = {line.partition("=")[0] for line in reply.body.decode().splitlines()}
        plugins = {row.name for _, rows in stock_plugin_rows() for row in rows}
        self.assertEqual(theirs - {row.name for row in up_rows()} - plugins, UNREAD)

    def test_permissions_of_topics_and_groups(self) -> None:
        """Permissions of topics and groups, and how long things may be."""
        self.same(list(permission_questions()), DIFFERENT_PERMISSIONS, kept(self, start))

    def test_a_broker_that_creates_nothing(self) -> None:
        """The broker creates nothing, refuses half messages, and accepts short bodies only."""
        self.same(list(closed_questions()), DIFFERENT_CLOSED, self.brokers(*CLOSED))

    def test_read_only(self) -> None:
        """The broker has no permission to write."""
        self.same(list(read_only_questions()), {}, self.brokers(*READ_ONLY))

    def long_write_only(self) -> None:
        """The broker has no permission to read."""
        self.same(list(write_only_questions()), {}, self.brokers(*WRITE_ONLY))
