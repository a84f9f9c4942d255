"""The address that clients get, in networks where it may be wrong."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from tests.tools.doctor.test_host_checks import GOOD
from twistmq.broker.config.setting_rows import local_address
from twistmq.broker.edge import boot
from twistmq.tools.doctor.findings import Finding, Level
from twistmq.tools.doctor.network_checks import network_findings


class AddressTests(SynchronousTestCase):
    """The findings about brokerIP1."""

    def address(self, *, is_container: bool = False, kind: str = "broker",
                **settings: str) -> Finding:
        given = {"listenPort": "0", **settings}
        found = (boot.broker_settings(None, given) if kind == "broker"
                 else boot.up_settings("/nowhere", None, {**given, "namesrv.port": "0"}))
        host = replace(GOOD, is_container=is_container)
        [finding] = [each for each in network_findings(kind, found, host, running=False)
                     if each.check == "address"]
        return finding

    def test_of_this_host(self) -> None:
        """Without a setting the broker uses the address from which packets leave."""
        own = local_address()
        if own == "127.0.0.1":
            self.assertIs(self.address().level, Level.BROKEN)
            return
        self.assertEqual(self.address().level, Level.OK)
        self.assertIn(own, self.address().text)

    def test_an_address_for_this_host_only_is_fine_under_up(self) -> None:
        """The address is meant for this host only."""
        self.assertIs(self.address(kind="up").level, Level.OK)
        self.assertIs(self.address(kind="up", bindAddress="0.0.0.0").level, Level.BROKEN)

    def test_loopback_and_name_servers_elsewhere(self) -> None:
        """The clients of those name servers are on other hosts."""
        finding = self.address(bindAddress="127.0.0.1", brokerIP1="localhost",
                               namesrvAddr="192.0.2.1:9876")
        self.assertIs(finding.level, Level.BROKEN)
        self.assertIn("from name servers on other hosts", finding.text)

    def test_behind_another_address(self) -> None:
        """An address that is not this host's may be NAT's."""
        finding = self.address(brokerIP1="192.0.2.1")
        self.assertIs(finding.level, Level.WARN)
        self.assertIn("NAT", finding.mend)

    def test_link_local(self) -> None:
        """A host without a network gives itself such an address."""
        self.assertIs(self.address(brokerIP1="169.254.1.2").level, Level.BROKEN)

    def test_listens_elsewhere(self) -> None:
        """Clients would use an address at which no server listens."""
        finding = self.address(bindAddress="127.0.0.1", brokerIP1="192.0.2.1")
        self.assertIs(finding.level, Level.BROKEN)
        self.assertIn("bindAddress=127.0.0.1 only", finding.text)

    def test_its_own_address_is_reached_inside_its_network_only(self) -> None:
        """The address is reachable only in its network, unless another one is configured."""
        if local_address() == "127.0.0.1":
            return
        finding = self.address(is_container=True)
        self.assertIs(finding.level, Level.WARN)
        self.assertIn("container's own address", finding.text)
        self.assertIs(self.address(is_container=True, brokerIP1=local_address()).level, Level.OK)
