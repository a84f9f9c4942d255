"""A broker that stops reading: a producer waits, and all messages arrive later."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.long.client_pressure import BYTES_MAX, COUNT_MAX, pressed

ROOT = Path(__file__).resolve().parents[2]


class PressureTests(SynchronousTestCase):
    """A broker that is stopped twice; ``tests/long/client_pressure.py`` sends more."""

    def test_messages_under_way_are_bounded_and_all_arrive(self) -> None:
        """Many small messages are sent."""
        found = pressed(Path(self.mktemp()), 6000, 100, 2)
        self.assertEqual(found.faults(), [])
        self.assertEqual(found.count_max, COUNT_MAX)

    def test_bytes_under_way_are_bounded_and_all_arrive(self) -> None:
        """A few large messages are sent by another process, whose memory is measured."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.long.client_pressure", "--messages", "120", "--size",
             str(3 << 20), "--pauses", "1"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, msg=done.stdout + done.stderr)
        found = re.search(r"and (\d+) MiB under way", done.stdout)
        assert found is not None, done.stdout
        self.assertGreaterEqual(int(found[1]), (BYTES_MAX >> 20) - 4)
