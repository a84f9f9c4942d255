"""The tools of both kinds at a group that mixes our brokers with one of Apache's.

Apache's mqadmin shows a group as the brokers of one name. The command line of DLedger itself, which
is in the jars of 4.9.4, transfers the lead.
"""

from __future__ import annotations

import json
from typing import Any

from tests.interop.clients import JavaTestCase
from tests.interop.ledger_group import GROUP, IDS, LedgerGroup
from tests.interop.mqadmin import mqadmin
from tests.interop.servers import wait_until
from tests.tools.admin.case import call
from twistmq.broker.testing import RawClient
from twistmq.protocol.errors import BrokerError

#: How long a command of Java's may take, seconds.
_PATIENCE_SECONDS = 60.0


class ToolTests(JavaTestCase):
    """Two members are ours, and ``n2`` is Apache's."""

    version = "5.5.0"

    def test_tools_of_both_kinds(self) -> None:
        """The lead goes to and fro by each tool; both show the same brokers."""
        with LedgerGroup(self.folder, self.version, {"n0", "n1"}) as group:
            group.start()
            group.wait_for_leader()
            group.give_lead("n0")
            wait_until("n0 accepts a message", lambda: self.is_accepted(group, "n0"))
            for member in ("n2", "n1"):
                wait_until(f"our command gives the lead to {member}", lambda to=member: call(
                    "leadershipTransfer", "-p", group.peers, "-g", GROUP, "-t", to)[0] == 0)
                self.assertEqual(group.wait_for_leader(), member)
            for member in ("n2", "n0"):
                wait_until(f"DLedger's command gives the lead to {member}",
                           lambda to=member: group.transfer_by_tool(to) == to, _PATIENCE_SECONDS)
            self.compare(group)

    def is_accepted(self, group: LedgerGroup, member: str) -> bool:
        """Send a message; a leader refuses it until the group has agreed on its first entry."""
        try:
            with RawClient(group.members[member].address, 10) as client:
                client.send("T", b"first")
        except BrokerError:
            return False
        return True

    def compare(self, group: LedgerGroup) -> None:
        """``n0`` leads: what both tools show of the group."""
        namesrv = group.namesrv.address
        addresses = {member: group.members[member].address for member in IDS}
        wait_until("all are registered by their roles", lambda: [
            (row["role"], row["address"]) for row in self.rows("dledgerStatus", namesrv)] == [
            ("leader", addresses["n0"]), ("follower", addresses["n1"]),
            ("follower", addresses["n2"])])
        rows = self.rows("dledgerStatus", namesrv)
        self.assertEqual({row["leader"] for row in rows}, {"n0"})
        self.assertEqual([row["reachable"] for row in rows], [True] * 3)
        ours = [row for row in rows if row["member"] != "n2"]
        self.assertEqual({row["term"] for row in ours}, {int(group.term_of("n0"))})
        wait_until("no member lags", lambda: [
            row["lag"] for row in self.rows("dledgerStatus", namesrv)] == [0, 0, 0])
        clusters, *statuses = mqadmin(namesrv, [
            "clusterList", *(f"brokerStatus -b {addresses[member]}" for member in IDS)],
            version=self.version)
        shown = {line.split()[3]: line.split()[2] for line in clusters.splitlines()
                 if any(address in line for address in addresses.values())}
        self.assertEqual(shown, {addresses["n0"]: "0", addresses["n1"]: "2", addresses["n2"]: "3"},
                         clusters)
        mine = self.rows("clusterList", namesrv)
        self.assertEqual({row["address"]: str(row["id"]) for row in mine}, shown)
        ends = {line.split(":")[1].strip() for text in statuses for line in text.splitlines()
                if line.startswith("commitLogMaxOffset")}
        self.assertEqual(len(ends), 1, statuses)
        self.assertIn("dledgerRole", statuses[0])

    def rows(self, command: str, namesrv: str) -> list[dict[str, Any]]:
        """The rows of our command."""
        status, out, err = call(command, "-n", namesrv, "--output", "json")
        self.assertEqual((status, err), (0, ""))
        rows: list[dict[str, Any]] = json.loads(out)
        return rows
