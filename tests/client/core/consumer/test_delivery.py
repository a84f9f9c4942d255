"""The delivery: the turns of queues, and the line of callers."""

from __future__ import annotations

from typing import Any

from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.consumer.part_case import PartCase, queue
from tests.client.core.group_box import GroupBox
from twistmq.client.base.errors import Closed
from twistmq.client.base.interceptors import Interceptor, Interceptors
from twistmq.client.core.connection.tasks import Cancelled, Future
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, MemberOptions
from twistmq.client.core.consumer.delivery import Delivery


class _Notes(Interceptor):
    """An interceptor that records the messages that are handed out."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, int]] = []

    def before_consume(self, group: str, queue: Any, messages: Any) -> None:
        """See ``Interceptor``."""
        self.seen.append((group, queue, len(messages)))


class DeliveryCase(PartCase):
    """A delivery without a member."""

    def delivery(self, *, needs_locks: bool = False, **options: Any) -> Delivery[bytes]:
        """Create the delivery."""
        self.part: Delivery[bytes] = Delivery(
            self.client, MemberOptions(group="g", **options), self.closing,
            needs_locks=needs_locks)
        return self.part

    def arrive(self, count: int, queue_id: int = 0) -> AssignedQueue[bytes]:
        """Let messages of a queue arrive."""
        assigned = self.assign(count, queue_id)
        self.part.arrived(assigned)
        return assigned

    def take(self, max_count: int = 1) -> tuple[int, list[int]]:
        """Take messages that must exist; :returns: the id of their queue, and the offsets."""
        batch = self.part.take(max_count)
        assert batch is not None
        return batch.assigned.queue.queue_id, [each.offset for each in batch.messages]


class TurnTests(DeliveryCase):
    """The messages that are handed out."""

    def test_queues_take_turns(self) -> None:
        """Each call gets messages of one queue."""
        part = self.delivery()
        self.arrive(3, 0)
        self.arrive(1, 1)
        self.assertEqual([self.take(), self.take(), self.take(5)],
                         [(0, [0]), (1, [0]), (0, [1, 2])])
        self.assertIsNone(part.take(1))
        self.assertEqual(part.running, 4)

    def test_a_queue_is_in_the_line_once(self) -> None:
        """This is so however often messages arrive."""
        part = self.delivery()
        assigned = self.arrive(2)
        part.arrived(assigned)
        self.assertEqual(list(part.ready_queues), [assigned])

    def test_a_lost_queue_is_left_out(self) -> None:
        """It may be lost while it is in the line."""
        part = self.delivery()
        lost, _ = self.arrive(1, 0), self.arrive(1, 1)
        lost.window.drop()
        self.assertEqual(self.take(), (1, [0]))
        part.arrived(lost)
        self.assertIsNone(part.take(1))

    def test_nothing_is_handed_out_after_the_close_began(self) -> None:
        """Another member gets the messages."""
        part = self.delivery()
        self.arrive(1)
        self.closing.set()
        self.assertIsNone(part.take(1))

    def test_in_order_one_caller_has_messages_of_a_queue(self) -> None:
        """The next ones are handed out when these are finished."""
        part = self.delivery(in_order=True)
        assigned = self.arrive(2)
        self.assertEqual(self.take(), (0, [0]))
        part.arrived(assigned)
        self.assertIsNone(part.take(1))
        assigned.window.done(0)
        part.finished(1, assigned)
        self.assertEqual(self.take(), (0, [1]))

    def test_in_order_a_queue_waits_for_its_lock_and_after_a_failure(self) -> None:
        """It is checked again after 100 ms, or when its wait is over."""
        part = self.delivery(needs_locks=True, in_order=True)
        assigned = self.arrive(1)
        self.assertIsNone(part.take(1))
        assigned.window.locked(int(self.tasks.now_ms))
        self.assertIsNone(part.take(1))
        assigned.in_order_until_ms = self.tasks.now_ms + 1000
        self.advance(100)
        self.assertIsNone(part.take(1))
        self.advance(899)
        self.assertIsNone(part.take(1))
        self.advance(1)
        self.assertEqual(self.take(), (0, [0]))

    def test_interceptors_see_what_is_handed_out(self) -> None:
        """With the group and the queue as programs name them."""
        notes = _Notes()
        self.client.interceptors = Interceptors((notes,))
        self.delivery()
        self.arrive(3)
        self.take(2)
        self.assertEqual(notes.seen, [("g", queue(0), 2)])

    def test_released_messages_are_handed_out_again(self) -> None:
        """They come before later ones; listeners are called, and the count is right."""
        part = self.delivery()
        calls: list[int] = []
        part.on_finished.append(lambda: calls.append(part.running))
        assigned = self.arrive(3)
        batch = part.take(2)
        assert batch is not None
        part.release(assigned, batch.messages)
        self.assertEqual((calls, part.running), ([0], 0))
        self.assertEqual(self.take(3), (0, [0, 1, 2]))


class WaitTests(DeliveryCase):
    """Callers that wait for messages."""

    def test_each_arrival_wakes_one_caller(self) -> None:
        """It wakes the first one in the line."""
        part = self.delivery()
        waits = [self.spawn(part.ready()) for _ in range(2)]
        self.arrive(1, 0)
        self.tasks.run()
        self.assertEqual([each.is_done for each in waits], [True, False])
        self.arrive(1, 1)
        self.tasks.run()
        self.assertEqual([each.is_done for each in waits], [True, True])

    def test_a_caller_does_not_wait_while_there_are_messages(self) -> None:
        """It returns at once."""
        part = self.delivery()
        self.arrive(1)
        self.assertTrue(self.spawn(part.ready()).is_done)

    def test_a_cancelled_caller_passes_its_notification_on(self) -> None:
        """Otherwise the messages would wait although callers wait, too."""
        part = self.delivery()
        waits = [self.spawn(part.ready()) for _ in range(2)]
        waits[0].cancel()
        self.arrive(1)
        self.tasks.run()
        self.assertIsInstance(waits[0].error, Cancelled)
        self.assertTrue(waits[1].is_done)

    def test_a_stop_wakes_all_callers(self) -> None:
        """Their errors have the reason; after a close each call raises at once."""
        part = self.delivery()
        waits = [self.spawn(part.ready()) for _ in range(2)]
        part.wake_all()
        self.tasks.run()
        self.assertEqual([str(each.error) for each in waits], ["the consumer stops"] * 2)
        self.closing.set()
        self.assertIsInstance(self.spawn(part.ready()).error, Closed)

    def test_a_waiter_that_ends_otherwise_leaves_the_line(self) -> None:
        """A later arrival does not wake it."""
        part = self.delivery()
        waiter: Future[None] = Future()
        with part.waiting(waiter):
            pass
        self.arrive(1)
        self.assertFalse(waiter.is_done)


class IdleTests(DeliveryCase):
    """A close that waits for handlers."""

    def test_it_waits_until_nothing_runs(self) -> None:
        """Without running messages it ends at once."""
        part = self.delivery()
        self.assertTrue(self.spawn(part.wait_until_idle(100)).is_done)
        assigned = self.arrive(2)
        self.take(2)
        waiting = self.spawn(part.wait_until_idle(60_000))
        part.finished(1, assigned)
        self.advance(1)
        self.assertFalse(waiting.is_done)
        part.finished(1, assigned)
        self.advance(1)
        waiting.result()

    def test_it_gives_up_after_its_time_or_when_it_is_told_to(self) -> None:
        """Only the time-out is an error."""
        part = self.delivery()
        self.arrive(1)
        self.take()
        waiting = self.spawn(part.wait_until_idle(100))
        self.advance(100)
        self.assertRaises(TimeoutError, waiting.result)
        waiting = self.spawn(part.wait_until_idle(100))
        part.stop_waiting()
        self.advance(1)
        waiting.result()


class MemberWaitTests(MemberCase):
    """The callers of a whole member."""

    def test_a_stop_reaches_a_wait_that_was_just_woken(self) -> None:
        """Another caller takes the message, and the stop comes before the next look."""
        box = GroupBox(self.broker)
        box.start()
        box.take_all()
        waits = [box.member.tasks.spawn(box.member.ready(), "wait") for _ in range(2)]
        box.advance(1)
        self.assertEqual([each.is_done for each in waits], [False, False])
        box.member.delivery._notify()
        box.member.wake_all()
        box.advance(1)
        self.assertEqual([each.is_done for each in waits], [True, True])
