"""The transactions of a producer: half messages, their ends, and questions of brokers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes
from twistmq.client.base.errors import NotSafe, OptionError, SendFailed
from twistmq.client.base.handlers import COMMIT, ROLLBACK, UNKNOWN
from twistmq.client.base.messages import Message, ReceivedMessage
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.producer import transactions
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.client.core.producer.transactions import Checks, prepare_half
from twistmq.client.shell.transaction import AsyncTransaction, Transaction
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.properties import PGROUP, TRAN_MSG, UNIQ_KEY, parse_properties
from twistmq.protocol.record import MessageRecord, encode_record

A, B = "10.0.0.2:10911", "10.0.0.3:10911"
HOST = bytes((10, 0, 0, 2, 0, 0, 0x2A, 0x9F))
PLACE = offset_message_id(HOST, 4711)


def storing(code: int = ResponseCode.SUCCESS) -> Callable[[RemotingCommand], Answer]:
    """A broker that stores half messages at commit-log offset 4711."""
    def answer(command: RemotingCommand) -> Answer:
        if command.code == RequestCode.SEND_MESSAGE_V2:
            header = SendMessageResponseHeader(PLACE, int(command.fields()["e"]), 5, "TX")
            return code, header, b"", None
        return ResponseCode.SUCCESS, None, b"", None

    return answer


class TransactionCase(SynchronousTestCase):
    """A producer's core with one broker."""

    def setUp(self) -> None:
        """Create the producer."""
        self.box = Box()
        self.box.servers[NAMESRV] = routes({"T": route({"a": A})})
        self.box.servers[A] = self.box.servers[B] = storing()
        ids = count()
        self.sender = Sender(self.box.core, ProducerOptions(group="g"),
                             lambda now_ms: f"ID{next(ids)}")
        self.decided: list[ReceivedMessage[Any]] = []
        self.decision: Any = COMMIT
        self.sender.checks = Checks(self.sender, self.decide)
        self.box.core.add(self.sender)
        self.box.settle()

    def decide(self, message: ReceivedMessage[Any]) -> Any:
        """Decide as the producer's ``on_check``."""
        self.decided.append(message)
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision

    def transaction(self, **options: Any) -> AsyncTransaction:
        """Return a transaction whose coroutines the box runs."""
        async def run(coroutine: Any) -> None:
            await coroutine

        return AsyncTransaction(
            self.sender, prepare_half(self.sender, Message("T", b"1", **options)), None, run)

    def run_block(self, block: Callable[[Transaction], object]) -> None:
        """Run a block in a transaction."""
        async def run() -> None:
            async with self.transaction() as transaction:
                block(transaction)

        self.box.run(run())
        self.box.settle()

    def sent(self, code: int) -> list[tuple[str, RemotingCommand]]:
        """The requests of a code that brokers got, with their addresses."""
        return [(where, command) for where, command in self.box.requests if command.code == code]

    def ends(self) -> list[EndTransactionRequestHeader]:
        """Return the ends of transactions that the broker received."""
        return [command.header(EndTransactionRequestHeader)
                for _, command in self.sent(RequestCode.END_TRANSACTION)]


class BlockTests(TransactionCase):
    """The end of the block decides."""

    def test_a_block_that_ends_commits_its_half_message(self) -> None:
        """The end has the offsets of the half message, and is one-way."""
        seen: list[str] = []
        self.run_block(lambda transaction: seen.append(transaction.result.id))
        [(_, half)] = self.sent(RequestCode.SEND_MESSAGE_V2)
        properties = parse_properties(half.fields()["i"])
        self.assertEqual((properties[TRAN_MSG], properties[PGROUP]), ("true", "g"))
        self.assertEqual(half.fields()["f"], "4")
        [end] = self.ends()
        self.assertEqual(
            (end.commit_or_rollback, end.commit_log_offset, end.tran_state_table_offset,
             end.producer_group, end.msg_id, end.transaction_id, end.broker_name, end.topic,
             end.from_transaction_check),
            (COMMIT, 4711, 5, "g", seen[0], "TX", "a", "T", False))
        self.assertTrue(self.sent(RequestCode.END_TRANSACTION)[0][1].is_oneway)

    def test_a_rollback_is_told_at_the_end_of_the_block(self) -> None:
        """A later error in the block changes nothing."""
        self.run_block(Transaction.rollback)

        def fail(transaction: Transaction) -> None:
            transaction.rollback()
            raise ValueError

        self.assertRaises(ValueError, self.run_block, fail)
        self.box.settle()
        self.assertEqual([end.commit_or_rollback for end in self.ends()], [ROLLBACK, ROLLBACK])

    def test_an_error_in_the_block_leaves_the_transaction_open(self) -> None:
        """The local part may have succeeded."""
        def fail(transaction: Transaction) -> None:
            raise ValueError

        self.assertRaises(ValueError, self.run_block, fail)
        self.box.settle()
        self.assertEqual([end.commit_or_rollback for end in self.ends()], [UNKNOWN])

    def test_a_half_message_that_is_not_safe_is_rolled_back_and_the_block_not_run(self) -> None:
        """Whether the option ``require_safe`` is set or not."""
        ran: list[Transaction] = []
        for require_safe in (False, True):
            self.sender.options = ProducerOptions(group="g", require_safe=require_safe)
            for code in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_DISK_TIMEOUT,
                         ResponseCode.FLUSH_SLAVE_TIMEOUT):
                self.box.servers[A] = storing(code)
                error = self.assertRaises(NotSafe, self.run_block, ran.append)
                self.assertEqual(error.result.code, code)
        self.box.settle()
        self.assertEqual(ran, [])
        self.assertEqual([end.commit_or_rollback for end in self.ends()], [ROLLBACK] * 6)

    def test_a_half_message_that_is_not_stored_raises_and_the_block_is_not_run(self) -> None:
        """No end is sent."""
        ran: list[Transaction] = []
        del self.box.servers[A]
        self.assertRaises(SendFailed, self.run_block, ran.append)
        self.assertEqual((ran, self.ends()), ([], []))

    def test_a_delay_or_a_missing_on_check_is_refused(self) -> None:
        """Nothing is sent."""
        self.assertRaises(OptionError, self.transaction, delay_level=1)
        self.sender.checks = None
        error = self.assertRaises(OptionError, self.transaction)
        self.assertIn("on_check", str(error))


class CheckTests(TransactionCase):
    """The questions of brokers."""

    def ask(self, body: bytes = b"half", group: str = "g", address: str = B) -> None:
        """Let a broker ask about a half message."""
        if address not in self.box.connects:
            self.box.engine.connection(address)
            self.box.settle()
        record = MessageRecord(
            "T", 3, body, f"{PGROUP}\x01{group}\x02{UNIQ_KEY}\x01U\x02", 1, HOST, HOST, [])
        header = CheckTransactionStateRequestHeader(
            topic="T", tran_state_table_offset=8, commit_log_offset=int.from_bytes(body),
            msg_id="U", transaction_id="TX", broker_name="b")
        self.box.push(address, encode_request(
            RequestCode.CHECK_TRANSACTION_STATE, 1, header, encode_record(record), oneway=True))

    def answers(self) -> list[tuple[str, int]]:
        """Return the answers, with their addresses."""
        self.box.settle()
        return [(where, command.header(EndTransactionRequestHeader).commit_or_rollback)
                for where, command in self.sent(RequestCode.END_TRANSACTION)]

    def test_a_question_is_answered_to_the_address_that_asks(self) -> None:
        """It has the offsets of the question."""
        self.ask()
        self.assertEqual(self.answers(), [(B, COMMIT)])
        [end] = self.ends()
        self.assertEqual(
            (end.commit_log_offset, end.tran_state_table_offset, end.from_transaction_check,
             end.msg_id, end.transaction_id, end.broker_name),
            (int.from_bytes(b"half"), 8, True, "U", "TX", "b"))
        [message] = self.decided
        self.assertEqual((message.body, message.topic, message.queue.queue_id), (b"half", "T", 3))

    def test_an_on_check_that_fails_or_returns_nonsense_does_not_know(self) -> None:
        """The broker asks again later."""
        for self.decision in (ValueError("no"), None, True, "COMMIT"):
            self.ask()
            self.box.settle()
        self.assertEqual(self.answers(), [(B, UNKNOWN)] * 4)
        self.assertEqual(len(self.decided), 4)

    def test_questions_of_other_groups_are_not_answered(self) -> None:
        """A producer knows only its own transactions."""
        self.ask(group="other")
        self.assertEqual((self.answers(), self.decided), ([], []))

    def test_questions_are_answered_one_by_one_and_none_twice(self) -> None:
        """A question that waits already is not added again; too many are dropped."""
        waiting: list[Future[Any]] = []

        def decide(message: ReceivedMessage[Any]) -> Future[Any]:
            waiting.append(Future())
            return waiting[-1]

        assert self.sender.checks is not None
        self.sender.checks.decide = decide
        self.patch(transactions, "HELD_MAX", 2)
        for body in (b"1", b"1", b"2", b"3"):
            self.ask(body)
        self.box.settle()
        self.assertEqual(len(waiting), 1)
        waiting[0].set_result(COMMIT)
        self.box.settle()
        self.assertEqual(len(waiting), 2)
        waiting[1].set_result(ROLLBACK)
        self.assertEqual(self.answers(), [(B, COMMIT), (B, ROLLBACK)])

    def test_a_question_that_is_repeated_takes_no_more_space(self) -> None:
        """The bytes of each question are given back when it is answered."""
        waiting: Future[Any] = Future()
        assert self.sender.checks is not None
        self.sender.checks.decide = lambda message: waiting
        for _ in range(3):
            self.ask(b"half")
        self.box.settle()
        self.assertEqual(self.sender.checks._held_bytes, 4)
        waiting.set_result(COMMIT)
        self.assertEqual(self.answers(), [(B, COMMIT)])
        self.assertEqual(self.sender.checks._held_bytes, 0)
