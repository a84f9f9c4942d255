"""The process of the doctor."""

from __future__ import annotations

from threading import Event, Thread

from twisted.trial.unittest import SynchronousTestCase

from twistmq.console import doctor_runner
from twistmq.console.doctor_runner import DoctorRunner, Finding
from twistmq.tools.admin.session import AdminError


class RunnerTests(SynchronousTestCase):
    """Other programs in its place."""

    def run_program(self, program: str) -> list[Finding]:
        """Run another program in place of the doctor."""
        self.patch(doctor_runner, "_PROGRAM", program)
        return DoctorRunner(["--for", "up"])()

    def test_its_report_is_read(self) -> None:
        """It gets the arguments of the servers."""
        [finding] = self.run_program(
            "import sys, json; print(json.dumps({'status': 'ok', 'findings': ["
            "{'check': 'args', 'level': 'ok', 'text': ' '.join(sys.argv[1:]), 'mend': ''}]}))")
        self.assertEqual(finding.text, "doctor --json --running --for up")

    def test_a_doctor_that_fails_or_hangs(self) -> None:
        """The page says so."""
        error = self.assertRaises(AdminError, self.run_program, "raise SystemExit(1)")
        self.assertIn("the doctor failed", str(error))
        self.patch(doctor_runner, "DOCTOR_S", 0.05)
        error = self.assertRaises(AdminError, self.run_program, "import time; time.sleep(60)")
        self.assertIn("did not end in time", str(error))

    def test_one_at_a_time(self) -> None:
        """A second page does not start a second process."""
        runner, is_running, may_end = DoctorRunner([]), Event(), Event()

        def run(*_: object, **__: object) -> object:
            is_running.set()
            may_end.wait(30)
            raise doctor_runner.subprocess.TimeoutExpired("doctor", 1)

        self.patch(doctor_runner.subprocess, "run", run)
        thread = Thread(target=self.assertRaises, args=(AdminError, runner))
        thread.start()
        is_running.wait(30)
        self.assertIn("already runs", str(self.assertRaises(AdminError, runner)))
        may_end.set()
        thread.join(30)
