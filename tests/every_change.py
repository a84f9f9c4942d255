"""A life that ends at every change of the disk, by a kill or by a loss of power.

The broker lives once. Before each change of its disk a copy of the disk comes to the end, and
another broker is started over what that leaves. The copy and what the test was told until then are
all that an end leaves: a dead process acknowledges nothing.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from copy import copy
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.power_loss import PowerLossDisk

__all__ = ["EveryChangeCase"]


class EveryChangeCase(SynchronousTestCase):
    """A test that defines the start of a broker, its life, and the expected result.

    A look must find what the life changed in ``disk``, ``box`` and the attributes of ``told``.
    """

    disk: PowerLossDisk
    box: KernelBox
    #: The attributes that hold what the test was told: a look may change them.
    told: ClassVar[tuple[str, ...]]

    def setUp(self) -> None:
        self.addCleanup(lambda: self.box.stop())

    def begin(self) -> None:
        """Make a new disk, and a broker in ``box``."""
        raise NotImplementedError

    def live(self) -> None:
        """Run the whole life."""
        raise NotImplementedError

    def look(self, message: str) -> int:
        """Compare the data with the expected data; :returns: how many messages are duplicates."""
        raise NotImplementedError

    def check_life(self) -> None:
        """Check the data that a whole life left in the test itself."""

    def killed_at_every_change(self) -> None:
        """The process ends; all that it wrote remains."""
        self._end_at_every_change(lambda number: self.disk.kill())

    def cut_at_every_change(self) -> None:
        """The power fails; only a part of the data that was not synced remains."""
        self._end_at_every_change(lambda number: self.disk.crash(random.Random(number)))

    def _end_at_every_change(self, end: Callable[[int], None]) -> None:
        # What is there now need not be looked through each time.
        gc.freeze()
        self.addCleanup(gc.unfreeze)
        self.begin()
        #: How many came once too often, by end.
        twice: list[int] = []
        failures: list[BaseException] = []

        def before_change() -> None:
            if not failures:
                # The broker might take the failure of a look for one of the disk.
                try:
                    twice.append(self._look_at_copy(end, len(twice) + 1))
                except BaseException as error:
                    failures.append(error)

        self.disk.before_change = before_change
        self.live()
        self.disk.before_change = None
        for failure in failures:
            raise failure
        self.assertGreater(len(twice), 60)
        self.check_life()
        self.assertEqual(self.look("no end"), 0)
        # Some ends come between what is done and the note that it is done.
        self.assertGreater(sum(twice), 0)

    def _look_at_copy(self, end: Callable[[int], None], number: int) -> int:
        """Check the state that an end before the next change leaves, beside the life itself."""
        life = dict(self.__dict__)
        self.disk = self.disk.copy()
        for name in self.told:
            setattr(self, name, copy(getattr(self, name)))
        try:
            end(number)
            twice = self.look(f"change {number}")
            self.box.stop()
            return twice
        finally:
            self.__dict__.update(life)
