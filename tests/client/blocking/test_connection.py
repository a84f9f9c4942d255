"""One connection without a thread: order of replies, time-outs, signatures, TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.client.scripted_server import answer, relay, scripted_server
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.command import VERSION, RemotingCommand
from twistmq.protocol.errors import RemotingConnectError, RemotingSendError, RemotingTimeout
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader
from twistmq.protocol.signature import Credentials, Signer


class ConnectionTests(SynchronousTestCase):
    """Tests with a server that a test scripts."""

    def test_replies_in_any_order(self) -> None:
        """Each request gets its own reply, in whatever order they arrive."""
        assigned: list[RemotingCommand] = []

        def script(request: RemotingCommand) -> bytes | None:
            assigned.append(request)
            if len(assigned) < 3:
                return None
            return b"".join(answer(one, one.code) for one in reversed(assigned))

        with scripted_server(script) as server, Connection(server.address) as connection:
            opaques = [connection.begin(code) for code in (71, 72, 73)]
            self.assertEqual([connection.reply(one).code for one in opaques], [71, 72, 73])

    def test_late_reply(self) -> None:
        """A late reply is dropped, and the connection stays open."""
        late: list[RemotingCommand] = []

        def script(request: RemotingCommand) -> bytes | None:
            if not late:
                late.append(request)
                return None
            return answer(late[0], 1) + answer(request, 2)

        with scripted_server(script) as server, Connection(server.address) as connection:
            self.assertRaises(RemotingTimeout, connection.request, 71, timeout_s=0.05)
            self.assertEqual(connection.request(72).code, 2)
            self.assertEqual(connection._replies, {})

    def test_answered_requests_leave_nothing_behind(self) -> None:
        """The connection itself waits, so its link keeps no deadline for a request."""
        with scripted_server(answer) as server, Connection(server.address) as connection:
            for code in (71, 72):
                connection.request(code)
            self.assertEqual(connection._link.debug_counts(),
                             {"waiting": 0, "deadline_steps": 0, "pending_bytes": 0})

    def test_a_connection_that_ends_is_an_error_of_its_own_kind(self) -> None:
        """The end of a connection has its own class of errors."""
        def script(request: RemotingCommand) -> bytes | None:
            raise ConnectionError

        with scripted_server(script) as server, Connection(server.address) as connection:
            self.assertRaises(RemotingSendError, connection.request, 71)

    def test_no_frames(self) -> None:
        """The error says that the server speaks another protocol."""
        with scripted_server(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as server, (
                Connection(server.address)) as connection:
            error = self.assertRaises(RemotingSendError, connection.request, 71)
            self.assertIn("frame length", str(error))

    def test_nobody_listens(self) -> None:
        """The error has the address and the reason."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        error = self.assertRaises(RemotingConnectError, Connection, address)
        self.assertIn(f"connect to {address} failed", str(error))
        self.assertIn("refused", str(error))

    def test_a_malformed_address_is_an_error(self) -> None:
        """The error is the same as for a connection that fails."""
        error = self.assertRaises(RemotingConnectError, Connection, "name.server")
        self.assertIn("'name.server' is not host:port", str(error))

    def test_a_signed_request_passes_the_brokers_check(self) -> None:
        """Brokers accept the signature of such a request."""
        credentials = Credentials("rocketmq2", "12345678", "token")
        with scripted_server(answer) as server, Connection(
                server.address, credentials=credentials) as connection:
            connection.request(30, GetMaxOffsetRequestHeader(topic="имя", queue_id=3), b"\xff")
        [request] = server.requests
        fields = request.fields()
        self.assertEqual(fields["topic"], "имя")
        self.assertEqual(request.version, VERSION)
        self.assertTrue(Signer("12345678").has_signed(fields, request.body, VERSION))


class TlsTests(SynchronousTestCase):
    """TLS by an SSLContext of the caller."""

    def setUp(self) -> None:
        """Create a certificate for 127.0.0.1."""
        if shutil.which("openssl") is None:
            raise SkipTest("there is no openssl to make a certificate with")
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        folder.mkdir(parents=True)
        self.key, self.certificate = folder / "key.pem", folder / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", self.key, "-out", self.certificate, "-days", "2",
             "-subj", "/CN=twistmq", "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True, capture_output=True)
        self.server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.server_side.load_cert_chain(self.certificate, self.key)

    def test_a_reply_longer_than_one_tls_record_comes_back_whole(self) -> None:
        """A reply longer than one TLS record comes back whole."""
        body = bytes(range(256)) * 1000
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        with scripted_server(lambda request: answer(request, 7, body=request.body)) as server, (
                relay(server.address, self.server_side)) as address, (
                Connection(address, tls=trusted)) as connection:
            reply = connection.request(71, None, body)
        self.assertEqual((reply.code, reply.body), (7, body))

    def test_an_untrusted_certificate_is_refused(self) -> None:
        """A connection is refused when its certificate is not trusted."""
        with scripted_server(answer) as server, relay(server.address, self.server_side) as address:
            error = self.assertRaises(RemotingConnectError, Connection, address,
                                      tls=ssl.create_default_context())
        self.assertIn(f"TLS with {address} failed", str(error))

    def test_a_server_that_wants_a_certificate_gets_the_clients(self) -> None:
        """With the certificate the request succeeds; without one the connection ends."""
        self.server_side.load_verify_locations(self.certificate)
        self.server_side.verify_mode = ssl.CERT_REQUIRED
        known, unknown = (ssl.create_default_context(cafile=str(self.certificate))
                          for _ in range(2))
        known.load_cert_chain(self.certificate, self.key)
        with scripted_server(answer) as server, relay(server.address, self.server_side) as address:
            with Connection(address, tls=known) as connection:
                self.assertEqual(connection.request(71).code, 0)

            def ask() -> None:
                with Connection(address, tls=unknown) as connection:
                    connection.request(71)

            # The server says so after the client's last word of the handshake.
            self.assertRaises((RemotingConnectError, RemotingSendError), ask)
            self.assertEqual([request.code for request in server.requests], [71])

    def test_a_certificate_of_another_host_is_refused(self) -> None:
        """A trusted certificate counts for the names in it only, unless that is switched off."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        with scripted_server(answer) as server, relay(server.address, self.server_side) as address:
            elsewhere = f"localhost:{address.rpartition(':')[2]}"
            error = self.assertRaises(RemotingConnectError, Connection, elsewhere, tls=context)
            self.assertIn(f"TLS with {elsewhere} failed", str(error))
            context.check_hostname = False
            with Connection(elsewhere, tls=context) as connection:
                self.assertEqual(connection.request(71).code, 0)

    def test_server_without_tls(self) -> None:
        """A connection to a server without TLS fails in time."""
        with scripted_server(answer) as server:
            self.assertRaises(RemotingConnectError, Connection, server.address,
                              connect_timeout_s=0.3, tls=ssl.create_default_context())
