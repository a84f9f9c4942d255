"""The limit of messages in flight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import HandClock
from twistmq.client.base.errors import Full
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.producer.in_flight_limit import AwaitedInFlightLimit, InFlightLimit


class RoomTests(SynchronousTestCase):
    """The module client/core/producer/in_flight_limit.py."""

    def test_messages_fit_by_number_and_by_bytes(self) -> None:
        """A message above the limit is sent alone."""
        room = InFlightLimit(2, 100)
        self.assertTrue(room.fits(1000))
        room.take(60)
        self.assertTrue(room.fits(40))
        self.assertFalse(room.fits(41))
        room.take(40)
        self.assertFalse(room.fits(0))
        self.assertIn("2 messages with 100 bytes", str(room.full_error()))
        room.give(60)
        self.assertTrue(room.fits(60))

    @given(st.lists(st.integers(0, 60), max_size=60), st.integers(1, 5), st.integers(1, 100))
    def test_the_bounds_hold_whatever_the_sizes_are(
        self, sizes: list[int], count_max: int, bytes_max: int
    ) -> None:
        """The first message in flight ends whenever another one finds no room."""
        room = InFlightLimit(count_max, bytes_max)
        under_way: list[int] = []
        for size in sizes:
            while not room.fits(size):
                room.give(under_way.pop(0))
            room.take(size)
            under_way.append(size)
            self.assertLessEqual(len(under_way), count_max)
            if len(under_way) > 1:
                self.assertLessEqual(sum(under_way), bytes_max)
            self.assertEqual((room.count, room.bytes), (len(under_way), sum(under_way)))

    def test_the_waits_end_when_a_message_ends_or_the_time_is_over(self) -> None:
        """One message ends, and its room suffices for the first only."""
        clock = HandClock()
        tasks = Scheduler(clock)
        room = AwaitedInFlightLimit(1, 100, tasks)
        room.take(10)
        first = tasks.spawn(room.until_fits(10, 500))
        second = tasks.spawn(room.until_fits(10, 500))
        empty = tasks.spawn(room.until_empty())
        tasks.run()
        self.assertFalse(first.is_done or second.is_done or empty.is_done)
        first.when_done(lambda _: room.take(10))
        room.give(10)
        tasks.run()
        self.assertEqual((first.is_done, second.is_done, empty.is_done), (True, False, False))
        clock.now_ms += 501
        tasks.run()
        self.assertIsInstance(second.error, Full)
        room.give(10)
        tasks.run()
        self.assertTrue(empty.is_done)
