"""A group whose members encrypt their connections to each other: ``dledger.tls``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.certificates import Authority
from tests.interop.kept import kept
from tests.plugins.dledger.live_group import GROUP, IDS, LiveGroup, live_group_of
from tests.plugins.ha.pair import wait_until
from tests.tools.admin.case import call
from twistmq.client import Producer


def files_of(folder: Path, authority: Authority, name: str) -> dict[str, str]:
    """The settings of a member: its certificate, and that only members that have one connect."""
    pair = authority.pair(name)
    return {
        "tls.server.certPath": str(pair.cert), "tls.server.keyPath": str(pair.key),
        "tls.server.authClient": "true", "tls.server.trustCertPath": str(authority.cert),
        "tls.client.authServer": "true", "tls.client.trustCertPath": str(authority.cert),
        "tls.client.certPath": str(pair.cert), "tls.client.keyPath": str(pair.key)}


def tls_group(folder: Path, stack: ExitStack) -> LiveGroup:
    """For ``kept``: a group whose members trust one authority."""
    return live_group_of(folder, stack, **{
        "dledger.tls": "true", "dledger.quick_failover": "true",
        **files_of(folder, Authority(folder), "broker")})


class TlsTests(SynchronousTestCase):
    """Members with TLS, and others beside them."""

    def setUp(self) -> None:
        self.group: LiveGroup = kept(self, tls_group)
        self.leader = self.group.find_leader()
        self.follower = next(member for member in IDS if member != self.leader)

    def send(self, count: int) -> None:
        with Producer(self.group.namesrv, group="g", await_master=True, timeout_s=20) as producer:
            for number in range(count):
                producer.send("T", b"%d" % number)

    def is_level(self) -> bool:
        """Whether all members have agreed on the same log."""
        ends = {self.group.rows(member)["dledgerCommittedIndex"] for member in self.group.brokers}
        return len(ends) == 1

    def outsider(self, **settings: str) -> None:
        """A member with other settings hears no other member, and the others go on without it."""
        term = self.group.rows(self.leader)["dledgerTerm"]
        self.group.stop(self.follower)
        self.group.start(self.follower, **settings)
        rows = self.group.rows(self.leader)
        wait_until(lambda: self.group.rows(self.leader)[f"dledgerReachable.{self.follower}"]
                   == "false", "the leader no longer hears it", 15)
        rows = self.group.rows(self.follower)
        self.assertEqual((rows["dledgerLeader"], rows["brokerRole"]), ("", "SLAVE"))
        self.send(3)
        rows = self.group.rows(self.leader)
        self.assertEqual((rows["dledgerRole"], rows["dledgerTerm"]), ("leader", term))
        self.group.stop(self.follower)
        self.group.start(self.follower)
        wait_until(lambda: self.group.leader and self.is_level(), "it is back")

    def test_messages_and_a_change_of_the_leader(self) -> None:
        """A large message goes to all, and another member leads when the leader stops."""
        self.send(20)
        with self.group.brokers[self.leader].client() as client:
            for _ in range(20):
                client.send("T", bytes(29_000))
        wait_until(self.is_level, "all have all messages")
        self.group.stop(self.leader)
        self.assertNotEqual(self.group.find_leader(), self.leader)
        self.send(3)
        self.group.start(self.leader)
        wait_until(lambda: self.group.leader and self.is_level(), "the old leader follows")

    def test_a_member_without_tls(self) -> None:
        """It is refused, and refuses the others."""
        self.outsider(**{"dledger.tls": "false"})

    def test_a_member_with_a_certificate_of_another_authority(self) -> None:
        """Neither side trusts the other."""
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        folder = Path(scratch.name)
        self.outsider(**files_of(folder, Authority(folder, "other"), "stranger"))

    def test_a_transfer_by_command(self) -> None:
        """The command needs TLS, and a certificate where the members ask for one."""
        words = ("leadershipTransfer", "-t", self.follower, "-p", self.group.peers, "-g", GROUP)
        for options in ((), ("--tls",)):
            status, _, err = call(*words, *options)
            self.assertEqual((status, err.count("\n")), (1, 1), msg=options)
            self.assertIn("dledger.tls=true needs --tls", err)
        self.assertEqual(self.group.leader, self.leader)
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
            file.writelines(f"{name}={text}\n" for name, text in self.group.settings.items()
                            if name.startswith("tls.client."))
            file.flush()
            status, out, err = call(*words, "--tls-config", file.name)
        self.assertEqual((status, err), (0, ""), msg=out)
        wait_until(lambda: self.group.leader == self.follower, f"{self.follower} leads")
