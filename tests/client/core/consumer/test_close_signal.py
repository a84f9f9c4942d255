"""The close of a member, as its parts see it."""

from __future__ import annotations

from tests.client.core.consumer.part_case import PartCase
from twistmq.client.core.connection.tasks import Cancelled


class CloseSignalTests(PartCase):
    """The module client/core/consumer/close_signal.py."""

    def test_a_wait_ends_after_its_time(self) -> None:
        """Its timer is removed."""
        sleep = self.spawn(self.closing.sleep(500))
        self.advance(499)
        self.assertFalse(sleep.is_done)
        self.advance(1)
        self.assertTrue(sleep.is_done)
        self.assertEqual(self.tasks.timer_count, 0)

    def test_a_close_ends_every_wait(self) -> None:
        """A wait that begins afterwards ends at once."""
        sleeps = [self.spawn(self.closing.sleep(500)) for _ in range(2)]
        self.assertFalse(self.closing.is_set)
        self.closing.set()
        self.tasks.run()
        self.assertEqual([each.is_done for each in sleeps], [True, True])
        self.assertTrue(self.spawn(self.closing.sleep(500)).is_done)
        self.assertTrue(self.closing.is_set)
        self.assertEqual(self.tasks.timer_count, 0)

    def test_a_wait_that_is_cancelled_leaves_nothing(self) -> None:
        """It does not affect the close."""
        sleep = self.spawn(self.closing.sleep(500))
        sleep.cancel()
        self.tasks.run()
        self.assertIsInstance(sleep.error, Cancelled)
        self.assertEqual((self.tasks.timer_count, self.closing._sleeping), (0, set()))
