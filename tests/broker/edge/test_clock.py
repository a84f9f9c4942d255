"""The process's clocks and limits."""

from __future__ import annotations

import resource
import time
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge.clock import monotonic, now_ms, raise_open_files_limit


class ClockTests(SynchronousTestCase):
    """The time."""

    def test_units(self) -> None:
        """Unix milliseconds, and seconds that never jump."""
        self.assertApproximates(now_ms() / 1000, time.time(), 60)
        self.assertLessEqual(monotonic(), monotonic())


class OpenFilesLimitTests(SynchronousTestCase):
    """RLIMIT_NOFILE is raised at start, so that many clients and topics work."""

    def raised(self, soft: int, hard: int, error: Exception | None = None) -> tuple[int, bool]:
        """(the limit afterwards, whether it was asked for) with a system that says these."""
        with mock.patch.object(resource, "getrlimit", return_value=(soft, hard)), \
                mock.patch.object(resource, "setrlimit", side_effect=error) as setrlimit:
            return raise_open_files_limit(), setrlimit.called

    def test_raised_to_the_hard_limit(self) -> None:
        """What the system allows is taken; what is in force already is left alone."""
        self.assertEqual(self.raised(1024, 65536), (65536, True))
        self.assertEqual(self.raised(65536, 65536), (65536, False))

    def test_refused(self) -> None:
        """A system that does not allow it is no error."""
        self.assertEqual(self.raised(1024, 65536, PermissionError()), (1024, True))
        self.assertEqual(self.raised(1024, 65536, ValueError()), (1024, True))

    def test_really(self) -> None:
        """On this system the soft limit is the hard one afterwards."""
        limit = raise_open_files_limit()
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE)[0], limit)
