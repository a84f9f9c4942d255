"""Java clients ask and answer through either broker: the same program with the same checks."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase, java_missing, java_program
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port


class RequestTests(JavaTestCase):
    """`java/RequestRound.java`, by client and broker."""

    timeout = 300

    def ours(self) -> str:
        """Start our broker; the name server."""
        running = Servers(self.folder / "ours")
        running.start()
        self.addCleanup(running.stop)
        return running.namesrv

    def apache(self) -> str:
        """Start Apache's; the name server."""
        peer = Peer(self.folder / "peer", namesrv_port=free_port(), broker_port=free_port(),
                    heap="512m")
        self.addCleanup(peer.stop, kill=True)
        peer.start()
        return peer.namesrv_address

    def asks(self, version: str, namesrv: str) -> None:
        reason = java_missing(version)
        if reason:
            self.skipTest(reason)
        wait = "waits" if version == "5.4.0" else "early"
        output = java_program(version, "RequestRound", namesrv, "DefaultCluster", wait)
        self.assertRegex(output, r"ok \d{3,} checks")

    def test_client_5(self) -> None:
        """Client 5.3.3 with our broker."""
        self.asks("5.3.3", self.ours())

    def test_client_4(self) -> None:
        """Client 4.9.4 with our broker."""
        self.asks("4.9.4", self.ours())

    def test_client_that_waits(self) -> None:
        """Client 5.4.0, whose sync questions wait for the answer, with our broker."""
        self.asks("5.4.0", self.ours())

    def long_all_with_apache(self) -> None:
        """The clients with Apache's broker: what the checks say is what it does."""
        namesrv = self.apache()
        for version in ("5.3.3", "4.9.4", "5.4.0"):
            self.asks(version, namesrv)
