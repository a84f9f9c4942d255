"""The findings of the doctor."""

from __future__ import annotations

import json

from tests.console.case import ConsoleCase
from twistmq.console.doctor_runner import Finding
from twistmq.console.page_session import PageSession

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
        self.assertIn("run the command twistmq doctor on its host", text)
        self.assertNotIn("In order", text)
