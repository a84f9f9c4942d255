"""The refusals of the last hour, as the doctor explains them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from twisted.logger import LogEvent, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.access_table import Action, Kind, RequestedAccess
from twistmq.acl.decide import NO_POLICY, Denial
from twistmq.acl.denials import Denials
from twistmq.acl.policies import Entry
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.logs import format_event, format_event_as_json
from twistmq.tools.doctor.access_checks import denial_findings
from twistmq.tools.doctor.findings import Level

HOST = "10.1.1.1"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class DenialTests(SynchronousTestCase):
    """The lines are written by access control, and read from its log."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.log = Path(folder.name, "broker.log")
        self.settings = self.settings_of(authenticationEnabled="true")

    def settings_of(self, **more: str) -> Settings:
        return boot.broker_settings(None, {"log.dir": str(self.log.parent), **more})

    def write(self, formatter: Callable[[LogEvent], str | None] = format_event) -> None:
        """Write the log of a broker that refused several requests."""
        denials, pub = Denials(), (Action.PUB,)
        with capturedLogs() as events:
            for _ in range(3):
                denials.not_allowed(0, "alice", 310, HOST, Denial(
                    RequestedAccess(Kind.TOPIC, "T", pub), NO_POLICY))
            denials.not_allowed(60_000, "alice", 310, HOST, Denial(
                RequestedAccess(Kind.TOPIC, "T", pub), NO_POLICY))
            denials.not_allowed(0, "alice", 11, HOST, Denial(
                RequestedAccess(Kind.GROUP, "G", (Action.SUB, Action.GET)), "the decision is deny.",
                Entry("Group:*", ("Sub",), ("10.0.0.0/8",), False)))
            denials.not_authenticated(0, "", 34, HOST, "username cannot be null.")
            denials.not_authenticated(0, "bob", 34, HOST, "User:bob is not found.")
            denials.not_authenticated(0, "alice", 34, HOST, "check signature failed.")
        self.log.write_text("".join([formatter(event) or "" for event in events]))

    def test_each_kind_is_explained_once(self) -> None:
        """It has subject, resource, action, address, count, the deciding entry, and the remedy."""
        self.write()
        found = {each.text: each.mend for each in denial_findings(
            "broker", self.settings, now_ms())}
        self.assertEqual(found, {
            "alice from 10.1.1.1: Pub on Topic:T (request 310) was refused 4 times: no matched "
            "policies.":
                "twistmq admin updateAcl -s User:alice -r Topic:T -a Pub -d Allow, if the user may "
                "do this",
            "alice from 10.1.1.1: Sub or Get on Group:G (request 11) was refused once: the "
            "decision is deny. The entry is Group:* from 10.0.0.0/8.":
                "twistmq admin getAcl -s User:alice shows the entry; change or delete it",
            "- from 10.1.1.1: request 34 was refused once: username cannot be null.":
                "the client has no access key: set the user's name and password as its two keys",
            "bob from 10.1.1.1: request 34 was refused once: User:bob is not found.":
                "create the user with twistmq admin createUser -u bob, or correct its name",
            "alice from 10.1.1.1: request 34 was refused once: check signature failed.":
                "the client signs with another password: compare its secret key with the user's",
        })

    def test_a_log_of_json_objects(self) -> None:
        """The same findings as in a log of text; a line that is cut off does not count."""
        self.write()
        before = list(denial_findings("broker", self.settings, now_ms()))
        self.write(format_event_as_json)
        text = self.log.read_text()
        self.log.write_text(f"{text}{text[:60]}\n{{}}\n{{\"time\":null,\"message\":\"\"}}\n")
        self.assertEqual(list(denial_findings("broker", self.settings, now_ms())), before)

    def test_no_log_on_standard_error(self) -> None:
        """Nothing is read, also if a file of an earlier start exists."""
        self.write()
        settings = self.settings_of(**{"authenticationEnabled": "true", "log.output": "stderr"})
        [finding] = denial_findings("broker", settings, now_ms())
        self.assertEqual((finding.level, finding.text), (
            Level.OK, "no refusals are known, because log.output=stderr leaves no log to read"))

    def test_an_older_line_does_not_count(self) -> None:
        """Only the last hour counts."""
        self.write()
        [finding] = denial_findings("broker", self.settings, now_ms() + 3_700_000)
        self.assertEqual((finding.level, finding.text),
                         (Level.OK, "no request was refused in the last hour"))

    def test_without_users_there_is_nothing_to_say(self) -> None:
        """The same is true without a log."""
        self.write()
        self.assertEqual(list(denial_findings("broker", self.settings_of(), now_ms())), [])
        self.log.unlink()
        [finding] = denial_findings("broker", self.settings, now_ms())
        self.assertEqual((finding.level, finding.text), (
            Level.OK, f"no refusals are known, because there is no log {self.log} to read"))
