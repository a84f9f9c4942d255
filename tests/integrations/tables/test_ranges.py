"""Ranges of offsets: partitions and micro-batches."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.tables.options import OptionError
from twistmq.integrations.tables.ranges import PARTITIONS_MAX, QueueRange, limited, split
from twistmq.protocol.bodies import MessageQueue

SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=6)


def ranges_of(sizes: list[int]) -> list[QueueRange]:
    return [QueueRange("t", "a", queue_id, 100 * queue_id, 100 * queue_id + size)
            for queue_id, size in enumerate(sizes)]


class SplitTests(SynchronousTestCase):
    """The division into partitions."""

    def test_by_size(self) -> None:
        """Each queue is split into equal pieces, and a larger queue into more of them."""
        found = split(ranges_of([10, 3]), min_partitions=4)
        self.assertEqual([(one.queue_id, one.start, one.end) for one in found],
                         [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 100, 103)])

    def test_a_queue_without_messages_is_no_partition(self) -> None:
        """A queue without messages does not become a partition."""
        self.assertEqual(split(ranges_of([0, 0]), min_partitions=4), [])

    def test_more_partitions_than_the_driver_can_hold(self) -> None:
        """They are refused before one is made, whatever end of a queue a broker reports."""
        ranges = [*ranges_of([10]), QueueRange("t", "a", 7, 5, 1 << 62)]
        for least in (None, 4):
            error = self.assertRaises(OptionError, split, ranges, least, 10_000)
            self.assertIn("option maxRecordsPerPartition: 10000 would make 461168601842740 "
                          f"partitions, of {PARTITIONS_MAX} at most", str(error))
            self.assertIn(f"topic t, broker a, queue 7, from offset 5 to {1 << 62}", str(error))
        self.assertEqual(len(split([QueueRange("t", "a", 7, 0, PARTITIONS_MAX)], max_records=1)),
                         PARTITIONS_MAX)
        self.assertEqual(len(split(ranges, PARTITIONS_MAX)), PARTITIONS_MAX)

    def test_the_work_of_many_partitions(self) -> None:
        """Each split examines only the largest piece, and not all queues."""
        looks = 0

        class Counted(QueueRange):
            @property
            def size(self) -> int:
                nonlocal looks
                looks += 1
                return self.end - self.start

        split([Counted("t", "a", queue_id, 0, 1000) for queue_id in range(300)], 3000)
        self.assertLess(looks, 10 * 3300)

    @given(SIZES, st.none() | st.integers(1, 30), st.none() | st.integers(1, 20))
    @settings(max_examples=200, deadline=None)
    def test_pieces_cover_the_range_in_order(
        self, sizes: list[int], least: int | None, most: int | None
    ) -> None:
        """The pieces cover the ranges in order, and their number and size respect the limits."""
        pieces = split(ranges_of(sizes), least, most)
        self.assertEqual([(one.queue_id, offset) for one in pieces
                          for offset in range(one.start, one.end)],
                         [(one.queue_id, offset) for one in ranges_of(sizes)
                          for offset in range(one.start, one.end)])
        if least is not None:
            self.assertGreaterEqual(len(pieces), min(least, sum(sizes)))
        if most is not None:
            self.assertTrue(all(0 < one.size <= most for one in pieces))


class LimitedTests(SynchronousTestCase):
    """The limits of micro-batches."""

    @given(SIZES, st.integers(1, 200))
    @settings(max_examples=200, deadline=None)
    def test_a_micro_batch_respects_every_limit(self, sizes: list[int], most: int) -> None:
        """A micro-batch uses the limit fully, stays within each queue, and starves no queue."""
        queues = [MessageQueue("t", "a", queue_id) for queue_id in range(len(sizes))]
        start = {queue: 7 * queue.queue_id for queue in queues}
        end = {queue: start[queue] + size for queue, size in zip(queues, sizes, strict=True)}
        found = limited(start, end, most)
        taken = {queue: found[queue] - start[queue] for queue in queues}
        self.assertEqual(sum(taken.values()), min(most, sum(sizes)))
        self.assertTrue(all(0 <= taken[queue] <= end[queue] - start[queue] for queue in queues))
        if most >= len(sizes):
            self.assertTrue(all(taken[queue] or not sizes[queue.queue_id] for queue in queues),
                            msg=f"{sizes} {most} {taken}")

    def test_a_micro_batch_is_shared_by_backlog(self) -> None:
        """The share of a queue depends on its backlog."""
        queues = [MessageQueue("t", "a", queue_id) for queue_id in range(2)]
        found = limited({queues[0]: 0, queues[1]: 50}, {queues[0]: 300, queues[1]: 150}, 40)
        self.assertEqual(found, {queues[0]: 30, queues[1]: 60})
