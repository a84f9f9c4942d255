"""TLS on a port: its modes, failed handshakes, and the time when it is loaded."""

from __future__ import annotations

import contextlib
import ssl
import sys
from unittest import mock

from tests.broker.edge.tls_case import FRAME, HELLO, TlsTestCase
from tests.broker.edge.tls_peer import TlsPeer, client_context
from tests.certificates import Authority
from twistmq.broker.constants import TLS_HANDSHAKE_SECONDS
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing.conversation import Conversation
from twistmq.protocol.log_rate import LINES_A_MINUTE


class ModeTests(TlsTestCase):
    """The clients that a mode admits."""

    def test_both_kinds_come_by_one_port(self) -> None:
        """One port serves clients with and without TLS, without any setting."""
        server = self.make_server()
        peer = TlsPeer(server)
        peer.shake_hands()
        self.assertEchoes(peer)
        plain = Conversation(server)
        plain.says(FRAME)
        self.assertEqual(plain.hears(), [(1, 0)])

    def test_a_client_without_tls_is_closed_and_logged(self) -> None:
        """A client without TLS is disconnected at its first byte, and logged."""
        server = self.make_server(self.own() | {"tls.server.mode": "enforcing"})
        peer = TlsPeer(server, client_context(self.authority.cert))
        peer.shake_hands()
        self.assertEchoes(peer)
        plain = Conversation(server)
        plain.says(FRAME[:1])
        self.assertTrue(plain.is_closed)
        self.assertEqual(plain.connection.received, b"")
        self.assertEqual(len(self.lines("does not speak TLS, which tls.server.mode=enf")), 1)

    def test_tls_is_closed(self) -> None:
        """Clients with TLS are disconnected, and the others are served."""
        server = self.make_server(self.own() | {"tls.server.mode": "disabled"})
        peer = Conversation(server)
        peer.says(HELLO)
        self.assertTrue(peer.is_closed)
        self.assertEqual(len(self.lines("it speaks TLS, which is not enabled")), 1)
        plain = Conversation(server)
        plain.says(FRAME)
        self.assertEqual(plain.hears(), [(1, 0)])
        behind_proxy = Conversation(server)
        behind_proxy.says(b"PROXY TCP4 192.0.2.7 10.0.0.1 555 1\r\n", FRAME)
        self.assertEqual(behind_proxy.hears(), [(1, 0)])
        self.assertEqual(behind_proxy.protocol.remote_address, "192.0.2.7:555")

    def test_behind_a_proxy(self) -> None:
        """The PROXY header comes before TLS and contains the address of the client."""
        peer = TlsPeer(self.make_server(), first=b"PROXY TCP4 192.0.2.7 10.0.0.1 555 1\r\n")
        peer.shake_hands()
        self.assertEchoes(peer)
        self.assertEqual(peer.conversation.protocol.remote_address, "192.0.2.7:555")

    def test_tls_1_2_and_1_3_are_spoken(self) -> None:
        """TLS 1.2 and 1.3 are accepted; older versions are refused."""
        server = self.make_server()
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            peer = TlsPeer(server, client_context(version=version))
            peer.shake_hands()
            self.assertEchoes(peer)
            self.assertEqual(peer.tls.version(), version.name.replace("_", "."))


class RefusedTests(TlsTestCase):
    """Failed handshakes cause one line without a traceback, and leave nothing behind."""

    def setUp(self) -> None:
        super().setUp()
        self.mutual = self.own(authClient="true", trustCertPath=str(self.authority.cert))

    def tearDown(self) -> None:
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def peer_with(self, name: str, authority: Authority | None = None, **valid: float) -> TlsPeer:
        pair = (authority or self.authority).pair(name, **valid)  # type: ignore[arg-type]
        return TlsPeer(self.make_server(self.mutual),
                       client_context(self.authority.cert, (pair.cert, pair.key)))

    def test_client_with_a_certificate(self) -> None:
        """A client with a certificate of the authority is admitted."""
        peer = self.peer_with("friend")
        peer.shake_hands()
        self.assertEchoes(peer)

    def test_no_certificate(self) -> None:
        """The setting authClient alone asks for a certificate."""
        peer = TlsPeer(self.make_server(self.mutual), client_context(self.authority.cert))
        self.assertRefused(peer, "did not return a certificate")

    def test_an_expired_certificate_is_refused(self) -> None:
        self.assertRefused(self.peer_with("late", begins_days=-9, ends_days=-1),
                           "certificate CN=late is refused: it has expired")

    def test_not_valid_yet(self) -> None:
        self.assertRefused(self.peer_with("early", begins_days=1, ends_days=9),
                           "certificate CN=early is refused: it is not valid yet")

    def test_a_certificate_of_an_unknown_authority_is_refused(self) -> None:
        foreign = Authority(self.folder, "foreign")
        self.assertRefused(self.peer_with("stranger", foreign),
                           "certificate CN=stranger is refused: its issuer is not trusted")

    def test_a_missing_certificate_passes_and_a_foreign_one_does_not(self) -> None:
        """A client without a certificate is admitted, and one with a foreign one is not."""
        self.mutual["tls.server.need.client.auth"] = "optional"
        peer = TlsPeer(self.make_server(self.mutual), client_context(self.authority.cert))
        peer.shake_hands()
        self.assertEchoes(peer)
        foreign = Authority(self.folder, "foreign")
        self.assertRefused(self.peer_with("stranger", foreign), "its issuer is not trusted")

    def test_any_certificate(self) -> None:
        """need.client.auth=require without authClient lets in whoever has any."""
        self.mutual = self.own(**{"need.client.auth": "require"})
        peer = self.peer_with("stranger", Authority(self.folder, "foreign"))
        peer.shake_hands()
        self.assertEchoes(peer)
        self.assertRefused(TlsPeer(self.make_server(self.mutual)), "did not return a certificate")

    def test_client_that_does_not_trust(self) -> None:
        """Its alert is in the log line."""
        foreign = Authority(self.folder, "foreign")
        peer = TlsPeer(self.make_server(self.own()), client_context(foreign.cert))
        self.assertRefused(peer, "alert unknown ca")

    def test_garbage_after_a_tls_first_byte_is_refused(self) -> None:
        """Bytes that begin as TLS and are invalid are refused."""
        server = self.make_server()
        for data in (HELLO + bytes(512), b"\x16" * 600, b"\x16\x03\x03\xff\xff" + bytes(70_000),
                     b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03" * 9):
            before = len(self.lines("closed: TLS"))
            client = Conversation(server)
            client.says(data)
            self.assertTrue(client.is_closed, msg=repr(data[:9]))
            self.assertEqual(len(self.lines("closed: TLS")), before + 1)
        peer = TlsPeer(server)
        peer.shake_hands()
        self.assertEchoes(peer)
        peer.conversation.says(b"\x17\x03\x03\x00\x20" + bytes(32))
        self.assertTrue(peer.is_closed)
        self.assertEqual(self.batches, [1])

    def test_half_open(self) -> None:
        """A handshake that does not continue ends in time, even if single bytes arrive."""
        server = self.make_server()
        for cut in (0, 1):
            peer = TlsPeer(server, cut=cut)
            try:
                peer.tls.do_handshake()
            except ssl.SSLWantReadError:
                hello = peer._to_server.read()
            if cut:
                for at in range(9):
                    peer.conversation.says(hello[at:at + 1])
                    self.clock.advance(TLS_HANDSHAKE_SECONDS / 10)
            else:
                peer.conversation.says(hello)
            self.clock.advance(TLS_HANDSHAKE_SECONDS - 0.1 if not cut else 0.1)
            self.assertFalse(peer.is_closed)
            self.clock.advance(TLS_HANDSHAKE_SECONDS)
            self.assertTrue(peer.is_closed)
        self.assertEqual(len(self.lines("the handshake takes too long")), 2)

    def test_a_client_that_leaves_within_the_handshake_is_not_logged(self) -> None:
        """A client that disconnects during a handshake is not logged."""
        client = Conversation(self.make_server())
        client.says(HELLO)
        client.connection.drop()
        self.assertEqual(self.lines("TLS: "), [])

    def test_a_flood_of_handshakes_is_logged_at_a_rate(self) -> None:
        """A few lines are written, and then the number of the omitted ones."""
        server = self.make_server()
        for _ in range(3 * LINES_A_MINUTE):
            Conversation(server).says(HELLO + bytes(600))
        self.assertEqual(len(self.lines("closed: TLS")), LINES_A_MINUTE)
        self.clock.advance(60)
        Conversation(server).says(HELLO + bytes(600))
        self.assertIn(f"({2 * LINES_A_MINUTE} similar lines were left out)",
                      self.lines("closed: TLS")[-1])

    def test_tls_1_2_clients_cannot_make_the_server_shake_hands_again(self) -> None:
        """TLS 1.2 clients cannot make the server shake hands again and again."""
        from OpenSSL import SSL

        server = self.make_server()
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        client, conversation = SSL.Connection(context), Conversation(server)
        client.set_connect_state()
        connection = conversation.connection

        def exchange() -> None:
            for _ in range(6):
                with contextlib.suppress(SSL.WantReadError):
                    client.do_handshake()
                with contextlib.suppress(SSL.WantReadError):
                    conversation.says(client.bio_read(1 << 16))
                data, connection.received = connection.received, b""
                if data:
                    client.bio_write(data)

        exchange()
        client.send(FRAME)
        conversation.says(client.bio_read(1 << 16))
        self.assertEqual(self.batches, [1])
        connection.received = b""
        self.assertTrue(client.renegotiate())
        before = client.total_renegotiations()
        self.assertRaises(SSL.Error, exchange)
        self.assertLessEqual(client.total_renegotiations(), before + 1)


class LazyTests(TlsTestCase):
    """The modules of TLS are loaded when they are needed."""

    def setUp(self) -> None:
        super().setUp()
        self.later = []

    def test_first_clients_wait(self) -> None:
        """The first clients are not read until TLS is loaded; then all are served."""
        server = self.make_server()
        peers = [TlsPeer(server) for _ in range(3)]
        for peer in peers:
            with self.assertRaises(ssl.SSLWantReadError):
                peer.tls.do_handshake()
            peer.flush()
            self.assertFalse(peer.conversation.connection.is_reading)
        peers[2].conversation.connection.drop()
        assert self.later is not None
        [(work, done)] = self.later
        done.callback(work())
        for peer in peers[:2]:
            peer.shake_hands()
            self.assertEchoes(peer)
        self.assertEqual(len(self.later), 1)

    def test_packages_are_missing(self) -> None:
        """In the permissive mode a client with TLS is disconnected; the line names the packages."""
        with mock.patch.dict(sys.modules, {"twistmq.broker.net.tls_context": None}):
            server = self.make_server()
            client = Conversation(server)
            client.says(HELLO)
            assert self.later is not None
            [(work, done)] = self.later
            error = self.assertRaises(SettingsError, work)
            done.errback(error)
            client.connection.pump()
            self.assertTrue(client.is_closed)
            self.assertIn("pip install 'twistmq[tls]'", self.lines("it speaks TLS")[0])
            for settings in (self.own(), {"tls.server.mode": "enforcing"}):
                error = self.assertRaises(SettingsError, self.make_server, settings)
                self.assertIn("pip install 'twistmq[tls]'", str(error))
