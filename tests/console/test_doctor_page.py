"""The findings of the doctor."""

from __future__ import annotations

import json
from threading import Event, Thread

from twisted.trial.unittest import SynchronousTestCase

from tests.console.case import ConsoleCase
from twistmq.console import doctor_page
from twistmq.console.doctor_page import DoctorRunner, Finding
from twistmq.console.page_session import PageSession
from twistmq.tools.admin.session import AdminError

FINDINGS = [Finding("ports", "ok", "10911 answers"),
            Finding("disk", "broken", "<b>full</b>", "add a disk"),
            Finding("clock", "warn", "it is set back", "set it")]


class DoctorPageTests(ConsoleCase):
    """The page of a console with a doctor."""

    def make_session(self) -> PageSession:
        return PageSession(self.running.namesrv_address, timeout_s=30,
                           doctor=lambda: list(FINDINGS))

    def test_the_worst_comes_first(self) -> None:
        """Each finding has its level, what was found, and how to mend it."""
        self.browser.log_in()
        answer = self.browser.json("/doctor")
        self.assertEqual([(row["level"], row["check"], row["mend"])
                          for row in answer.rows["findings"]],
                         [("broken", "disk", "add a disk"), ("warn", "clock", "set it"),
                          ("ok", "ports", None)])
        self.assertEqual(json.loads(answer.text)["facts"],
                         {"is_available": True, "broken": 1, "warn": 1, "ok": 1})
        text = self.browser.get("/doctor").text
        self.assertIn("&lt;b&gt;full", text)


class WithoutDoctorTests(ConsoleCase):
    """The page of a console that is not on the host of a server."""

    def test_the_page_says_where_to_run_it(self) -> None:
        """There are no findings, and that is not shown as good news."""
        self.browser.log_in()
        text = self.browser.get("/doctor").text
        self.assertIn("run `twistmq doctor` on its host", text)
        self.assertNotIn("In order", text)


class RunnerTests(SynchronousTestCase):
    """The process of the doctor."""

    def run_program(self, program: str) -> list[Finding]:
        """Run another program in place of the doctor."""
        self.patch(doctor_page, "_PROGRAM", program)
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
        self.patch(doctor_page, "DOCTOR_S", 0.05)
        error = self.assertRaises(AdminError, self.run_program, "input()\nwhile True: pass")
        self.assertIn("did not end in time", str(error))

    def test_one_at_a_time(self) -> None:
        """A second page does not start a second process."""
        runner, is_running, may_end = DoctorRunner([]), Event(), Event()

        def run(*_: object, **__: object) -> object:
            is_running.set()
            may_end.wait(30)
            raise doctor_page.subprocess.TimeoutExpired("doctor", 1)

        self.patch(doctor_page.subprocess, "run", run)
        thread = Thread(target=self.assertRaises, args=(AdminError, runner))
        thread.start()
        is_running.wait(30)
        self.assertIn("already runs", str(self.assertRaises(AdminError, runner)))
        may_end.set()
        thread.join(30)
