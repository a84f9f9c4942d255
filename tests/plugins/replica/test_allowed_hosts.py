"""The hosts that may connect to a port of replication."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import Settings
from twistmq.broker.errors import SettingsError
from twistmq.plugins.ha.settings import PEERS, SETTINGS
from twistmq.plugins.replica.allowed_hosts import AllowedHosts


class AllowedHostsTests(SynchronousTestCase):
    """Lists of addresses and networks."""

    def hosts(self, text: str) -> AllowedHosts:
        """Return the list in a setting."""
        settings = Settings(SETTINGS)
        settings.put(PEERS, tuple(text.split(", ")) if text else ())
        return AllowedHosts.read(settings, PEERS)

    def test_an_empty_list_allows_every_host(self) -> None:
        """Names of hosts are allowed as well."""
        for host in ("10.0.0.1", "::1", "a-host"):
            self.assertTrue(self.hosts("").allows_host(host))

    def test_addresses_and_networks(self) -> None:
        """An IPv4 address may arrive as a mapped IPv6 address."""
        hosts = self.hosts("10.1.0.0/16, 127.0.0.1, fd00::/8")
        for host in ("10.1.2.3", "::ffff:10.1.2.3", "127.0.0.1", "fd00::1"):
            self.assertTrue(hosts.allows_host(host), msg=host)
        for host in ("10.2.0.1", "127.0.0.2", "::1", "a-host", ""):
            self.assertFalse(hosts.allows_host(host), msg=host)

    def test_a_text_that_is_neither(self) -> None:
        """The error names the setting and the text."""
        error = self.assertRaises(SettingsError, self.hosts, "10.0.0.1, a-host")
        self.assertIn(PEERS, str(error))
        self.assertIn("'a-host'", str(error))
