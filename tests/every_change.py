"""A life that ends at every change of the disk: by a kill, or by a loss of power."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import ClassVar

from twisted.trial.unittest import FailTest, SynchronousTestCase

from twistmq.broker.errors import StoreError
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk

__all__ = ["EveryChangeCase"]

#: More changes of the disk than there are.
_MANY = 1_000_000


class EveryChangeCase(SynchronousTestCase):
    """A test says how a broker begins, what its life is, and what must be there afterwards."""

    disk: PowerLossDisk
    box: KernelBox
    #: What the end may look like to who lives it.
    ends: ClassVar[tuple[type[BaseException], ...]] = (PowerCut, FailTest)

    def setUp(self) -> None:
        self.addCleanup(lambda: self.box.stop())

    def begin(self) -> None:
        """Make a new disk, and a broker in ``box``."""
        raise NotImplementedError

    def live(self) -> None:
        """Do all that is to be shown."""
        raise NotImplementedError

    def look(self, message: str) -> int:
        """Compare what is there with what must be; :returns: how many came once too often."""
        raise NotImplementedError

    def check_life(self) -> None:
        """Look at what a whole life left in the test itself."""

    def changes(self) -> int:
        """How many changes of the disk a life takes."""
        self.begin()
        self.disk.cut_in = _MANY
        self.live()
        changes = _MANY - self.disk.cut_in
        self.disk.cut_in = None
        self.assertEqual(self.look("no end"), 0)
        self.box.stop()
        return changes

    def killed_at_every_change(self) -> None:
        """The process ends; all that it wrote is there."""
        self._end_at_every_change(lambda number: self.disk.kill())

    def cut_at_every_change(self) -> None:
        """The power ends; what was not synced is there in part."""
        self._end_at_every_change(lambda number: self.disk.crash(random.Random(number)))

    def _end_at_every_change(self, end: Callable[[int], None]) -> None:
        changes = self.changes()
        self.assertGreater(changes, 60)
        self.check_life()
        twice = ends = 0
        # What is there now need not be looked through each time.
        gc.freeze()
        self.addCleanup(gc.unfreeze)
        for number in range(1, changes):
            self.begin()
            self.disk.cut_in = number
            try:
                self.live()
            except self.ends:
                # A sync that does not return may be seen as one that failed.
                self.assertTrue(self.disk.is_cut)
            ends += self.disk.is_cut
            # What waited for a sync is told that it failed, when it is collected at the latest.
            gc.collect()
            self.flushLoggedErrors(PowerCut, StoreError)
            end(number)
            twice += self.look(f"change {number}")
            self.box.stop()
        self.assertEqual(ends, changes - 1)
        # Some ends come between what is done and the note that it is done.
        self.assertGreater(twice, 0)
