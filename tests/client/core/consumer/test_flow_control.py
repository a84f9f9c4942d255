"""The flow control of pulls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.base.received_message import Read
from twistmq.client.core.consumer.flow_control import (
    BROKER_BUSY_MS,
    FAILED_MS,
    HELD_MS,
    PULL_BYTES,
    PullFlow,
    PullLimits,
    delay_after_refusal,
)
from twistmq.client.core.consumer.window import ByteTotal, QueueWindow
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import ResponseCode

QUEUE = MessageQueue("T", "b", 0)
MIB = 1 << 20


def window(count: int, size: int = 1, step: int = 1, total: ByteTotal | None = None) -> (
        QueueWindow[Read]):
    """A window with some messages of a size, at offsets some steps apart."""
    made = QueueWindow[Read](QUEUE, 0, 0, total)
    made.put([Read(number * step, size) for number in range(count)])
    return made


class LimitTests(SynchronousTestCase):
    """The limits of a queue."""

    def test_a_queue_over_a_bound_waits(self) -> None:
        """At the limit it is pulled; one message, byte or offset above it is not."""
        limits = PullLimits()
        for inside, outside, word in (
                (window(1000), window(1001), "messages"),
                (window(1, 100 * MIB), window(1, 100 * MIB + 1), "bytes"),
                (window(2, step=2000), window(2, step=2001), "offsets")):
            self.assertEqual(limits.excess(inside), "")
            self.assertIn(word, limits.excess(outside))

    def test_in_order_the_span_does_not_matter(self) -> None:
        """One message runs at a time, so offsets far apart do not show that one hangs."""
        self.assertEqual(PullLimits().excess(window(2, step=9999), in_order=True), "")

    def test_a_bound_on_a_topic_is_shared_by_its_queues(self) -> None:
        """Each of four queues has a quarter, and at least one message."""
        limits = PullLimits(topic_count=100, topic_byte_count=4 * MIB)
        self.assertEqual(limits.excess(window(25), 4), "")
        self.assertIn("26 messages of at most 25", limits.excess(window(26), 4))
        self.assertIn("of at most 1048576", limits.excess(window(1, MIB + 1), 4))
        self.assertEqual(limits.excess(window(1), 1000), "")
        self.assertIn("of at most 1", limits.excess(window(2), 1000))

    def test_a_broker_that_limits_pulls_is_asked_again_sooner(self) -> None:
        """20 ms after FLOW_CONTROL, a second after any other refusal."""
        self.assertEqual(delay_after_refusal(ResponseCode.FLOW_CONTROL), BROKER_BUSY_MS)
        self.assertEqual(delay_after_refusal(ResponseCode.SYSTEM_ERROR), FAILED_MS)


class CacheTests(SynchronousTestCase):
    """The limit over all queues."""

    def setUp(self) -> None:
        """Set a limit of 1 MiB, which is four pulls."""
        self.total = ByteTotal()
        self.flow = PullFlow(self.total, bytes_max=MIB)

    def test_pulls_under_way_count(self) -> None:
        """A fifth pull waits until one of the four is answered."""
        empty = window(0, total=self.total)
        pulls = []
        for _ in range(4):
            self.assertEqual(self.flow.excess(empty, 0), "")
            pulls.append(self.flow.begin(0))
        self.assertIn("4 pulls in flight", self.flow.excess(empty, 0))
        self.flow.end(pulls[1])
        self.flow.end(pulls[1])
        self.assertEqual(self.flow.excess(empty, 0), "")
        self.flow.begin(0)
        self.assertNotEqual(self.flow.excess(empty, 0), "")

    def test_one_queue_does_not_take_all_of_the_room(self) -> None:
        """A second pull of a queue is begun in the first half of the room only."""
        empty = window(0, total=self.total)
        self.flow.begin(0)
        self.assertEqual(self.flow.excess(empty, 0, under_way=32), "")
        self.flow.begin(0)
        self.assertIn("2 pulls in flight", self.flow.excess(empty, 0, under_way=32))
        self.assertEqual(self.flow.excess(empty, 0), "")

    def test_a_pull_that_the_broker_holds_does_not_count(self) -> None:
        """Idle queues do not prevent the pulls of others, however many they are."""
        empty = window(0, total=self.total)
        pulls = [self.flow.begin(at) for at in range(4)]
        self.assertNotEqual(self.flow.excess(empty, HELD_MS - 1), "")
        self.assertEqual(self.flow.excess(empty, HELD_MS), "")
        for pull in pulls:
            self.flow.end(pull)
        for _ in range(4):
            self.assertEqual(self.flow.excess(empty, HELD_MS), "")
            self.flow.begin(HELD_MS)
        self.assertNotEqual(self.flow.excess(empty, HELD_MS), "")

    def test_the_largest_queues_wait_first(self) -> None:
        """A queue may use the remaining room of all, so a large one leaves room for
        an empty one.
        """
        large = window(5, 100_000, total=self.total)
        small = window(1, 100_000, total=self.total)
        empty = window(0, total=self.total)
        self.assertIn("500000 bytes", self.flow.excess(large, 0))
        self.assertEqual(self.flow.excess(small, 0), "")
        self.assertEqual(self.flow.excess(empty, 0), "")
        large.done_all(large.take(3, 0))
        self.assertEqual(self.flow.excess(large, 0), "")

    def test_one_pull_is_begun_under_any_bound(self) -> None:
        """A bound below the size of a pull does not stop everything."""
        flow = PullFlow(self.total, bytes_max=1)
        empty = window(0, total=self.total)
        self.assertEqual(flow.excess(empty, 0), "")
        flow.begin(0)
        self.assertNotEqual(flow.excess(empty, 0), "")

    def test_the_bounds_of_a_queue_hold_too(self) -> None:
        """A full queue waits where all queues together have room."""
        self.assertIn("messages", self.flow.excess(window(1001, total=self.total), 0))

    @given(st.lists(st.integers(0, 9), max_size=200))
    def test_all_queues_together_stay_within_the_bound(self, turns: list[int]) -> None:
        """Ten queues are pulled as often as permitted, and each pull returns all that it can."""
        total = ByteTotal()
        flow = PullFlow(total, bytes_max=MIB)
        windows = [window(0, total=total) for _ in range(10)]
        for now_ms, turn in enumerate(turns):
            queue = windows[turn]
            if not flow.excess(queue, now_ms):
                pull = flow.begin(now_ms)
                end = queue.committable + queue.count
                queue.put([Read(end, PULL_BYTES)])
                flow.end(pull)
            self.assertLessEqual(total.byte_count, MIB)
        if len(set(turns)) == 10:
            self.assertGreaterEqual(total.byte_count, MIB - PULL_BYTES)
