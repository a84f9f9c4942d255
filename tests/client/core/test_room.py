"""Room for messages under way."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import HandClock
from twistmq.client.core.room import AwaitedRoom, Room
from twistmq.client.core.tasks import Scheduler
from twistmq.client.errors import Full


class RoomTests(SynchronousTestCase):
    """client/core/room.py."""

    def test_messages_fit_by_number_and_by_bytes(self) -> None:
        """A message that is larger than the bound goes alone."""
        room = Room(2, 100)
        self.assertTrue(room.fits(1000))
        room.take(60)
        self.assertTrue(room.fits(40))
        self.assertFalse(room.fits(41))
        room.take(40)
        self.assertFalse(room.fits(0))
        self.assertIn("2 messages with 100 bytes", str(room.full()))
        room.give(60)
        self.assertTrue(room.fits(60))

    def test_the_waits_end_when_a_message_ends_or_the_time_is_over(self) -> None:
        """One message ends, and leaves room for the first only."""
        clock = HandClock()
        tasks = Scheduler(clock)
        room = AwaitedRoom(1, 100, tasks)
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
