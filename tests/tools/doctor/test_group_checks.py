"""A member of a group, as the doctor sees it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from tests.interop.kept import kept
from tests.interop.ports import free_port
from tests.plugins.dledger.live_group import GROUP, IDS, LiveGroup, live_group
from tests.plugins.ha.pair import LOCAL
from twistmq.broker.edge import boot, services
from twistmq.tools.doctor.findings import Finding, Level
from twistmq.tools.doctor.group_checks import group_findings
from twistmq.tools.doctor.pair_checks import pair_findings

#: Ports at which nothing listens.
DEAD = ";".join(f"n{number}-127.0.0.1:{number + 1}" for number in range(3))


def findings(*, running: bool = False, **settings: str) -> list[Finding]:
    """The findings about a member with these settings."""
    values = boot.broker_settings(None, {
        **LOCAL, "brokerName": GROUP, "enableDLegerCommitLog": "true", "dLegerGroup": GROUP,
        "dLegerPeers": DEAD, "dLegerSelfId": "n0", "flushDiskType": "SYNC_FLUSH", **settings})
    services.declare_plugins("broker", values)
    # The checks of a pair have nothing to say about a member.
    assert not list(pair_findings(values, running=running))
    return list(group_findings(values, running=running))


class SettingsTests(SynchronousTestCase):
    """What the settings alone tell."""

    def test_a_broker_without_a_ledger(self) -> None:
        """There is nothing to say."""
        self.assertEqual(findings(enableDLegerCommitLog="false"), [])

    def test_the_number_of_members(self) -> None:
        """An even number of members is not better than one member less."""
        for count, level, text in (
                (1, Level.WARN, "accepts no message once one"),
                (2, Level.WARN, "accepts no message once one"),
                (3, Level.OK, "survives the loss of 1"),
                (4, Level.WARN, "the loss of 1, as one of 3 does"),
                (5, Level.OK, "survives the loss of 2")):
            peers = ";".join(f"n{number}-127.0.0.1:{number + 1}" for number in range(count))
            first = findings(dLegerPeers=peers)[0]
            self.assertIs(first.level, level, msg=str(count))
            self.assertIn(text, first.text)

    def test_what_a_loss_of_power_may_lose(self) -> None:
        """With ASYNC_FLUSH; and a role that is not used is named."""
        texts = [each.text for each in findings(flushDiskType="ASYNC_FLUSH",
                                                brokerRole="SYNC_MASTER")]
        self.assertIn("flushDiskType=ASYNC_FLUSH", texts[1])
        self.assertIn("brokerRole=SYNC_MASTER is not used", texts[2])

    def test_nobody_answers(self) -> None:
        """A member that is to start can wait for the others; one that runs is broken."""
        found = findings()
        self.assertEqual([each.level for each in found], [Level.OK, Level.WARN, Level.WARN])
        self.assertIn("the member n1 does not answer at 127.0.0.1:2", found[1].text)
        found = findings(running=True)
        self.assertEqual([each.level for each in found],
                         [Level.OK, *[Level.WARN] * 3, Level.BROKEN])
        self.assertIn("0 of 3 members can be reached, and a leader needs 2", found[-1].text)


class GroupTests(SynchronousTestCase):
    """A member beside a group that runs."""

    def setUp(self) -> None:
        self.group: LiveGroup = kept(self, live_group)
        self.leader = self.group.find_leader()
        #: A folder with a ledger, as far as the doctor looks.
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name
        folder = Path(self.root, "dledger-n0")
        folder.mkdir()
        (folder / "currterm").touch()

    def found(self, *, running: bool = False, **settings: str) -> list[Finding]:
        """The findings that are not in order about the member n0 of the group."""
        return [each for each in self.all_found(running=running, **settings)
                if each.level is not Level.OK]

    def all_found(self, *, running: bool = False, **settings: str) -> list[Finding]:
        port = self.group.brokers["n0"].address.rpartition(":")[2]
        return findings(running=running, **{
            **self.group.settings, "dLegerSelfId": "n0", "listenPort": port,
            "flushDiskType": "ASYNC_FLUSH", "storePathRootDir": self.root, **settings})

    def only(self, level: Level, text: str, **settings: str) -> None:
        """There is one finding beside the one about the flush, and it has this text."""
        found = [each for each in self.found(**settings) if "at once" not in each.text]
        self.assertEqual([each.level for each in found], [level], msg=found)
        self.assertIn(text, found[0].text)

    def test_a_group_that_is_well(self) -> None:
        """The members answer, one leads, and the settings of the other brokers fit."""
        found = self.all_found(running=True)
        self.assertEqual([each.text for each in found if each.level is Level.OK], [
            "3 members: the group survives the loss of 1",
            f"{self.leader} leads; 3 of 3 members answer",
            f"2 other brokers of the name {GROUP} have settings that fit"])
        self.assertEqual(len(found), 4)

    def test_another_list_of_members(self) -> None:
        """Other members are broken; other addresses may be those of another network."""
        peers = self.group.peers
        found = self.found(dLegerPeers=f"{peers};n3-127.0.0.1:{free_port()};"
                                       f"n4-127.0.0.1:{free_port()}")
        self.assertEqual([each.text for each in found if each.level is Level.BROKEN], [
            f"the member {member} has other members in dLegerPeers: n0, n1, n2"
            for member in ("n1", "n2")])
        self.assertEqual([each.level for each in found], [
            Level.WARN, Level.BROKEN, Level.BROKEN, Level.WARN, Level.WARN])
        moved = peers.replace(self.group.addresses["n0"], f"127.0.0.1:{free_port()}")
        found = self.found(dLegerPeers=moved)
        self.assertEqual([each.level for each in found], [Level.WARN] * 3)
        self.assertIn("the member n1 has other addresses in dLegerPeers: n0-", found[1].text)

    def test_another_group_or_member(self) -> None:
        """The server at the address says so."""
        found = self.found(dLegerGroup="g2")
        self.assertIn("not the member n1 of the group g2: it answers 400", found[1].text)
        self.assertIn("has dLegerGroup=orders", found[-1].text)
        one, two = self.group.addresses["n1"], self.group.addresses["n2"]
        found = self.found(dLegerPeers=f"n0-{self.group.addresses['n0']};n1-{two};n2-{one}")
        self.assertIn(f"the server at {two} is not the member n1", found[1].text)
        self.assertIn("it answers 401", found[1].text)
        self.assertIn("it is not the port of a member",
                      self.found(dLegerPeers=f"n0-127.0.0.1:1;n1-{self.group.plain}")[2].text)

    def test_settings_of_the_other_brokers(self) -> None:
        """Another file size is broken; another flush weakens what is promised."""
        found = self.found(mappedFileSizeCommitLog="131072")
        self.assertEqual([each.level for each in found], [Level.WARN, Level.BROKEN, Level.BROKEN])
        self.assertIn("mappedFileSizeCommitLog is 131072 here and 65536 at n", found[1].text)
        found = self.found(flushDiskType="SYNC_FLUSH")
        self.assertEqual([each.level for each in found], [Level.WARN, Level.WARN])
        self.assertIn("flushDiskType is SYNC_FLUSH here and ASYNC_FLUSH at n", found[0].text)

    def test_the_same_member_twice(self) -> None:
        """A broker with another port is not this one."""
        self.only(Level.BROKEN, "is the member n0 as well", listenPort=str(free_port()))

    def test_a_name_that_another_broker_has(self) -> None:
        """It would be a broker of the group for all clients."""
        self.only(Level.BROKEN, "but is not a member of the group", brokerName="plain")

    def test_an_empty_ledger(self) -> None:
        """The member votes only after it has caught up."""
        for folder in Path(self.root).iterdir():
            (folder / "currterm").unlink()
        self.only(Level.WARN, "the ledger of n0 is empty, but the group has a leader")

    def test_a_member_that_may_not_vote_or_lags(self) -> None:
        """The brokers say so themselves."""
        follower = next(member for member in IDS if member not in ("n0", self.leader))
        hooks = self.group.hooks(follower)
        assert hooks.node is not None
        ballot = hooks.node.member._state.ballot
        self.patch(ballot, "_state", replace(ballot._state, joined=False))
        self.only(Level.WARN, f"{follower} may not vote")

    def test_members_that_speak_no_tls(self) -> None:
        """A member with dledger.tls is alone beside members without."""
        found = self.found(**{"dledger.tls": "true"})
        self.assertEqual([each.text.partition(" at ")[0] for each in found[1:]], [
            "the member n1 does not answer", "the member n2 does not answer"])
        self.assertIn("dledger.tls must be the same", found[1].mend)
