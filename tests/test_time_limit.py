"""Tests that hang fail, and the run continues, under pytest and trial."""

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
    """The mechanism, in other processes."""

    def run_tests(
        self, names: list[str], limit_s: float = 1, option: dict[str, str] | None = None
    ) -> dict[str, tuple[Path, str]]:
        """Run tests of ``hanging`` under both runners at once; each run must fail.

        :param names: of classes and methods.
        :param option: one more for each runner.
        :returns: by runner, the folder that the tests write to, and what was printed.
        """
        outer = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        processes = {}
        for runner, command in RUNNERS.items():
            folder = outer / runner
            folder.mkdir(parents=True)
            wanted = [f"{ROOT}/tests/hanging.py::" + name.replace(".", "::")
                      if runner == "pytest" else f"tests.hanging.{name}" for name in names]
            processes[runner] = subprocess.Popen(
                [sys.executable, *command, *([option[runner]] if option else ()), *wanted],
                cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TWISTMQ_TEST_LIMIT": str(limit_s),
                     "HANGING_FOLDER": str(folder), "PYTEST_ADDOPTS": ""})
            self.addCleanup(processes[runner].kill)
        found = {}
        for runner, process in processes.items():
            out = process.communicate(timeout=100)[0]
            self.assertEqual(process.returncode, 1, msg=out)
            found[runner] = outer / runner, out
        return found

    def names(self, kind: type) -> list[str]:
        return [f"{kind.__name__}.{name}" for name in vars(kind) if name.startswith("test_")]

    def test_blocking_calls_and_tests_that_run_the_reactor(self) -> None:
        """Each is named and fails, its ``tearDown`` runs, the others run, and the process ends.

        The time-out of tests that run the reactor fails them; where it is blocked an alarm wakes
        it.
        """
        names = self.names(hanging.BlockingTests)
        hung = [name.partition(".")[2] for name in names if not name.endswith("passes")]
        self.assertEqual(len(hung), 6)
        runs = self.run_tests([*names, *self.names(hanging.ReactorTests)])
        for runner, (folder, out) in runs.items():
            for name in hung:
                self.assertIn(f"BlockingTests.{name} did not end within 1 s", out)
                self.assertTrue((folder / f"torn_{name}").exists(), msg=name)
            for name in ("deferred_that_never_fires", "reactor_that_is_blocked",
                         "thread_of_the_reactor"):
                self.assertIn(f"ReactorTests.test_{name} did not end within 2 s", out)
            for passed in ("passed", "passed_too"):
                self.assertTrue((folder / passed).exists(), msg=out)
            self.assertIn("9 failed, 2 passed" if runner == "pytest" else "Ran 11 tests", out)
            if runner == "trial":
                # One of the nine hangs in its clean-up, and counts as a success as well. Two that
                # run the reactor have a second error.
                self.assertRegex(out, r"FAILED \(errors=(9|10|11), successes=3\)")
            # The stack of the other thread.
            self.assertIn("Thread the waiting thread:", out)
            self.assertIn("in wait_in_a_thread", out)
            self.assertIn("do not end: the waiting thread", out)

    def test_workers(self) -> None:
        """Each runner reports the results of its workers, whatever threads they have left."""
        runs = self.run_tests([f"BlockingTests.test_{name}" for name in (
            "lock_that_another_thread_has", "passes")], option={"pytest": "-n1", "trial": "-j1"})
        for runner, end in (("pytest", "1 failed, 1 passed"),
                            ("trial", "FAILED (errors=1, successes=1)")):
            out = runs[runner][1]
            self.assertIn(end, out)
            self.assertIn("lock_that_another_thread_has did not end within 1 s", out)
            self.assertNotIn("ProcessTerminated", out)

    def test_what_no_alarm_interrupts(self) -> None:
        """The process ends, and reports the place."""
        for _, out in self.run_tests(["DeafTests.test_in_c"], limit_s=0.3).values():
            self.assertIn("in test_in_c", out)


class LimitTests(SynchronousTestCase):
    """The time that a test may take."""

    def test_by_ring_and_class(self) -> None:
        """A class may have a longer time, and no shorter one."""
        for module, timeout, limit in (
            ("tests.protocol.test_flags", None, 120), ("tests.protocol.test_flags", 5, 120),
            ("tests.protocol.test_flags", 200, 200),
            ("tests.interop.test_acl", None, LIMITS_S["interop"]),
            ("tests.plugins.ha.test_kills", None, LIMITS_S["crash"]),
        ):
            self.assertEqual(limit_of(module, "test_x", timeout), limit)

    def test_this_test_has_one(self) -> None:
        """The alarm is set while a test runs."""
        import signal

        self.assertGreater(signal.getitimer(signal.ITIMER_REAL)[0], 60)
