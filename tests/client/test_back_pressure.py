"""A broker that stops reading: a producer waits, and all arrives when the broker reads on."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.long.client_pressure import BYTES_MAX, COUNT_MAX, pressed


class PressureTests(SynchronousTestCase):
    """A broker of its own that is stopped twice; ``tests/long/client_pressure.py`` sends more."""

    def test_messages_under_way_are_bounded_and_all_arrive(self) -> None:
        """Many small ones."""
        found = pressed(Path(self.mktemp()), 6000, 100, 2)
        self.assertEqual(found.faults(), [])
        self.assertEqual(found.count_max, COUNT_MAX)

    def test_bytes_under_way_are_bounded_and_all_arrive(self) -> None:
        """A few large ones; the process grows by no more than them."""
        found = pressed(Path(self.mktemp()), 120, 3 << 20, 1)
        # The process is that of other tests too: what all the messages take is 360 MiB.
        self.assertEqual(found.faults(growth_mib=200), [])
        self.assertGreater(found.bytes_max, BYTES_MAX - (4 << 20))
