"""One cluster of our broker and Apache's, with our name server and with Apache's."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase, java_round
from tests.interop.servers import Servers


class MixedClusterTests(JavaTestCase):
    """A stock client that knows nothing but a name server uses both brokers at once."""

    timeout = 300

    def ours(self, *settings: str) -> Servers:
        running = Servers(self.folder / "ours", "brokerName=broker-ours", *settings)
        running.start()
        self.addCleanup(running.stop)
        return running

    def use_both(self, namesrv: str) -> None:
        output = java_round(self.version, "cluster", namesrv, self.folder / "unused")
        self.assertRegex(output, r"ok \d+ checks")

    def test_apaches_broker_registers_with_our_name_server(self) -> None:
        """Our name server tells clients of both brokers."""
        namesrv = self.ours().namesrv
        self.start_apache(with_namesrv=False, namesrv_address=namesrv)
        self.use_both(namesrv)

    def test_our_broker_registers_with_apaches_name_server(self) -> None:
        """Apache's name server tells clients of both brokers."""
        namesrv = self.start_apache().namesrv_address
        self.ours(f"namesrvAddr={namesrv}")
        self.use_both(namesrv)
