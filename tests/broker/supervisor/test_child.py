"""The process of one broker of several."""

from __future__ import annotations

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase


class ChildTests(SynchronousTestCase):
    """``python -m twistmq.broker.supervisor.child``."""

    def test_nothing_large_is_imported_before_it_runs(self) -> None:
        """Ctrl-C would reach a process that is still importing and is not yet in its own group."""
        done = subprocess.run(
            [sys.executable, "-c", "import sys, twistmq.broker.supervisor.child; "
             "print([name for name in ('twisted', 'click', 'msgspec') if name in sys.modules])"],
            capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "[]\n")
