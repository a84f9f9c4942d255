"""Tests that hang fail, whatever they wait for, and the run goes on, under pytest and trial."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests import hanging
from tests.time_limit import LIMITS_S, limit_of

ROOT: Final = Path(__file__).resolve().parents[1]
#: How a runner is given some tests; pytest gets them as a file, trial by their names.
RUNNERS: Final = {
    "pytest": ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_files=hanging.py"),
    "trial": ("-m", "twisted.trial", "--reporter", "verbose"),
}


class RunnerTests(SynchronousTestCase):
    """The mechanism, in another process."""

    def run_tests(self, runner: str, *names: str) -> tuple[int, str]:
        """Run tests of ``hanging``; :returns: the exit status, and what was printed."""
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.folder.mkdir()
        if runner == "pytest":
            wanted = [f"{ROOT}/tests/hanging.py::" + name.replace(".", "::") for name in names
                      if not name.startswith("-")]
        else:
            wanted = [f"tests.hanging.{name}" for name in names if not name.startswith("-")]
        wanted = [*(name for name in names if name.startswith("-")), *wanted]
        process = subprocess.run(
            [sys.executable, *RUNNERS[runner], *wanted], cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TWISTMQ_TEST_LIMIT": "1",
                 "HANGING_FOLDER": str(self.folder), "PYTEST_ADDOPTS": ""})
        return process.returncode, process.stdout

    def names(self, kind: type) -> list[str]:
        return [f"{kind.__name__}.{name}" for name in vars(kind) if name.startswith("test_")]

    def test_blocking_calls(self) -> None:
        """Each is named and fails, its ``tearDown`` runs, and the process ends."""
        names = self.names(hanging.BlockingTests)
        hung = [name.partition(".")[2] for name in names if not name.endswith("passes")]
        self.assertEqual(len(hung), 6)
        for runner in RUNNERS:
            status, out = self.run_tests(runner, *names)
            self.assertEqual(status, 1, msg=out)
            for name in hung:
                self.assertIn(f"BlockingTests.{name} did not end within 1 s", out)
                self.assertTrue((self.folder / f"torn_{name}").exists(), msg=name)
            self.assertTrue((self.folder / "passed").exists(), msg=out)
            self.assertIn("6 failed, 1 passed" if runner == "pytest" else "Ran 7 tests", out)
            if runner == "trial":
                # One of the six hangs in its clean-up, and counts as a success as well.
                self.assertIn("errors=6, successes=2", out)
            # The stack of the other thread.
            self.assertIn("Thread the waiting thread:", out)
            self.assertIn("in wait_in_a_thread", out)
            self.assertIn("do not end: the waiting thread", out)

    def test_tests_that_run_the_reactor(self) -> None:
        """Their own time-out fails them; where the reactor is blocked an alarm wakes it."""
        for runner in RUNNERS:
            status, out = self.run_tests(runner, *self.names(hanging.ReactorTests))
            self.assertEqual(status, 1, msg=out)
            for name in ("deferred_that_never_fires", "reactor_that_is_blocked",
                         "thread_of_the_reactor"):
                self.assertIn(f"ReactorTests.test_{name} did not end within 2 s", out)
            self.assertTrue((self.folder / "passed_too").exists(), msg=out)
            self.assertIn("in wait_in_a_thread", out)

    def test_workers(self) -> None:
        """Each runner tells what its workers found, whatever threads are left in them."""
        names = [f"BlockingTests.test_{name}"
                 for name in ("lock_that_another_thread_has", "passes")]
        for runner, option, end in (("pytest", "-n1", "1 failed, 1 passed"),
                                    ("trial", "-j1", "FAILED (errors=1, successes=1)")):
            status, out = self.run_tests(runner, option, *names)
            self.assertEqual(status, 1, msg=out)
            self.assertIn(end, out)
            self.assertIn("lock_that_another_thread_has did not end within 1 s", out)
            self.assertNotIn("ProcessTerminated", out)

    def test_what_no_alarm_interrupts(self) -> None:
        """The process ends, and says where it was."""
        for runner in RUNNERS:
            status, out = self.run_tests(runner, "DeafTests.test_in_c")
            self.assertEqual(status, 1, msg=out)
            self.assertIn("in test_in_c", out)


class LimitTests(SynchronousTestCase):
    """How long a test may take."""

    def test_by_ring_and_class(self) -> None:
        """A class may have longer, and not less."""
        for module, timeout, limit in (
            ("tests.broker.wire.test_flags", None, 120), ("tests.broker.wire.test_flags", 5, 120),
            ("tests.broker.wire.test_flags", 200, 200),
            ("tests.interop.test_acl", None, LIMITS_S["interop"]),
            ("tests.plugins.ha.test_kills", None, LIMITS_S["crash"]),
        ):
            self.assertEqual(limit_of(module, "test_x", timeout), limit)

    def test_this_test_has_one(self) -> None:
        """The alarm is set while a test runs."""
        import signal

        self.assertGreater(signal.getitimer(signal.ITIMER_REAL)[0], 60)
