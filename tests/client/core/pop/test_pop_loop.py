"""Pops: their times, queues and numbers of messages."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tests.client.core.box import Answer
from tests.client.core.pop.pop_case import PopCase
from tests.client.core.pop_box import BROKER, PopBox
from twistmq.protocol.bodies import (
    MessageQueue,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand


class DemandTests(PopCase):
    """A member pops only while a caller waits for messages."""

    def test_nothing_is_popped_before_something_waits(self) -> None:
        """A popped message is hidden from the other members."""
        box = self.start()
        box.advance(30_000)
        self.assertEqual(box.broker.pops, [])
        box.demand()
        self.assertEqual(sorted(box.take_all()), list(range(10)))
        box.advance(5000)
        self.assertEqual(len(box.broker.pops), 1)

    def test_a_pop_is_held_and_repeated_while_something_waits(self) -> None:
        """The broker does not answer: after its time another one is sent."""
        box = self.start(0)
        box.demand()
        box.advance(25_000)
        self.assertEqual([pop.poll_time for pop in box.broker.pops], [15_000])
        box.advance(10_000)
        self.assertEqual(len(box.broker.pops), 2)
        self.assertEqual(box.broker.pops[0].born_time, 0)

    def test_messages_that_are_popped_and_not_finished_are_bounded(self) -> None:
        """Their number is limited; a finished one makes room."""
        box = self.start(in_flight_max=4)
        batch = self.take()
        box.take_all()
        box.demand()
        self.assertEqual([pop.max_msg_nums for pop in box.broker.pops], [4])
        box.member.succeed(batch.assigned, batch.messages[:1])
        box.settle()
        self.assertEqual([pop.max_msg_nums for pop in box.broker.pops], [4, 1])

    def test_bytes_that_are_popped_and_not_finished_are_bounded(self) -> None:
        """A pop reserves 256 KiB, its largest answer, and a finished message makes room."""
        box = self.start(0, cache_bytes_max=300_000, pop_count=1)
        for _ in range(3):
            box.broker.put(b"1".ljust(100_000))
        batch = self.take()
        box.demand()
        self.assertEqual(len(box.broker.pops), 1)
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(len(box.broker.pops), 2)

    def test_a_paused_member_pops_nothing(self) -> None:
        """One source or all may be paused."""
        box = self.start()
        for queues in (None, [MessageQueue("T", "a", -1)]):
            box.member.set_paused(queues, True)
            box.demand()
            self.assertEqual(box.broker.pops, [])
            box.member.set_paused(queues, False)
        box.settle()
        self.assertEqual(len(box.broker.pops), 1)

    def test_the_time_that_was_asked_for_counts_whatever_the_broker_says(self) -> None:
        """With a longer time of the broker, messages would be late; a log line has both."""
        box = self.start(invisible_s=2)
        honest = box.broker

        def lie(request: RemotingCommand) -> Answer:
            answer = honest(request)
            if request.code == RequestCode.POP_MESSAGE and answer is not None and answer[1]:
                answer[1].invisible_time = 60_000  # type: ignore[attr-defined]
            return answer

        box.servers[BROKER] = lie
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            box.demand()
        self.assertEqual(sorted(box.take_all()), list(range(10)))
        self.assertEqual((len(honest.pops), len(logs.output)), (1, 1))
        self.assertIn("for 2000 ms", logs.output[0])
        self.assertIn("for 60000 ms", logs.output[0])


class FailureTests(PopCase):
    """Pops that fail."""

    def test_a_pop_that_fails_is_tried_again(self) -> None:
        """A refusal, a broker that holds too many, a lost connection."""
        box = self.start()
        for code in (ResponseCode.SYSTEM_ERROR, ResponseCode.POLLING_FULL,
                     ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
            box.broker.refusals = {RequestCode.POP_MESSAGE: code}
            box.demand()
            box.advance(1500)
            self.assertEqual(box.take_all(), [])
        box.broker.refusals = {}
        box.broker.silent = {RequestCode.POP_MESSAGE}
        box.advance(1000)
        box.cut(BROKER)
        box.broker.silent = set()
        # The messages of the lost answer are hidden for their time.
        box.advance(70_000)
        self.assertEqual(sorted(box.take_all()), list(range(10)))

    def test_an_unexpected_error_does_not_end_the_pops(self) -> None:
        """It is logged, and the source is popped again soon."""
        box = self.start()
        with mock.patch.object(box.core.routes, "master", side_effect=ZeroDivisionError), (
                self.assertLogs("twistmq.client", "ERROR")) as logged:
            box.demand()
            box.advance(500)
        self.assertIn("failed, and is tried again", logged.output[0])
        box.advance(5000)
        self.assertEqual(sorted(box.take_all()), list(range(10)))

    def test_a_pop_without_an_answer_is_sent_again_as_the_same_attempt(self) -> None:
        """The broker recognises it by its id, and returns the same messages."""
        box = self.start(1, order="queue")
        box.broker.silent = {RequestCode.POP_MESSAGE}
        box.demand()
        box.cut(BROKER)
        box.advance(1100)
        box.broker.silent = set()
        ids = [pop.attempt_id for pop in box.broker.pops]
        self.assertEqual((len(ids), len(set(ids))), (2, 1))
        box.broker.put(b"1")
        box.advance(61_000)
        self.take()
        self.demand_again()
        self.assertNotEqual(box.broker.pops[-1].attempt_id, ids[0])

    def damage(self, box: PopBox, *bodies: bytes, is_cut: bool = False) -> None:
        """Change the CRC, or the length, of the records with these bodies."""
        intact = box.broker._record

        def record(message: Any) -> bytes:
            data = bytearray(intact(message))
            if message.body in bodies:
                data[1 if is_cut else 8] ^= 1
            return bytes(data)

        self.patch(box.broker, "_record", record)

    def test_an_order_leaves_damaged_messages_out(self) -> None:
        """A broker gives out nothing behind them before they are acknowledged."""
        box = self.start(8, order="queue", invisible_s=5)
        self.damage(box, b"2", b"5")
        with self.assertLogs("twistmq.client", "ERROR") as logged:
            box.demand()
            self.assertEqual(sorted(box.take_all()), [0, 1, 3, 4, 6, 7])
        self.assertEqual(sorted(box.broker.acks), [2, 5])
        self.assertEqual(box.member.damaged_count, 2)
        self.assertIn("is left out", logged.output[0])

    def test_what_follows_a_damaged_length_comes_again(self) -> None:
        """The records behind it cannot be found in the answer, so only the first is left out."""
        box = self.start(6, order="queue", invisible_s=5)
        self.damage(box, b"2", is_cut=True)
        box.demand()
        handled = sorted(box.take_all())
        self.assertNotIn(2, handled)
        self.assertEqual(box.broker.acks, [2])

    def test_without_an_order_damaged_messages_are_left_to_the_broker(self) -> None:
        """It may have an intact copy."""
        box = self.start(4, invisible_s=5)
        self.damage(box, b"2")
        box.demand()
        self.assertEqual(sorted(box.take_all()), [0, 1, 3])
        self.assertEqual(box.broker.acks, [])

    def demand_again(self) -> None:
        """Wait for messages until there is another pop."""
        count = len(self.box.broker.pops)
        self.box.demand()
        self.assertGreater(len(self.box.broker.pops), count)
