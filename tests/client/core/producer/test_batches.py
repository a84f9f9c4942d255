"""Automatic batching."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.core.producer.batches import (
    BATCH_BYTES,
    LINGER_MS,
    Accumulator,
    Batch,
    BatchKey,
    may_be_batched,
)
from twistmq.protocol.bodies import MessageQueue

KEY = BatchKey("T")


def items(batches: list[Batch[str]]) -> list[list[str]]:
    """Return the messages of batches."""
    return [batch.items for batch in batches]


class FillTests(SynchronousTestCase):
    """The time at which a batch is sent."""

    def setUp(self) -> None:
        """Create batches of 100 bytes that wait for 10 ms."""
        self.accumulator = Accumulator[str](100, 10, 1000)

    def test_the_defaults_are_those_of_apache(self) -> None:
        """The defaults are 32 KiB and 10 ms."""
        accumulator = Accumulator[str]()
        self.assertEqual(accumulator.add(KEY, "a", BATCH_BYTES - 1, 500), [])
        self.assertEqual(accumulator.due_ms(), 500 + LINGER_MS)
        self.assertEqual((BATCH_BYTES, LINGER_MS), (32_768, 10))
        self.assertEqual(items(accumulator.add(KEY, "b", 1, 500)), [["a", "b"]])

    def test_a_batch_waits_for_its_time_from_its_first_message(self) -> None:
        """Later messages do not extend the wait."""
        self.accumulator.add(KEY, "a", 10, 1000)
        self.accumulator.add(KEY, "b", 10, 1009)
        self.assertEqual(self.accumulator.due_ms(), 1010)
        self.assertEqual(self.accumulator.due(1009.9), [])
        self.assertEqual(items(self.accumulator.due(1010)), [["a", "b"]])
        self.assertIsNone(self.accumulator.due_ms())
        self.assertEqual(self.accumulator.due(9999), [])

    def test_a_full_batch_is_sent_at_once(self) -> None:
        """The next message begins another batch."""
        self.assertEqual(self.accumulator.add(KEY, "a", 50, 0), [])
        self.assertEqual(items(self.accumulator.add(KEY, "b", 50, 1)), [["a", "b"]])
        self.accumulator.add(KEY, "c", 1, 5)
        self.assertEqual(self.accumulator.due_ms(), 15)

    def test_a_message_that_would_not_fit_begins_the_next_batch(self) -> None:
        """No batch exceeds its limit, except one with a single large message."""
        self.accumulator.add(KEY, "a", 60, 0)
        self.assertEqual(items(self.accumulator.add(KEY, "b", 41, 0)), [["a"]])
        self.assertEqual(items(self.accumulator.add(KEY, "large", 5000, 0)), [["b"], ["large"]])
        self.assertIsNone(self.accumulator.due_ms())

    def test_messages_that_differ_do_not_go_together(self) -> None:
        """Topic, waiting, tag or queue differ; batches are sent in the order of their times."""
        keys = [KEY, BatchKey("U"), BatchKey("T", False), BatchKey("T", True, "tag"),
                BatchKey("T", True, None, MessageQueue("T", "b", 1))]
        for at, key in enumerate(keys * 2):
            self.assertEqual(self.accumulator.add(key, f"{at}", 1, at), [])
        self.assertEqual(items(self.accumulator.due(12)), [["0", "5"], ["1", "6"], ["2", "7"]])
        self.assertEqual([batch.key for batch in self.accumulator.flush()], keys[3:])
        self.assertIsNone(self.accumulator.due_ms())

    def test_over_the_bound_of_all_there_is_no_room(self) -> None:
        """Batches count until their requests have ended, and waiting ones count, too."""
        large = self.accumulator.add(KEY, "a", 999, 0)
        self.assertTrue(self.accumulator.has_room)
        self.accumulator.add(KEY, "b", 1, 0)
        self.assertFalse(self.accumulator.has_room)
        self.accumulator.ended(large[0])
        self.assertTrue(self.accumulator.has_room)
        self.accumulator.ended(self.accumulator.flush()[0])
        self.assertEqual(self.accumulator.byte_count, 0)

    def test_bounds_that_apache_refuses_are_refused(self) -> None:
        """Batches of at most 2 MiB, which wait for 30 s at most; the error names the bound."""
        for arguments, name in (((0,), "batch_bytes"), ((2 * 1024 * 1024 + 1,), "batch_bytes"),
                                ((1, 0), "linger_ms"), ((1, 30_001), "linger_ms"),
                                ((1, 1, 0), "total_bytes")):
            error = self.assertRaises(ValueError, Accumulator, *arguments)
            self.assertIn(name, str(error))

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 150), st.integers(0, 8)),
                    max_size=60))
    def test_each_message_is_sent_once_in_order_and_in_time(
        self, steps: list[tuple[int, int, int]]
    ) -> None:
        """For any keys, sizes and times, no message is lost, late, or overtaken."""
        accumulator = Accumulator[tuple[int, int]](100, 10)
        keys = [BatchKey(f"T{number}") for number in range(3)]
        sent: dict[BatchKey, list[int]] = {key: [] for key in keys}
        now_ms = total = 0
        for number, (which, size, wait_ms) in enumerate(steps):
            now_ms += wait_ms
            ready = accumulator.due(now_ms)
            total += size
            ready += accumulator.add(keys[which], (number, now_ms), size, now_ms)
            for batch in ready:
                self.assertTrue(batch.byte_count <= 100 or len(batch.items) == 1)
                sent[batch.key] += [index for index, _ in batch.items]
                total -= batch.byte_count
                accumulator.ended(batch)
            due_ms = accumulator.due_ms()
            self.assertTrue(due_ms is None or now_ms < due_ms <= now_ms + 10)
            self.assertEqual(accumulator.byte_count, total)
        for batch in accumulator.flush():
            sent[batch.key] += [index for index, _ in batch.items]
        for which, key in enumerate(keys):
            self.assertEqual(sent[key], [number for number, step in enumerate(steps)
                                         if step[0] == which])


class AloneTests(SynchronousTestCase):
    """Messages that are not batched."""

    def test_delays_retries_and_transactions_go_alone(self) -> None:
        """Brokers do not accept them in a batch."""
        self.assertTrue(may_be_batched("T", {"KEYS": "k", "WAIT": "true"}))
        self.assertFalse(may_be_batched("%RETRY%g", {}))
        for name in ("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "PGROUP"):
            self.assertFalse(may_be_batched("T", {name: "1"}), msg=name)
