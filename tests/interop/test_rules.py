"""Rules of consumption with Apache's client, at either broker: one program, the same checks."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase, java_program
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port


class RulesTests(JavaTestCase):
    """`java/RulesRound.java`: offsets, batches, retries, dead letters, order, sizes."""

    def keeps(self, namesrv: str, port: int, name: str) -> None:
        output = java_program(self.version, "RulesRound", namesrv, f"127.0.0.1:{port}", name)
        self.assertRegex(output, r"ok \d{3,} checks")

    def test_our_broker_obeys_the_rules_of_client_5_3_3(self) -> None:
        """Client 5.3.3 is used with our broker."""
        running = Servers(self.folder / "ours", "brokerName=broker-a")
        running.start()
        self.addCleanup(running.stop)
        self.keeps(running.namesrv, running.broker_port, "broker-a")

    def long_apaches(self) -> None:
        """The program passes the same checks with Apache's broker."""
        peer = Peer(self.folder / "peer", namesrv_port=free_port(), broker_port=free_port(),
                    heap="512m")
        self.addCleanup(peer.stop, kill=True)
        peer.start()
        self.keeps(peer.namesrv_address, peer.broker_port, "broker-peer")
