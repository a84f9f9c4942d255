"""An installation without the extra ``spark``: its tests are skipped with the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

HERE = Path(__file__).resolve().parent

#: Runs pytest where the packages of the extra cannot be imported.
PYTEST = """
import sys
for name in ("pyarrow", "pyspark", "pandas"):
    sys.modules[name] = None
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


class CollectionTests(SynchronousTestCase):
    """The tests that pytest then finds in this folder."""

    def test_skips_with_a_reason(self) -> None:
        """No module fails, in any order; each that needs the extra skips."""
        files = sorted(str(path) for path in HERE.glob("test_*.py"))
        for order in (files, files[::-1]):
            done = subprocess.run(
                [sys.executable, "-c", PYTEST, "--collect-only", "-q", "-p", "no:cacheprovider",
                 *order],
                cwd=HERE.parents[1], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, msg=done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"SKIPPED \[\d+\] .*the extra spark is not installed")
