"""Compiled modules are compared with the sources of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import compiled
from twistmq.broker.compiled import COMPILED_MODULES, build_warning, stale_modules


class StaleTests(SynchronousTestCase):
    """The module broker/compiled.py."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.extension = self.folder / "record.cpython-311-x86_64-linux-gnu.so"
        self.source = self.folder / "record.py"
        for path in (self.extension, self.source):
            path.write_text("")
            os.utime(path, (1000, 1000))

    def stale(self) -> list[str]:
        return stale_modules({"a.record": self.extension})

    def test_an_extension_as_old_as_its_source_is_up_to_date(self) -> None:
        """A build may give both files the same time."""
        self.assertEqual(self.stale(), [])

    def test_an_extension_older_than_its_source_is_stale(self) -> None:
        """An edit of the source is not in the extension."""
        os.utime(self.source, (1001, 1001))
        self.assertEqual(self.stale(), ["a.record"])

    def test_an_extension_without_a_source_is_up_to_date(self) -> None:
        """An installation may lack the sources."""
        self.source.unlink()
        self.assertEqual(self.stale(), [])

    def warning(self, *, editable: bool, compiled_names: list[str], stale: list[str]) -> str:
        self.patch(compiled, "_is_editable", lambda: editable)
        self.patch(compiled, "compiled_modules", lambda: compiled_names)
        self.patch(compiled, "stale_modules", lambda: stale)
        return build_warning()

    def test_an_editable_installation_warns_of_stale_and_missing_modules(self) -> None:
        """The warning names the modules and the remedy."""
        first, *others = COMPILED_MODULES
        text = self.warning(editable=True, compiled_names=list(others), stale=[others[0]])
        self.assertEqual(text, f"compiled modules are out of date (older than their sources: "
                               f"{others[0]}; not compiled: {first}): install again, or with "
                               "TWISTMQ_PURE=1 for development")

    def test_there_is_no_warning_of_a_plain_or_a_regular_installation(self) -> None:
        """Plain Python runs the sources, and a regular installation has none to edit."""
        self.assertEqual(self.warning(editable=True, compiled_names=[], stale=[]), "")
        self.assertEqual(self.warning(editable=False, compiled_names=[], stale=["a"]), "")
        self.assertEqual(
            self.warning(editable=True, compiled_names=list(COMPILED_MODULES), stale=[]), "")


class SameBytesTests(SynchronousTestCase):
    """Compiled modules and their sources; `python -m tests.long.differential` is the long form."""

    def test_both_answer_and_store_the_same(self) -> None:
        """Each response and each file is equal for random requests."""
        said = subprocess.run(
            [sys.executable, "-m", "tests.long.differential", "--requests", "3000"],
            cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, timeout=120,
            check=False)
        if "compiled" in compiled.describe_build():
            self.assertIn("4 digests of replies and stores are equal", said.stdout, said.stderr)
            self.assertEqual(said.returncode, 0)
        else:
            self.assertIn("this installation is pure Python", said.stdout, said.stderr)
            self.assertEqual(said.returncode, 2)
