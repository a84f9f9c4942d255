"""The address at which a slave finds its master."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.client.name_servers import Registered
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import ha
from twistmq.plugins.ha.master import MasterAddress


class MasterAddressTests(SynchronousTestCase):
    """The addresses in a slave's plugin."""

    def master(self, **settings: str) -> MasterAddress:
        box = KernelBox([("ha", ha.Plugin)], {
            "brokerRole": "SLAVE", "brokerId": "1", **settings})
        self.addCleanup(box.stop)
        self.box = box
        return box.plugin(ha.Plugin).master

    def test_name_servers_say_it(self) -> None:
        """The first master that is named counts; after it leaves, its replication port is kept."""
        master = self.master()
        self.assertEqual((master.requests, master.replication), ("", ""))
        self.box.kernel.registered([Registered(None, None, {}), Registered("m:1", "m:2", {}),
                                     Registered("n:1", "n:2", {})])
        self.assertEqual((master.requests, master.replication), ("m:1", "m:2"))
        self.box.kernel.registered([Registered(None, None, {})])
        self.assertEqual((master.requests, master.replication), ("", "m:2"))

    def test_settings_win(self) -> None:
        """Unless haMasterAddress is too short to be an address, as with Apache's broker."""
        told = [Registered("m:1", "m:2", {})]
        master = self.master(haMasterAddress="10.0.0.1:10912")
        self.assertEqual((master.requests, master.replication),
                         ("10.0.0.1:10911", "10.0.0.1:10912"))
        # The log is of another broker than name servers tell of: so are the requests.
        self.box.kernel.registered(told)
        self.assertEqual((master.requests, master.replication),
                         ("10.0.0.1:10911", "10.0.0.1:10912"))
        for same in (Registered("10.0.0.1:7", "m:2", {}),
                     Registered("m:1", "10.0.0.1:10912", {})):
            self.box.kernel.registered([same])
            self.assertEqual((master.requests, master.replication),
                             (same.master_address, "10.0.0.1:10912"))
        master = self.master(haMasterAddress="10.0.0.1:9", **{"ha.master": "10.0.0.1:5"})
        self.box.kernel.registered(told)
        self.assertEqual((master.requests, master.replication), ("10.0.0.1:5", "10.0.0.1:9"))
        master = self.master(haMasterAddress="none")
        self.box.kernel.registered(told)
        self.assertEqual(master.replication, "m:2")
