"""Apache's clients with TLS: each mode of the servers, checks on both sides, a new certificate.

`java/TlsMember.java` sends and consumes with the properties that broker/TLS.md gives for it. The Go
client speaks no TLS (2.1.2, its issue 950): `go_tls` carries its connections with Go's own stack.
"""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SkipTest

from tests.certificates import Authority, Pair
from tests.interop import clients
from tests.interop.clients import JavaTestCase
from tests.interop.java_process import JavaProcess
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port, wait_until
from twistmq.broker.net.tls_options import KeyFiles, TlsClientOptions
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.codes import RequestCode
from twistmq.tools.client_tls import ssl_context

TOPIC: Final = "ByTls"
#: Messages that show that it works; a new topic has four queues.
ENOUGH: Final = 20
PAGE: Final = Path(__file__).resolve().parents[2] / "broker" / "TLS.md"


class TlsTestCase(JavaTestCase):
    """Servers with a certificate, and Java clients of them."""

    def setUp(self) -> None:
        super().setUp()
        self.authority = Authority(self.folder)
        self.own = self.authority.pair("server")
        self._clients = 0

    def serve(self, mode: str, *settings: str) -> Servers:
        servers = Servers(self.folder / mode, f"tls.server.mode={mode}", *settings)
        self.addCleanup(servers.stop)
        servers.start()
        return servers

    def own_settings(self) -> list[str]:
        return [f"tls.server.certPath={self.own.cert}", f"tls.server.keyPath={self.own.key}"]

    def mutual(self, *settings: str) -> Servers:
        """Servers that enforce it, and check their clients."""
        broker = self.authority.pair("broker")
        return self.serve(
            "enforcing", *self.own_settings(), "tls.server.authClient=true",
            f"tls.server.trustCertPath={self.authority.cert}", "tls.client.authServer=true",
            f"tls.client.trustCertPath={self.authority.cert}",
            f"tls.client.certPath={broker.cert}", f"tls.client.keyPath={broker.key}",
            *settings)

    def client(self, servers: Servers, *properties: str) -> JavaProcess:
        self._clients += 1
        process = JavaProcess(self.version, "TlsMember", servers.namesrv, TOPIC,
                              f"tls-{self._clients}", properties=properties)
        self.addCleanup(process.close)
        return process

    def with_certificate(self, name: str, authority: Authority | None = None) -> list[str]:
        """Return a client's properties as on the page."""
        pair = (authority or self.authority).pair(name)
        files = {"authority.pem": self.authority.cert, "client.pem": pair.cert,
                 "client.key": pair.key}
        found = re.findall(r"^-D(tls\.\S+?)=(\S+)", PAGE.read_text(), re.MULTILINE)
        self.assertIn(("tls.enable", "true"), found)
        return [f"{key}={files.get(value, value)}" for key, value in found]

    def assertWorks(self, client: JavaProcess) -> None:
        client.wait_for("consumed", ENOUGH)
        self.assertEqual(client.told("failed"), [])

    def assertRefused(self, client: JavaProcess) -> None:
        wait_until("it is refused", lambda: client.told("refused"))
        self.assertEqual(client.told("sent"), [])

    def assertNoBug(self, servers: Servers) -> None:
        log = servers.log()
        for mark in ("Traceback", "#critical", "PRIVATE KEY"):
            self.assertNotIn(mark, log)


class PermissiveTests(TlsTestCase):
    """The default mode."""

    def test_both_kinds(self) -> None:
        """Without any settings clients may use TLS or not."""
        servers = self.serve("permissive")
        clients = [self.client(servers, "tls.enable=true"), self.client(servers)]
        for client in clients:
            self.assertWorks(client)
        self.assertIn("TLS in test mode", servers.log())
        self.assertNoBug(servers)


class DisabledTests(TlsTestCase):
    """The mode without TLS."""

    def test_a_tls_client_of_a_plain_port_is_refused_and_logged(self) -> None:
        """A client with TLS fails, and the log has the reason."""
        servers = self.serve("disabled", *self.own_settings())
        self.assertRefused(self.client(servers, "tls.enable=true"))
        self.assertIn("it speaks TLS, which is not enabled", servers.log())
        self.assertNoBug(servers)


class EnforcingTests(TlsTestCase):
    """Only TLS is accepted, with checks on both sides."""

    def test_who_is_let_in(self) -> None:
        """A client with a certificate of the authority is admitted; strangers are not."""
        servers = self.mutual()
        friend = self.client(servers, *self.with_certificate("friend"))
        others = [
            self.client(servers, *self.with_certificate("stranger",
                                                        Authority(self.folder, "foreign"))),
            self.client(servers, "tls.enable=true")]
        self.assertWorks(friend)
        for other in others:
            self.assertRefused(other)
        log = servers.log()
        self.assertIn("did not return a certificate", log)
        self.assertIn("TLS: its certificate CN=stranger is refused", log)
        self.assertNoBug(servers)

    def test_renewed_during_traffic(self) -> None:
        """Sends and consumption continue, and new clients are admitted."""
        servers = self.mutual()
        client = self.client(servers, *self.with_certificate("friend"))
        self.assertWorks(client)
        self.own.replace(self.authority.pair("server-2"))
        wait_until("both servers read it again",
                   lambda: servers.log().count("CN=server-2 of") >= 2)
        client.wait_for("consumed", len(client.told("consumed")) + ENOUGH)
        later = self.client(servers, *self.with_certificate("later"))
        self.assertWorks(later)
        for each in (client, later):
            each.leave()
            self.assertEqual(each.told("failed"), [])
        self.assertNoBug(servers)


class GoTests(TlsTestCase):
    """The Go client."""

    def carry(self, servers: Servers, pair: Pair) -> list[str]:
        """Relay connections to 127.0.0.2 to the servers; :returns: the lines about failures."""
        ports = servers.namesrv.rpartition(":")[2], servers.broker_port
        process = subprocess.Popen(
            [clients.go_program("go_tls"), "-authority", self.authority.cert,
             "-certificate", pair.cert, "-key", pair.key,
             *(f"127.0.0.2:{port}=127.0.0.1:{port}" for port in ports)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, 10)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "ready\n")
        failed: list[str] = []
        threading.Thread(target=failed.extend, args=[process.stdout], daemon=True).start()
        return failed

    def test_the_go_client_works_with_enforced_and_mutual_tls(self) -> None:
        """It sends and consumes with servers that enforce TLS and check certificates."""
        reason = clients.go_missing()
        if reason:
            raise SkipTest(reason)
        # What clients are told: there the connections are carried from.
        servers = self.mutual("brokerIP1=127.0.0.2")
        failed = self.carry(servers, self.authority.pair("gopher"))
        port = servers.namesrv.rpartition(":")[2]
        self.assertRegex(clients.go_round(f"127.0.0.2:{port}"), r"ok \d{3,} checks")
        self.assertEqual(failed, [])
        self.assertNoBug(servers)


class ApacheTests(TlsTestCase):
    """Apache's servers with TLS."""

    def test_name_server(self) -> None:
        """Our broker registers with one that lets in its authority's clients only."""
        settings = [*self.own_settings(), "tls.server.authClient=true",
                    "tls.server.need.client.auth=require", "tls.test.mode.enable=false",
                    f"tls.server.trustCertPath={self.authority.cert}"]
        port = free_port()
        peer = Peer(self.folder / "apache", namesrv_port=port, heap="128m", properties=dict(
            each.split("=", 1) for each in ["tls.server.mode=enforcing", *settings]))
        self.addCleanup(peer.stop, kill=True)
        peer.start_namesrv()
        servers = self.mutual(f"namesrvAddr=127.0.0.1:{port}")
        self.assertNotIn("does not know this broker", servers.log())
        pair = self.authority.pair("tool")
        context = ssl_context(TlsClientOptions(True, True, KeyFiles(
            "tls.client", str(pair.cert), str(pair.key), "", str(self.authority.cert))))
        with Connection(f"127.0.0.1:{port}", tls=context) as connection:
            reply = connection.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        self.assertIn(f":{servers.broker_port}".encode(), reply.body)
