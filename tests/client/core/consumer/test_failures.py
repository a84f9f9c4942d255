"""The handling of failed messages, by the kind of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tests.client.core.consumer.member_case import OrderCase
from tests.client.core.consumer.part_case import PartCase
from tests.client.core.group_box import GroupBox
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch, MemberOptions
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.failures import (
    LOCAL_RETRY_MS,
    BroadcastFailures,
    ConcurrentFailures,
    OrderedDeadLetters,
    OrderedFailures,
)
from twistmq.client.core.consumer.retries import DEAD_LEVEL, Retries
from twistmq.protocol.codes import RequestCode, ResponseCode


class _Retries:
    """A broker that accepts messages back, or not."""

    def __init__(self) -> None:
        self.accepts = True
        self.sent: list[tuple[int, int]] = []

    async def send_back(self, message: ReceivedMessage[Any], level: int) -> bool:
        """See ``Retries``."""
        self.sent.append((message.offset, level))
        return self.accepts


class FailureCase(PartCase):
    """Three messages of one queue that are running."""

    def setUp(self) -> None:
        """Hand the messages out."""
        super().setUp()
        self.retries = _Retries()
        self.hand_out()

    def hand_out(self, **options: Any) -> None:
        """Make the delivery, and hand out three messages of four."""
        self.options = MemberOptions(group="g", **options)
        self.delivery: Delivery[bytes] = Delivery(self.client, self.options, self.closing)
        self.assigned = self.assign(4)
        self.delivery.arrived(self.assigned)
        batch = self.delivery.take(3)
        assert batch is not None
        self.batch: Batch[bytes] = batch

    def waiting(self) -> list[int]:
        """Return the offsets that can be handed out."""
        return [message.offset for message in self.assigned.window.waiting()]


class BroadcastTests(FailureCase):
    """A broadcast group."""

    def test_a_failed_message_is_dropped_and_named(self) -> None:
        """It counts as finished."""
        failures: BroadcastFailures[bytes] = BroadcastFailures(self.delivery)
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            failures.handle(self.assigned, self.batch.messages[:2], 0)
        self.assertEqual(len(logs.output), 2)
        self.assertEqual((self.delivery.running, self.assigned.window.committable), (1, 2))


class ConcurrentTests(FailureCase):
    """A group without order."""

    def setUp(self) -> None:
        """Create the part."""
        super().setUp()
        self.calls: list[str] = []
        self.failures: ConcurrentFailures[bytes] = ConcurrentFailures(
            self.tasks, self.closing, self.delivery, cast(Retries, self.retries),
            lambda: self.calls.append("sent back"))

    def test_a_message_that_is_sent_back_is_finished(self) -> None:
        """Each is sent back with its level; then the route of the retry topic is requested."""
        self.failures.handle(self.assigned, self.batch.messages[:2], 5)
        self.advance(1)
        self.assertEqual(self.retries.sent, [(0, 5), (1, 5)])
        self.assertEqual((self.delivery.running, self.assigned.window.committable), (1, 2))
        self.assertEqual(self.calls, ["sent back"] * 2)

    def test_a_message_that_cannot_be_sent_back_is_tried_again_here(self) -> None:
        """After five seconds, with one more attempt, and before later messages."""
        self.retries.accepts = False
        self.failures.handle(self.assigned, self.batch.messages[:1], 0)
        self.advance(LOCAL_RETRY_MS - 1)
        self.assertEqual((self.waiting(), self.delivery.running), ([3], 3))
        self.advance(1)
        self.assertEqual((self.waiting(), self.delivery.running), ([0, 3], 2))
        self.assertEqual((self.batch.messages[0].attempt, self.calls), (2, []))

    def test_a_close_ends_the_wait(self) -> None:
        """The message is not finished, so the group gets it again."""
        self.retries.accepts = False
        self.failures.handle(self.assigned, self.batch.messages[:1], 0)
        self.advance(1)
        self.closing.set()
        self.advance(1)
        self.assertEqual((self.delivery.running, self.assigned.window.committable), (2, 0))

    def test_a_message_that_has_its_result_or_is_lost_is_not_sent_back(self) -> None:
        """A time-out sent it back, or another member has the queue."""
        self.assigned.window.done(0)
        self.failures.handle(self.assigned, self.batch.messages[:1], 0)
        self.advance(1)
        self.assigned.window.stop_handing_out()
        self.failures.handle(self.assigned, self.batch.messages[1:2], 0)
        self.advance(1)
        self.assertEqual((self.retries.sent, self.delivery.running), ([], 1))


class OrderedTests(FailureCase):
    """A group with order."""

    def hand_out(self, **options: Any) -> None:
        """Hand the messages out in order."""
        super().hand_out(in_order=True, suspend_ms=200, **options)
        self.buried: list[tuple[list[int], list[int]]] = []

        async def bury(
            assigned: AssignedQueue[bytes], over: Sequence[ReceivedMessage[bytes]],
            again: Sequence[ReceivedMessage[bytes]],
        ) -> None:
            self.buried.append(([each.offset for each in over], [each.offset for each in again]))

        self.failures: OrderedFailures[bytes] = OrderedFailures(
            self.tasks, self.options, self.delivery, 1, bury, self.delivery.release)

    def test_failed_messages_are_handed_out_again_after_a_wait(self) -> None:
        """They are in order, and have one more attempt."""
        self.failures.handle(self.assigned, self.batch.messages, 0)
        self.assertEqual((self.waiting(), self.delivery.running), ([0, 1, 2, 3], 0))
        self.assertIsNone(self.delivery.take(4))
        self.advance(200)
        batch = self.delivery.take(4)
        assert batch is not None
        self.assertEqual([(each.offset, each.attempt) for each in batch.messages],
                         [(0, 2), (1, 2), (2, 2), (3, 1)])

    def test_the_wait_has_bounds(self) -> None:
        """The bounds are ten milliseconds and half a minute."""
        for suspend_ms, expected in ((0, 10), (60_000, 30_000)):
            failures: OrderedFailures[bytes] = OrderedFailures(
                self.tasks, MemberOptions(group="g", suspend_ms=suspend_ms), self.delivery, 1,
                cast(Any, None), self.delivery.release)
            failures.handle(self.assigned, [], 0)
            self.assertEqual(self.assigned.in_order_until_ms - self.tasks.now_ms, expected)

    def test_dead_messages_are_buried(self) -> None:
        """This is so after the last attempt, or on request; the others are tried again."""
        self.batch.messages[1].earlier_attempts = 1
        self.failures.handle(self.assigned, self.batch.messages[:2], 0)
        self.failures.handle(self.assigned, self.batch.messages[2:], DEAD_LEVEL)
        self.tasks.run()
        self.assertEqual(self.buried, [([1], [0]), ([2], [])])


class DeadLetterTests(FailureCase):
    """The dead letters of an ordered queue."""

    def bury(self, over: int) -> Task[Any]:
        """Bury some of the messages, and try the last one again."""
        letters: OrderedDeadLetters[bytes] = OrderedDeadLetters(
            self.closing, self.delivery, cast(Retries, self.retries))
        return self.spawn(letters.bury(
            self.assigned, self.batch.messages[:over], self.batch.messages[over:]))

    def test_they_are_finished_and_the_others_wait_again(self) -> None:
        """The queue no longer waits."""
        self.assigned.in_order_until_ms = self.tasks.now_ms + 1000
        self.bury(2).result()
        self.assertEqual(self.retries.sent, [(0, -1), (1, -1)])
        self.assertEqual((self.waiting(), self.delivery.running), ([2, 3], 0))
        self.assertEqual((self.assigned.window.committable, self.assigned.in_order_until_ms),
                         (2, 0.0))

    def test_they_are_sent_until_the_broker_accepts_them(self) -> None:
        """They are sent every five seconds."""
        self.retries.accepts = False
        burying = self.bury(1)
        self.advance(LOCAL_RETRY_MS)
        self.assertEqual((len(self.retries.sent), burying.is_done), (2, False))
        self.retries.accepts = True
        self.advance(LOCAL_RETRY_MS)
        self.assertTrue(burying.is_done)
        self.assertEqual(self.waiting(), [1, 2, 3])

    def test_a_close_gives_them_up(self) -> None:
        """They are not finished."""
        self.retries.accepts = False
        burying = self.bury(1)
        self.closing.set()
        self.advance(1)
        self.assertTrue(burying.is_done)
        self.assertEqual(self.assigned.window.committable, 0)


class MemberOrderTests(OrderCase):
    """A whole member with ordered consumption."""

    def test_nothing_is_handed_out_while_a_message_of_the_queue_runs(self) -> None:
        """The next one follows when the previous one is finished."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        seen = []
        for _ in range(10):
            batch = box.member.take(1)
            assert batch is not None
            self.assertIsNone(box.member.take(1))
            seen.append(int(batch.messages[0].body))
            box.member.succeed(batch.assigned, batch.messages)
        self.assertEqual(seen, list(range(10)))

    def test_a_failed_message_comes_again_before_the_next(self) -> None:
        """After the wait of a suspension, and never sent back."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        batch = box.member.take(3)
        assert batch is not None
        box.member.fail(batch.assigned, batch.messages)
        box.settle()
        self.assertIsNone(box.member.take(3))
        box.advance(1_100)
        again = box.member.take(3)
        assert again is not None
        self.assertEqual([int(each.body) for each in again.messages], [0, 1, 2])
        self.assertEqual({each.attempt for each in again.messages}, {2})
        self.assertEqual(self.broker.sent_back, [])

    def test_a_message_with_too_many_attempts_leaves_the_order(self) -> None:
        """It becomes a dead letter, and the next one follows."""
        box = GroupBox(self.broker, in_order=True, max_attempts=1)
        box.start()
        for _ in range(2):
            batch = box.member.take(1)
            assert batch is not None
            self.assertEqual(int(batch.messages[0].body), 0)
            box.member.fail(batch.assigned, batch.messages)
            box.advance(1_200)
        self.assertEqual([header.delay_level for header in self.broker.sent_back], [-1])
        batch = box.member.take(1)
        assert batch is not None
        self.assertEqual(int(batch.messages[0].body), 1)

    def test_a_close_does_not_wait_for_the_dead_letters(self) -> None:
        """A refusal of the dead letter delays the close only by one answer."""
        self.broker.refusals[RequestCode.CONSUMER_SEND_MSG_BACK] = ResponseCode.SYSTEM_ERROR
        self.broker.refusals[RequestCode.SEND_MESSAGE_V2] = ResponseCode.NO_PERMISSION
        for fails_in_close in (False, True):
            box = GroupBox(self.broker, in_order=True, max_attempts=0)
            box.start()
            batch = box.member.take(1)
            assert batch is not None
            if fails_in_close:
                box.tasks_later(100, box.member.fail, batch.assigned, batch.messages)
            else:
                box.member.fail(batch.assigned, batch.messages)
                box.advance(1_000)
            begin = box.clock.now_ms
            box.run(box.member.close())
            self.assertEqual(box.clock.now_ms - begin, 100 if fails_in_close else 0)
            self.assertEqual((self.broker.offsets["g", "T", 0], self.broker.locks), (0, {}))
