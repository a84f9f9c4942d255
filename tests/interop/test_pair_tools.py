"""mqadmin 5.3.3 with a pair of ours and a pair of Apache's in the same state."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tests.interop.answers import OWN_ROWS
from tests.interop.mqadmin import mqadmin
from tests.interop.replicas import slaves_of
from tests.interop.test_mqadmin import pairs, steady
from tests.interop.test_replication import COMMON, PairCase
from tests.plugins.ha.pair import lone_broker, wait_until

#: The refusal of a server that has no controller.
REFUSAL = "CODE: 3  DESC: request type 1005 not supported"


class Pair(NamedTuple):
    """Addresses of a name server, a master and its slave."""

    namesrv: str
    master: str
    slave: str

    def commands(self) -> dict[str, str]:
        """Return the commands, by their names here."""
        each = {"brokerStatus": "brokerStatus", "haStatus": "haStatus",
                "reset": "resetMasterFlushOffset -o 0"}
        found = {"clusterList": "clusterList", "clusterList -m": "clusterList -m",
                 "haStatus of all": "haStatus -c DefaultCluster"}
        found |= {f"{name} {role}": f"{command} -b {address}" for name, command in each.items()
                  for role, address in (("master", self.master), ("slave", self.slave))}
        return {**found,
                "getSyncStateSet": f"getSyncStateSet -a {self.namesrv} -b pair",
                "getSyncStateSet of all": f"getSyncStateSet -a {self.namesrv} -c DefaultCluster"}


class PairToolTests(PairCase):
    """Both pairs got the same messages."""

    timeout = 900

    def apaches(self) -> Pair:
        """Return a pair of Apache's with its name server."""
        java = self.java_master()
        slave = self.start_apache(
            "slave", with_namesrv=False, namesrv_address=java.namesrv_address,
            settings={**COMMON, "brokerRole": "SLAVE", "brokerId": "1"})
        return Pair(java.namesrv_address, f"127.0.0.1:{java.broker_port}",
                    f"127.0.0.1:{slave.broker_port}")

    def ours(self) -> Pair:
        """Return a pair of ours with our name server."""
        master = self.our_master()
        slave = self.stack.enter_context(lone_broker(self.folder / "slave-ours/store", {
            **COMMON, "namesrvAddr": master.namesrv_address, "brokerRole": "SLAVE",
            "brokerId": "1"}))
        return Pair(master.namesrv_address, master.broker_address, slave.address)

    def printed(self, make: Callable[[], Pair]) -> dict[str, str]:
        """Return the output of the tool for a pair."""
        pair = make()
        wait_until(lambda: slaves_of(pair.master).ha_connection_info, "the slave is there", 60)
        self.assertEqual(set(self.send(pair.master, 20)), {0})
        wait_until(lambda: self.end_of(pair.slave) == self.end_of(pair.master),
                   "the slave has all", 60)
        commands = pair.commands()
        # Of the time that the first one has, the start of the tool takes most.
        _, *texts = mqadmin(pair.namesrv, ["topicList", *commands.values()])
        return dict(zip(commands, texts, strict=True))

    def test_it_prints_what_it_prints_of_apaches_pair(self) -> None:
        """Numbers may differ; a table of statistics has the same rows; there is no controller."""
        theirs, ours = self.printed(self.apaches), self.printed(self.ours)
        for name, text in theirs.items():
            if name.startswith("brokerStatus"):
                self.same_rows(name, text, ours[name])
            elif name.startswith("getSyncStateSet"):
                self.assertIn(REFUSAL, " ".join(steady(text)).replace("  DESC:  ", "  DESC: "))
                self.assertIn(f"{REFUSAL}: there is no controller here",
                              " ".join(steady(ours[name])).replace("  DESC:  ", "  DESC: "))
            else:
                self.assertEqual(*(re.sub(r"\d+", "0", "\n".join(steady(each)))
                                   for each in (text, ours[name])), msg=name)
        self.assertIn("OK", ours["haStatus master"])
        self.assertIn("success", ours["reset master"])
        self.assertEqual(ours["clusterList"].count("DefaultCluster"), 2, msg=ours["clusterList"])

    def same_rows(self, name: str, theirs: str, ours: str) -> None:
        """The rows are Apache's and our own; only a master is active."""
        apaches, own = (pairs("\n".join(steady(text)), ":") for text in (theirs, ours))
        more = {each for each in own if each.startswith("flowControl_")} | OWN_ROWS
        self.assertEqual(own.keys() - more, apaches.keys(), msg=name)
        for each in ("brokerActive", "brokerVersionDesc", "putMessageTimesTotal",
                     "msgPutTotalTodayNow", "dispatchBehindBytes", "commitLogMinOffset"):
            self.assertEqual(own[each], apaches[each], msg=(name, each))
        self.assertEqual(own["brokerActive"], str(name.endswith("master")).lower())
