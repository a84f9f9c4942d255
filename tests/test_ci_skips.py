"""The skips that CI permits."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parents[1]


def load() -> Any:
    """Load the program, which is not in a package."""
    spec = importlib.util.spec_from_file_location("ci_skips", ROOT / ".ci" / "skips.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class SkipsTests(SynchronousTestCase):
    """Lines as pytest prints them."""

    def faults(self, reason: str, *without: str, here: tuple[str, ...] = ()) -> list[str]:
        """Return the faults of one line on a machine with some programs."""
        def find(program: str) -> str | None:
            return program if program in here else None

        log = (f"12 passed\nSKIPPED [2] tests/interop/test_x.py:33: {reason}\n"
               "=== 2 skipped in 3.1s ===\n")
        found: list[str] = load().faults(log, without, find)
        return found

    def test_only_a_missing_program_excuses_a_test(self) -> None:
        """A program that exists does not excuse a test."""
        for program, reason in (
            ("java", "no java on this machine"), ("go", "no go on this machine"),
            ("java", "Spark needs Java, and there is no java"),
            ("mvn", "no mvn to fetch the jars of Apache RocketMQ with"),
            ("hadolint", "hadolint is not installed"),
            ("systemd-analyze", "systemd-analyze is not installed"),
        ):
            self.assertEqual(self.faults(reason), [], reason)
            self.assertEqual(self.faults(reason, here=(program,)), [
                f"tests/interop/test_x.py:33: 2 skipped, but CI must have it: {reason}"])

    def test_one_of_two_programs(self) -> None:
        """A test that needs both is excused if one is missing."""
        reason = "prometheus and promtool are not installed"
        self.assertEqual(self.faults(reason, here=("promtool",)), [])
        self.assertEqual(len(self.faults(reason, here=("promtool", "prometheus"))), 1)

    def test_missing_privileges_excuse_a_test(self) -> None:
        """A machine need not permit mounts, and root may run the tests."""
        for reason in ("a file system cannot be mounted: mount: permission denied",
                       "root may write anywhere, and mount says: permission denied",
                       "nothing is forbidden to this user"):
            self.assertEqual(self.faults(reason), [])

    def test_an_extra_of_the_run_must_be_installed(self) -> None:
        """A run requires its own extras, and excuses the others."""
        reason = ("twisted.trial.unittest.SkipTest: the extra spark is not installed: "
                  "pip install 'twistmq[spark]'")
        self.assertEqual(self.faults(reason, "spark"), [])
        self.assertEqual(len(self.faults(reason)), 1)
        self.assertEqual(self.faults("the extra delta is not installed"), [])

    def test_not_named(self) -> None:
        """Skips that pytest only counts are a fault too."""
        for closing in ("7 passed, 3 skipped in 0.11s", "== 3 skipped in 7.10s (0:00:07) =="):
            self.assertEqual(load().faults(f"3 skipped things\n{closing}\n"), [
                "pytest counts other skips than it names: was it run with -rs?"])
        self.assertEqual(load().faults("=== 7 passed in 0.11s ===\n"), [])

    def test_whatever_else_is_missing_is_named(self) -> None:
        """Whatever else is missing is named."""
        for reason in ("there is no openssl to make certificates with",
                       "mvn could not fetch the jars of Apache RocketMQ 5.3.3: status 1",
                       "twistmq was not installed with a regular pip install", "no reason"):
            self.assertEqual(len(self.faults(reason)), 1, reason)

    def test_reasons_are_those_of_the_tests(self) -> None:
        """Each permitted text is the text of a test; otherwise it would permit nothing."""
        module = load()
        sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py")
                          if path.name != "test_ci_skips.py")
        for pattern in (*module.PROGRAMS.values(), *module.ALWAYS):
            for reason in pattern.split("|"):
                text = re.split(r"\.\*|\\S\+", reason)
                # "no java on this machine" is written with the program's name filled in.
                words = [re.sub(r"^no (java|javac) ", "no {program} ", part) for part in text]
                self.assertTrue(all(part in sources for part in words), msg=reason)
