"""The checks of certificates: missing, with another key, expiring, or expired."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.certificates import Authority, Pair
from tests.tools.doctor.test_host_checks import GOOD
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.testing import running_broker
from twistmq.tools.doctor.findings import Finding, Level
from twistmq.tools.doctor.network_checks import network_findings
from twistmq.tools.doctor.tls_checks import tls_findings


class TlsTests(SynchronousTestCase):
    """A server with a certificate."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-doctor-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.authority = Authority(self.folder)
        # What the machine has in Apache's place for it is not the matter.
        (self.folder / "none").touch()

    def settings(self, pair: Pair | None = None, **more: str) -> Settings:
        given = {"tls.test.mode.enable": "false", "tls.server.mode": "enforcing",
                 "tls.config.file": str(self.folder / "none"), "listenPort": "0", **more}
        if pair is not None:
            given |= {"tls.server.certPath": str(pair.cert), "tls.server.keyPath": str(pair.key)}
        return boot.broker_settings(None, given)

    def look(self, pair: Pair | None = None, **more: str) -> list[Finding]:
        return list(tls_findings(self.settings(pair, **more), int(time.time() * 1000)))

    def test_a_server_without_tls_settings_has_no_finding(self) -> None:
        """There is no finding."""
        self.assertEqual(list(tls_findings(boot.broker_settings(None, {}), 0)), [])

    def test_when_it_ends(self) -> None:
        """It ends long from now, soon, or in the past."""
        for days, level, text in ((400, Level.OK, "ends at"), (5, Level.WARN, "ends in 5 days"),
                                  (-0.5, Level.BROKEN, "ended at")):
            pair = self.authority.pair("server", begins_days=-2, ends_days=days)
            [finding] = self.look(pair)
            self.assertIs(finding.level, level, msg=finding.text)
            self.assertIn(text, finding.text)

    def test_missing_or_no_pair(self) -> None:
        """The certificate or the file is missing, or the key belongs to another one."""
        one, other = self.authority.pair("one"), self.authority.pair("other")
        for pair, text in ((None, "tls.server.certPath"),
                           (Pair(self.folder / "nowhere.crt", one.key), "nowhere.crt"),
                           (Pair(one.cert, other.key), "tls.server")):
            [finding] = self.look(pair)
            self.assertIs(finding.level, Level.BROKEN)
            self.assertIn(text, finding.text)

    def test_password_is_not_shown(self) -> None:
        """Neither a right nor a wrong password is shown."""
        pair = self.authority.pair("server", password="SECRETWORD")
        for word in ("SECRETWORD", "SECRETWORT"):
            findings = self.look(pair, **{"tls.server.keyPassword": word})
            self.assertNotIn("SECRETWOR", str(findings))
            self.assertIs(findings[0].level,
                          Level.WARN if word == "SECRETWORD" else Level.BROKEN)

    def test_name_server_by_tls(self) -> None:
        """The doctor uses the same connection as the broker."""
        pair = self.authority.pair("server")
        own = {"tls.test.mode.enable": "false", "tls.server.mode": "enforcing",
               "tls.server.certPath": str(pair.cert), "tls.server.keyPath": str(pair.key),
               "tls.client.authServer": "true",
               "tls.client.trustCertPath": str(self.authority.cert)}
        with running_broker(own) as broker:
            trusted = {name: text for name, text in own.items() if name.startswith("tls.client")}
            for more, level in (({}, Level.BROKEN), (trusted, Level.OK)):
                settings = self.settings(pair, namesrvAddr=broker.namesrv_address, **{
                    "tls.client.authServer": "true",
                    "tls.client.trustCertPath": str(Authority(self.folder, "stranger").cert),
                    **more})
                [finding] = [each for each in network_findings("broker", settings, GOOD,
                                                               running=False)
                             if each.check == "name server"]
                self.assertIs(finding.level, level, msg=finding.text)
