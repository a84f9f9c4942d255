"""The times at which the broker delivers tasks."""

from __future__ import annotations

import time
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.base.delays import (
    SentDelays,
    delivery_time,
    due_of,
    due_properties,
    is_too_early,
)
from twistmq.integrations.base.options import QueueOptions


class DelayTests(SynchronousTestCase):
    """Delays within the limit of the broker, and beyond it."""

    def test_a_time_within_the_limit_is_kept(self) -> None:
        """A time that has come needs no delay."""
        now = time.time()
        options = QueueOptions(prefix="t", delay_max_s=100)
        self.assertEqual(delivery_time(now + 60, options), now + 60)
        self.assertIsNone(delivery_time(now - 1, options))
        self.assertIsNone(delivery_time(None, options))

    def test_a_time_beyond_the_limit_is_shortened(self) -> None:
        """The message is delivered at the limit at the latest, however far away its time is."""
        options = QueueOptions(prefix="t", delay_max_s=100)
        for due in (time.time() + 101, 1e12):
            before = time.time()
            when = delivery_time(due, options)
            assert when is not None
            self.assertTrue(before + 100 <= when <= time.time() + 100)

    def test_the_time_of_a_task_is_read_from_its_properties(self) -> None:
        """The time is exact to the millisecond, and a text that is not a number is ignored."""
        self.assertEqual(due_of(due_properties(1_700_000_000.25)), 1_700_000_000.25)
        self.assertEqual(due_properties(None), {})
        for properties in ({}, {"task_due_ms": ""}, {"task_due_ms": "soon"}, {"task_due_ms": "²"},
                           {"task_due_ms": "-1"}):
            self.assertIsNone(due_of(properties))

    def test_a_time_that_is_too_large_is_the_latest_one(self) -> None:
        """It is 300,000 years from now; a text of a stranger with more digits is ignored."""
        for due in (1e300, float("inf")):
            self.assertEqual(due_of(due_properties(due)), 10**13)
        for digits in (21, 400, 5_000):
            self.assertIsNone(due_of({"task_due_ms": "9" * digits}))
        self.assertEqual(due_of({"task_due_ms": "0"}), 0)

    def test_a_message_that_is_early_by_seconds_is_too_early(self) -> None:
        """A message that is early by less than that waits in the process."""
        self.assertTrue(is_too_early(time.time() + 5))
        self.assertFalse(is_too_early(time.time() + 1))
        self.assertFalse(is_too_early(None))


class OptionTests(SynchronousTestCase):
    """Options that are out of bounds."""

    def test_a_value_below_its_least_one_is_named(self) -> None:
        """The error names the option and its smallest value."""
        for name in ("topic_queues", "invisible_s", "delay_max_s", "max_attempts"):
            error = self.assertRaises(ValueError, QueueOptions, prefix="t", **{name: 0})
            self.assertIn(f"{name} is 0: give at least 1", str(error))


class SentDelayTests(SynchronousTestCase):
    """The delayed messages that a process has sent."""

    def test_the_last_one_of_a_queue_decides(self) -> None:
        """A message may still be on its way for two seconds after its time."""
        delays, now = SentDelays(), time.time()
        self.assertTrue(delays.are_over("q"))
        for due in (now + 60, now + 30, None):
            delays.note("q", due)
        self.assertTrue(delays.are_over("other"))
        for at, is_over in ((now + 61, False), (now + 63, True)):
            with mock.patch("time.time", return_value=at):
                self.assertEqual(delays.are_over("q"), is_over)
