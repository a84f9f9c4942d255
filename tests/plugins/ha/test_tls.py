"""A pair whose connection is encrypted."""

from __future__ import annotations

import socket

from tests.certificates import Authority
from tests.plugins.ha.test_pair import PairCase, wait_until


class TlsTests(PairCase):
    """The setting ``ha.tls``."""

    def setUp(self) -> None:
        super().setUp()
        self.folder.mkdir()
        self.authority = Authority(self.folder)
        pair = self.authority.pair("broker")
        self.master_files = {
            "ha.tls": "true", "tls.server.certPath": str(pair.cert),
            "tls.server.keyPath": str(pair.key)}
        self.slave_files = {
            "ha.tls": "true", "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(self.authority.cert)}

    def test_a_slave_has_what_its_master_has(self) -> None:
        """It has the messages from before its connection, and each one that waits for it."""
        self.start_master(brokerRole="SYNC_MASTER", inSyncReplicas="2", slaveTimeout="20000",
                          **self.master_files)
        slave = self.slave(**self.slave_files)
        wait_until(lambda: self.plugin().slaves.links, "the slave is there")
        self.send(600)
        self.caught_up(slave)
        # A large backlog goes out as fast as the connection takes it.
        with self.master.client() as client:
            for _ in range(200):
                client.send("T", bytes(29_000))
        self.caught_up(slave)
        self.assertGreater(self.end, 5 * 2**20)

    def test_a_backlog_of_many_pieces(self) -> None:
        """A slave that connects later gets more bytes than a transport can hold."""
        self.start_master(**self.master_files)
        with self.master.client() as client:
            for _ in range(200):
                client.send("T", bytes(29_000))
        self.caught_up(self.slave(**self.slave_files))

    def test_a_slave_without_tls_gets_nothing(self) -> None:
        """A stranger gets nothing either; the log of the master names the addresses of both."""
        self.start_master(**self.master_files)
        self.send(10)
        slave = self.slave()
        wait_until(lambda: "is lost" in slave.plugin.follower.fault, "the slave says so")
        self.assertEqual((slave.end, self.plugin().slaves.links), (0, []))
        port = self.master.kernel.identity.ha_port
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.sendall(bytes(8))
            said = b""
            while data := client.recv(1000):
                said += data
        self.assertNotIn(b"x" * 100, said)

    def test_a_slave_that_does_not_trust_its_master(self) -> None:
        """It logs the reason, and gets no byte."""
        self.start_master(**self.master_files)
        self.send(10)
        other = Authority(self.folder, "other")
        slave = self.slave(**{**self.slave_files, "tls.client.trustCertPath": str(other.cert)})
        wait_until(lambda: "its issuer is not trusted" in slave.plugin.follower.fault,
                   "the slave says so")
        self.assertEqual(slave.end, 0)

    def test_a_master_that_asks_for_certificates(self) -> None:
        """A slave with a trusted certificate may connect; one without gets nothing."""
        self.start_master(**self.master_files, **{
            "tls.server.authClient": "true", "tls.server.trustCertPath": str(self.authority.cert)})
        self.send(10)
        nameless = self.slave(**self.slave_files)
        wait_until(lambda: "TLS: " in nameless.plugin.follower.fault, "the slave says so")
        pair = self.authority.pair("slave")
        self.caught_up(self.slave(2, **self.slave_files, **{
            "tls.client.certPath": str(pair.cert), "tls.client.keyPath": str(pair.key)}))
        self.assertEqual(nameless.end, 0)

    def test_a_slave_that_expects_tls(self) -> None:
        """It does not follow a master without TLS."""
        self.start_master()
        self.send(10)
        slave = self.slave(**self.slave_files)
        wait_until(lambda: "closed during the handshake" in slave.plugin.follower.fault,
                   "the slave says so")
        self.assertEqual(slave.end, 0)
