"""Public bug reports about half messages, reproduced here; see ``tests/REPORTS.md``."""

from __future__ import annotations

from tests.kernel_case import run_all
from tests.transaction.case import COMMIT, TransactionTestCase
from twistmq.plugins import schedule, timer
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.transaction import ResumeCheckHalfMessageRequestHeader
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from twistmq.transaction import plugin
from twistmq.transaction.service import SYSTEM_GROUP

TIMEOUT_MS = 6000
TWO_HOURS_MS = 7_200_000


class ReportTests(TransactionTestCase):
    """Half messages with a delay."""

    settings = {"transactionCheckMax": "1"}  # noqa: RUF012
    plugins = (("transaction", plugin.Plugin), ("schedule", schedule.Plugin),
               ("timer", timer.Plugin))

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, and deliver the messages that are due."""
        for _ in range(2):
            self.box.now_ms += milliseconds // 2
            run_all(self.box, "deliver delayed messages")
            run_all(self.box, "enter and deliver timed messages")

    def test_a_commit_is_delayed_and_delivered(self) -> None:
        """apache/rocketmq#1540: a transaction with a delay level is delivered without the delay."""
        self.must_end(self.half(DELAY="3"), COMMIT)
        self.must_end(self.half(b"timed", TIMER_DELAY_SEC="20"), COMMIT)
        self.pass_time(9000)
        self.assertEqual(self.bodies(), [])
        self.pass_time(2000)
        self.assertEqual(self.bodies(), [b"half"])
        self.pass_time(12_000)
        self.assertEqual(self.bodies(), [b"half", b"timed"])

    def test_what_is_given_up_does_not_wait(self) -> None:
        """apache/rocketmq#2722: a message that is given up is delayed by its own property DELAY.

        There it was a dead letter, which came two hours later. Here it is a half message for which
        no producer answers. An administrator who has it checked again gets it back into its topic.
        """
        for properties in ({"DELAY": "18"}, {"TIMER_DELAY_SEC": "7200"}):
            with self.subTest(properties):
                self.half(**properties)
                self.check(TIMEOUT_MS)
                self.check(30_000)
                self.assertEqual(self.given_up()[-1:], [b"half"])
                found = self.stored(CHECK_MAX_TIME_TOPIC, 0)[-1]
                before = len(self.halves())
                reply = self.box.ask(
                    RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader(
                        topic="T", msg_id=offset_message_id(
                            found.store_host, found.physical_offset)))
                self.assertEqual(reply.code, ResponseCode.SUCCESS)
                self.assertEqual(len(self.halves()), before + 1)
                [asked] = self.check(TIMEOUT_MS)
                self.answer(asked, COMMIT)
                count = len(self.bodies())
                self.pass_time(TWO_HOURS_MS - 4000)
                self.assertEqual(len(self.bodies()), count)
                self.pass_time(8000)
                self.assertEqual(len(self.bodies()), count + 1)

    def test_half_messages_behind_a_saved_offset_that_is_too_large_are_checked(self) -> None:
        """apache/rocketmq#1869 for half messages: the saved offset is beyond the half queue.

        The store is an older one than the file of the offsets: nothing that is open is forgotten,
        and what was ended does not come again.
        """
        ended = [self.half(b"ended %d" % number) for number in range(3)]
        open_ones = [b"open 0", b"open 1"]
        for body in open_ones:
            self.half(body)
        for half in ended:
            self.must_end(half, COMMIT)
        self.write_ends()
        for topic, offset in ((HALF_TOPIC, 99), (OP_HALF_TOPIC, 1)):
            self.box.kernel.consumer_offset.commit("", SYSTEM_GROUP, topic, 0, offset)
        self.assertEqual(self.asked(TIMEOUT_MS), open_ones)
        self.assertEqual(len(self.bodies()), 3)
