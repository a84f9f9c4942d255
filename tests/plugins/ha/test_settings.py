"""The settings of replication: those that are refused at the start, and the warnings."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import SettingsError
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import ha
from twistmq.plugins.ha.settings import networks, replica_notices


class SettingsTests(SynchronousTestCase):
    """A kernel with the plugin and no other one."""

    def box(self, **settings: str) -> KernelBox:
        box = KernelBox([("ha", ha.Plugin)], settings)
        self.addCleanup(box.stop)
        return box

    def test_what_has_no_meaning_is_refused(self) -> None:
        """Invalid addresses and networks, and frames that are too long for a Java slave, are
        refused.
        """
        for settings, text in (
            ({"haMasterAddress": "no-port-here"}, "is not HOST:PORT"),
            ({"haMasterAddress": "10.0.0.1:65536"}, "is not HOST:PORT"),
            ({"ha.master": "10.0.0.1"}, "is not HOST:PORT"),
            ({"ha.peers": "10.0.0.1,ten"}, "'ten'"),
            ({"haTransferBatchSize": str(4 * 1024**2 - 11)}, "is not from 1 to 4194292"),
            ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "aclEnable": "true"},
             "must name the slaves"),
            ({"ha.tls": "true", "tls.server.mode": "disabled"},
             "needs a tls.server.mode other than disabled"),
        ):
            box = self.assertRaises(SettingsError, self.checked, settings)
            self.assertIn(text, str(box))

    def checked(self, settings: dict[str, str]) -> None:
        """Make the checks of a start."""
        values = KernelBox([("ha", ha.Plugin)], {"aclEnable": "false"}).settings
        loaded = type(values).load(values.rows, overrides=settings)
        loaded.start_checks += ha.Plugin.register_setting_checks()
        loaded.check()

    def test_networks(self) -> None:
        """An address is a network of one; bits beside the mask do not matter."""
        found = networks(self.box(**{"ha.peers": "10.1.2.3/8, 127.0.0.1, ::1"}).settings)
        self.assertEqual([str(each) for each in found.networks],
                         ["10.0.0.0/8", "127.0.0.1/32", "::1/128"])

    def test_an_address_that_slaves_do_not_reach(self) -> None:
        """A master whose brokerIP2 is invalid or local logs a warning; a slave does not."""
        notices = {
            told: "".join(self.box(brokerIP1="10.0.0.1", brokerIP2=told).kernel.hooks.notices)
            for told in ("127.0.0.1", "169.254.1.2", "0.0.0.0", "10.0.0.2", "master.example")}
        self.assertIn("set brokerIP2 to the address for slaves", notices["127.0.0.1"])
        self.assertIn("brokerIP2=169.254.1.2", notices["169.254.1.2"])
        self.assertIn("not an address to connect to", notices["0.0.0.0"])
        self.assertEqual((notices["10.0.0.2"], notices["master.example"]), ("", ""))
        self.assertEqual(self.box(brokerIP1="127.0.0.1", brokerIP2="127.0.0.1")
                         .kernel.hooks.notices, [])

    def test_a_start_says_what_it_does_not_promise(self) -> None:
        """SYNC_MASTER that waits for no slave; an ACL and no slave that may connect."""
        self.assertIn("no send waits for a slave", "".join(
            self.box(brokerRole="SYNC_MASTER").kernel.hooks.notices))
        self.assertEqual(self.box(brokerRole="SYNC_MASTER", inSyncReplicas="2")
                         .kernel.hooks.notices, [])
        self.assertEqual(self.box().kernel.hooks.notices, [])
        settings = self.box().settings
        settings.put("aclEnable", True)
        self.assertIn("no slave can connect", "".join(replica_notices(settings)))
        settings.put("ha.peers", ("10.0.0.1",))
        self.assertEqual(replica_notices(settings), [])
