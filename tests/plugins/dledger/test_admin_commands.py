"""``leadershipTransfer`` and ``dledgerStatus`` at a group of three brokers with sockets."""

from __future__ import annotations

import json
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.kept import kept
from tests.interop.ports import free_port
from tests.plugins.dledger.live_group import GROUP, IDS, LiveGroup, live_group
from tests.plugins.ha.pair import wait_until
from tests.tools.admin.case import call
from twistmq.client import Producer
from twistmq.plugins.dledger import admin_commands
from twistmq.plugins.dledger.admin_commands import _Member, _rows
from twistmq.plugins.dledger.peer_group import read_peers
from twistmq.tools.admin.session import Broker

#: The longest time of a transfer, s, as the acceptance row has it, and more for a busy machine.
TRANSFER_MAX = 1.0 + 5.0


class CommandCase(SynchronousTestCase):
    """The group of this module."""

    def setUp(self) -> None:
        self.group: LiveGroup = kept(self, live_group)
        self.leader = self.group.find_leader()
        self.others = [member for member in IDS if member != self.leader]

    def rows(self, *words: str) -> list[dict[str, Any]]:
        # A further -n wins.
        status, out, err = call(words[0], "--output", "json", "-n", self.group.namesrv, *words[1:])
        self.assertEqual((status, err), (0, ""))
        rows: list[dict[str, Any]] = json.loads(out)
        return rows

    def refusal(self, *words: str) -> str:
        """The line of a command that fails; nothing has changed."""
        term = self.group.rows(self.leader)["dledgerTerm"]
        status, out, err = call(*words, "-n", self.group.namesrv)
        self.assertEqual((status, err.count("\n")), (1, 1), msg=out + err)
        self.assertEqual(self.group.find_leader(), self.leader)
        self.assertEqual(self.group.rows(self.leader)["dledgerTerm"], term)
        return err


class TransferTests(CommandCase):
    """``leadershipTransfer``."""

    def transfer(self, *words: str) -> None:
        """Transfer the lead to a member; the group accepts sends again soon."""
        member = self.others[0]
        begin = time.monotonic()
        rows = self.rows("leadershipTransfer", "-t", member, *words)
        took = time.monotonic() - begin
        print(f"the transfer took {took:.2f} s")
        self.assertLess(took, TRANSFER_MAX)
        self.assertEqual([(row["member"], row["step"]) for row in rows], [
            (self.leader, "check"), (self.leader, "transfer"), (member, "verify")])
        self.assertEqual({row["group"] for row in rows}, {GROUP})
        self.assertEqual(rows[2]["address"], self.group.addresses[member])
        wait_until(lambda: self.group.leader == member, f"{member} leads")
        with Producer(self.group.namesrv, group="g", await_master=True) as producer:
            producer.send("T", b"after the transfer")

    def test_by_the_name_of_the_brokers(self) -> None:
        """The command takes the members from the settings of the brokers."""
        self.transfer("-b", GROUP)

    def test_by_the_list_of_members(self) -> None:
        """With the options of DLedger's own tool, no name server is asked."""
        self.transfer("-p", self.group.peers, "-g", GROUP, "-n", "127.0.0.1:1")

    def test_with_the_leader_and_the_term(self) -> None:
        """As DLedger's own tool wants them."""
        self.transfer("-p", self.group.peers, "--group", GROUP, "--leader", self.leader,
                      "--term", self.group.rows(self.leader)["dledgerTerm"])

    def test_what_is_refused(self) -> None:
        """Each refusal names its reason, and the exit status is 1."""
        other, third = self.others
        by_name = ("-b", GROUP)
        by_list = ("-p", self.group.peers, "-g", GROUP)
        for words, text in (
                (("-t", "n7", *by_name), f"n7 is not a member of the group {GROUP}"),
                (("-t", self.leader, *by_name), f"{self.leader} leads the group {GROUP} already"),
                (("-t", other, "-b", "nobody"), "there is no broker nobody"),
                (("-t", other, "-b", "plain"), "plain is not a group"),
                (("-t", other, "-p", self.group.peers, "-g", "g2"), "400 UNKNOWN_GROUP"),
                (("-t", other, *by_list, "--leader", "n7"), "the leader n7 is not a member"),
                (("-t", other, *by_list, "--leader", third), f"{third} does not lead"),
                (("-t", other, *by_list, "--term", "999999"),
                 "the leader is in another term (407 INCONSISTENT_TERM)"),
                (("-t", other, "-p", "n0=127.0.0.1"), "which is not ID-HOST:PORT"),
                (("-t", other, "-p", " "), "--peers is empty"),
                (("-t", other, "-p", f"{other}-127.0.0.1:{free_port()}"),
                 "answers at its port for members"),
                (("-t", other), "give one of -b and -p"),
                (("-t", other, *by_name, *by_list), "give one of -b and -p"),
                (by_name, "-t")):
            self.assertIn(text, self.refusal("leadershipTransfer", *words), msg=words)

    def test_a_member_that_is_not_able_to_lead(self) -> None:
        """The leader refuses: the member has not answered it for some time."""
        leader = self.group.hooks(self.leader)
        assert leader.node is not None
        reign: Any = leader.node.member._leader
        self.patch(reign, "was_heard_lately", lambda peer: False)
        self.assertIn(f"{self.others[0]} lacks too many entries, or has not answered the leader "
                      "lately (417 FALL_BEHIND_TOO_MUCH)",
                      self.refusal("leadershipTransfer", "-t", self.others[0], "-b", GROUP))

    def test_a_group_without_a_leader(self) -> None:
        """It is said, not waited for."""
        for member in IDS:
            hooks = self.group.hooks(member)
            assert hooks.node is not None
            self.patch(hooks.node.member._state, "leader", "")
        status, _, err = call("leadershipTransfer", "-t", "n0", "-b", GROUP, "-n",
                              self.group.namesrv)
        self.assertEqual(status, 1)
        self.assertIn(f"the group {GROUP} has no leader", err)


class StatusTests(CommandCase):
    """``dledgerStatus``."""

    def test_a_row_for_each_member(self) -> None:
        """Roles, terms and indexes are those that the brokers report."""
        term = int(self.group.rows(self.leader)["dledgerTerm"])
        wait_until(lambda: len({self.group.rows(member)["dledgerCommittedIndex"]
                                for member in IDS}) == 1, "equal logs")
        for words in ((), ("-b", GROUP), ("-c", "DefaultCluster")):
            rows = self.rows("dledgerStatus", *words)
            self.assertEqual([row["member"] for row in rows], list(IDS))
            for row in rows:
                role = "leader" if row["member"] == self.leader else "follower"
                self.assertEqual((row["broker"], row["role"], row["leader"], row["term"]),
                                 (GROUP, role, self.leader, term))
                self.assertEqual(row["address"], self.group.brokers[row["member"]].address)
                self.assertEqual((row["lag"], row["reachable"], row["may_vote"]), (0, True, True))
                self.assertEqual(row["begin_index"], 0)
                self.assertEqual(row["end_index"], row["committed_index"])

    def test_names_that_are_no_group(self) -> None:
        """A broker that is in no group has no row."""
        for words in (("-b", "plain"), ("-b", "nobody")):
            self.assertIn("no broker that is a member of a group answers",
                          self.refusal("dledgerStatus", *words))


class RowTests(SynchronousTestCase):
    """Rows of members that do not answer, and of Apache's brokers."""

    def member(self, member: str, broker_id: int, **table: str) -> _Member:
        group = admin_commands._Group("g", read_peers("n0-h:1;n1-h:2;n2-h:3"))
        return _Member(Broker("c", "b", broker_id, f"{member}:1"), group, member, {
            f"dledger{name.replace('_', '.')}": text for name, text in table.items()})

    def rows(self, *members: _Member) -> list[tuple[object, ...]]:
        """Member, role, end, lag and whether it is reachable."""
        return [(row[1], row[3], row[7], row[9], row[10]) for row in _rows("b", list(members))]

    def test_a_member_that_is_gone(self) -> None:
        """The lists of the others name it; the leader knows its lag."""
        leader = self.member("n0", 0, Role="leader", EndIndex="9", Lag_n1="2", Reachable_n1="true",
                             Lag_n2="unknown", Reachable_n2="false")
        follower = self.member("n1", 2, Role="follower", EndIndex="7")
        self.assertEqual(self.rows(leader, follower), [
            ("n0", "leader", 9, 0, True), ("n1", "follower", 7, 2, True),
            ("n2", None, None, None, False)])

    def test_members_without_a_leader(self) -> None:
        """A lag is not known then; -1 is the index of a ledger without entries."""
        self.assertEqual(self.rows(self.member("n1", 2, Role="candidate", EndIndex="-1")), [
            ("n0", None, None, None, False), ("n1", "candidate", -1, None, True),
            ("n2", None, None, None, False)])

    def test_brokers_of_apaches(self) -> None:
        """Their roles follow from their ids, and they report no index."""
        self.assertEqual(self.rows(self.member("n0", 1), self.member("n1", 0),
                                   self.member("n2", 3, Role="follower", EndIndex="7")), [
            ("n0", "follower", None, None, True), ("n1", "leader", None, 0, True),
            ("n2", "follower", 7, None, True)])
