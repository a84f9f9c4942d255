"""The limit of messages in flight, for the blocking producer."""

from __future__ import annotations

import threading

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.base.errors import Full
from twistmq.client.blocking.thread_in_flight_limit import ThreadInFlightLimit


class RoomTests(SynchronousTestCase):
    """Tests without a broker."""

    def test_messages_and_bytes_are_bounded(self) -> None:
        """The error has the current amount; a single message may have any size."""
        room = ThreadInFlightLimit(2, 100)
        room.take(500, 0)
        error = self.assertRaises(Full, room.take, 1, 0)
        self.assertIn("1 messages with 500 bytes", str(error))
        room.give(500)
        room.take(50, 0)
        room.take(50, 0)
        self.assertRaises(Full, room.take, 0, 0)

    def test_a_thread_gets_room_when_one_message_of_many_ended(self) -> None:
        """It is woken if many messages end; for a few it checks by itself."""
        room = ThreadInFlightLimit(100, 1 << 20)
        for _ in range(100):
            room.take(1, 0)
        thread = threading.Thread(target=room.take, args=(1, 30))
        thread.start()
        room.give(1)
        thread.join(30)
        self.assertFalse(thread.is_alive())
        self.assertRaises(Full, room.take, 1, 0)

    def test_all_that_is_under_way_is_waited_for(self) -> None:
        """The wait has a time-out."""
        room = ThreadInFlightLimit(10, 1 << 20)
        room.take(1, 0)
        self.assertRaises(TimeoutError, room.wait_empty, 0.001)
        thread = threading.Thread(target=room.wait_empty, args=(30,))
        thread.start()
        room.give(1)
        thread.join(30)
        self.assertFalse(thread.is_alive())
