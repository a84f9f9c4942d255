"""Requests of tools to a running consumer, at either broker: one program with the same checks."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase, java_program
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port


class AdminRoundTests(JavaTestCase):
    """`java/AdminRound.java`: 222, 223, 303, 307, 309, 314, 315, 317, 328, 343, 345, 353, 25."""

    def keeps(self, namesrv: str, port: int) -> None:
        output = java_program(self.version, "AdminRound", namesrv, f"127.0.0.1:{port}")
        self.assertRegex(output, r"ok \d{2,} checks")

    def test_java_admin_client_5_3_3_administers_our_broker(self) -> None:
        """Client 5.3.3 is used with our broker, and the changes are in its file."""
        running = Servers(self.folder / "ours")
        running.start()
        self.addCleanup(running.stop)
        self.keeps(running.namesrv, running.broker_port)
        saved = [path.read_text() for path in self.folder.rglob("broker.conf")]
        self.assertEqual([text for text in saved if "fileReservedTime=71\n" in text], saved)
        self.assertEqual(len(saved), 1)

    def long_apaches(self) -> None:
        """Client 5.3.3 is used with Apache's broker, which passes the same checks."""
        peer = Peer(self.folder / "peer", namesrv_port=free_port(), broker_port=free_port(),
                    heap="512m")
        self.addCleanup(peer.stop, kill=True)
        peer.start()
        self.keeps(peer.namesrv_address, peer.broker_port)
