"""The number of cores that a process may use."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.supervisor.cores import usable_cores


class CoresTests(SynchronousTestCase):
    """A machine with 8 cores."""

    def setUp(self) -> None:
        self.patch(os, "sched_getaffinity", lambda _: set(range(8)))
        self.groups = Path(self.mktemp())
        (self.groups / "a.slice/b.service").mkdir(parents=True)
        self.own = self.groups / "own"

    def cores(self, own: str = "0::/\n", **quotas: str) -> int:
        """The cores with a quota in the file of each group."""
        for path, text in quotas.items():
            (self.groups / {"root": "", "unit": "a.slice/b.service"}[path] / "cpu.max").write_text(
                text)
        self.own.write_text(own)
        return usable_cores(self.groups, self.own)

    def test_without_a_quota_they_are_those_of_the_affinity(self) -> None:
        """There is no file, no quota, or an invalid file."""
        self.assertEqual(usable_cores(self.groups / "none", self.groups / "none"), 8)
        self.assertEqual(self.cores(), 8)
        for text in ("max 100000\n", "", "x\n", "1 0\n"):
            self.assertEqual(self.cores(root=text), 8)

    def test_a_quota_is_kept(self) -> None:
        """The quotas of a container and of a unit are respected; fractions are rounded down."""
        self.assertEqual(self.cores(root="350000 100000\n"), 3)
        self.assertEqual(self.cores(root="50000 100000\n"), 1)
        self.assertEqual(self.cores(root="1600000 100000\n"), 8)
        self.assertEqual(self.cores("0::/a.slice/b.service\n", root="max 100000\n",
                                    unit="200000 100000\n"), 2)
        self.assertEqual(self.cores("1:cpu:/x\n0::/a.slice/b.service\n", root="max 100000\n",
                                    unit="200000 100000\n"), 2)
