"""The checks of a host."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.compiled import COMPILED_MODULES
from twistmq.tools.doctor.findings import Level
from twistmq.tools.doctor.host_checks import Host, host_findings

GOOD = Host(open_files=(1024, 1_048_576), memory_limit=None, memory=8 << 30, maps_max=1_048_576,
            now_ms=1_800_000_000_000, is_container=False, python=(3, 11, 7),
            compiled=len(COMPILED_MODULES))


class HostTests(SynchronousTestCase):
    """Each part of the host, good and bad."""

    def levels(self, **changes: Any) -> dict[str, Level]:
        """Return the levels of findings that are not OK."""
        return {each.check: each.level for each in host_findings(replace(GOOD, **changes))
                if each.level is not Level.OK}

    def test_a_good_host_has_no_finding(self) -> None:
        """There is no finding; a start raises the soft limit of open files."""
        self.assertEqual(self.levels(), {})
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        self.assertEqual(self.levels(open_files=unlimited, maps_max=None), {})

    def test_each_limit_has_its_warning_and_its_error(self) -> None:
        """Each limit has a value for a warning and one for an error."""
        for changes, found in (
            ({"open_files": (1024, 4096)}, {"open files": Level.WARN}),
            ({"open_files": (256, 511)}, {"open files": Level.BROKEN}),
            ({"memory_limit": 200 << 20}, {"memory": Level.WARN}),
            ({"memory_limit": 64 << 20}, {"memory": Level.BROKEN}),
            ({"memory_limit": 64 << 30}, {}),
            ({"memory": 64 << 20}, {"memory": Level.BROKEN}),
            ({"maps_max": 65_529}, {"file maps": Level.WARN}),
            ({"now_ms": 86_400_000}, {"clock": Level.BROKEN}),
            ({"compiled": 0}, {"program": Level.WARN}),
            ({"compiled": 3}, {"program": Level.BROKEN}),
        ):
            self.assertEqual(self.levels(**changes), found, msg=str(changes))

    def test_this_host_has_numbers_for_all_of_it(self) -> None:
        """Every check has a value on this host."""
        host = Host.current()
        self.assertGreater(host.memory, 1 << 20)
        self.assertGreater(host.open_files[1], 0)
        self.assertEqual({each.check for each in host_findings(host)} - {"file maps"},
                         {"program", "open files", "memory", "clock"})
