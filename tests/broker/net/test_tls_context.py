"""Certificates and keys: they are read at the start and again, and checked."""

from __future__ import annotations

from tests.broker.edge.tls_case import TlsTestCase
from tests.broker.edge.tls_peer import TlsPeer, client_context
from tests.certificates import Authority
from twistmq.broker.errors import SettingsError
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.testing.conversation import BEGIN_MS


class CertificateTests(TlsTestCase):
    """The files are read at the start and again, and checked."""

    def serial(self, server: RemotingFactory) -> tuple[TlsPeer, bytes]:
        """A new client, and the certificate it was shown."""
        peer = TlsPeer(server, client_context(self.authority.cert))
        peer.shake_hands()
        shown = peer.tls.getpeercert(binary_form=True)
        assert shown is not None
        return peer, shown

    def test_a_renewed_pair_is_shown_to_new_clients(self) -> None:
        """A renewed pair is shown to new clients; old connections go on."""
        server = self.make_server(self.own())
        old, before = self.serial(server)
        self.server_pair.replace(self.authority.pair("server-2"))
        self.check()
        _, after = self.serial(server)
        self.assertNotEqual(before, after)
        self.assertEchoes(old)
        self.assertEqual(len(self.lines("was read again")), 1)
        self.check()
        self.assertEqual(len(self.lines("was read again")), 1)

    def test_half_renewed(self) -> None:
        """Between the two writes the old pair holds; then the new one does."""
        server = self.make_server(self.own())
        _, before = self.serial(server)
        new = self.authority.pair("server-2")
        new.cert.rename(self.server_pair.cert)
        self.check()
        self.assertEqual(self.serial(server)[1], before)
        [line] = self.lines("the old ones stay in use")
        self.assertIn("is not the key of tls.server.certPath", line)
        new.key.rename(self.server_pair.key)
        self.check()
        self.assertNotEqual(self.serial(server)[1], before)

    def test_while_it_is_written(self) -> None:
        """Files are read when they have stopped to change."""
        self.make_server(self.own())
        self.server_pair.replace(self.authority.pair("server-2"))
        [task] = self.security.tasks
        task.run(BEGIN_MS)
        self.assertEqual(self.lines("was read again"), [])
        task.run(BEGIN_MS)
        self.assertEqual(len(self.lines("was read again")), 1)

    def test_a_file_that_is_gone(self) -> None:
        """A file that is missing, or is no longer a certificate, changes nothing."""
        server = self.make_server(self.own())
        self.server_pair.cert.write_text("nothing")
        self.check()
        self.server_pair.cert.unlink()
        self.check()
        self.assertEqual(len(self.lines("the old ones stay in use")), 2)
        self.assertEchoes(self.serial(server)[0])

    def test_new_authority(self) -> None:
        """A new authority is trusted for new clients."""
        trust = self.folder / "trust.pem"
        trust.write_bytes(self.authority.cert.read_bytes())
        server = self.make_server(self.own(authClient="true", trustCertPath=str(trust)))
        foreign = Authority(self.folder, "foreign")
        friend, stranger = self.authority.pair("friend"), foreign.pair("stranger")
        contexts = [client_context(self.authority.cert, (each.cert, each.key))
                    for each in (friend, stranger)]
        peer = TlsPeer(server, contexts[0])
        peer.shake_hands()
        trust.write_bytes(foreign.cert.read_bytes())
        self.check()
        self.assertEchoes(peer)
        self.assertRefused(TlsPeer(server, contexts[0]), "not trusted")
        welcome = TlsPeer(server, contexts[1])
        welcome.shake_hands()
        self.assertEchoes(welcome, 2)

    def test_an_encrypted_key(self) -> None:
        """An encrypted key, by settings or by the file; the password is in no line."""
        self.server_pair = self.authority.pair("hidden", password="open sesame")
        file = self.folder / "tls.properties"
        file.write_text("tls.server.keyPassword=open sesame\n")
        for settings in (self.own(keyPassword="open sesame"),
                         self.own() | {"tls.config.file": str(file)}):
            peer, _ = self.serial(self.make_server(settings))
            self.assertEchoes(peer)
        # The file may bring another password with another key.
        server = self.make_server(self.own() | {"tls.config.file": str(file)})
        _, before = self.serial(server)
        file.write_text("tls.server.keyPassword=open rice\n")
        self.server_pair.replace(self.authority.pair("hidden-2", password="open rice"))
        self.check()
        self.assertNotEqual(self.serial(server)[1], before)
        for password, why in (("wrong one", "keyPassword is not its password"),
                              ("", "is encrypted, and there is no tls.server.keyPassword")):
            error = self.assertRaises(SettingsError, self.make_server,
                                      self.own(keyPassword=password))
            self.assertIn(why, str(error))
            self.assertNotIn("wrong one", str(error))
        self.assertEqual(self.lines("sesame") + self.lines("open rice"), [])

    def test_what_cannot_be_used(self) -> None:
        """Each fault stops the start, and the error has the setting and the file."""
        other = self.authority.pair("other")
        absent = self.folder / "absent"
        for settings, why in [
            (self.own(certPath=str(absent)), f"tls.server.certPath: {absent}: No such file"),
            (self.own(keyPath=str(absent)), f"tls.server.keyPath: {absent}: No such file"),
            (self.own(keyPath=""), "has no PEM private key"),
            (self.own(keyPath=str(other.key)), f"{other.key} is not the key of"),
            (self.own(certPath=str(other.key)), "contains no PEM certificate"),
            (self.own(authClient="true", trustCertPath=str(absent)), "trustCertPath"),
            (self.own(keyPassword="x"), "is not encrypted, and there is a"),
            (self.own(certPath=""), "tls.server.certPath: missing"),
            ({"tls.test.mode.enable": "false"}, "tls.server.certPath: missing"),
        ]:
            error = self.assertRaises(SettingsError, self.make_server, settings)
            self.assertIn(why, str(error), msg=repr(settings))

    def test_a_servers_own_certificate_that_has_expired_is_a_warning(self) -> None:
        """A server's own certificate that has expired is a warning."""
        self.server_pair = self.authority.pair("old", begins_days=-9, ends_days=-1)
        self.clock.advance(10 * 365 * 86_400)
        self.make_server(self.own())
        [line] = self.lines("valid until")
        self.assertIn("CN=old", line)
        self.assertEqual([str(event["log_level"].name) for event in self.events
                          if "valid until" in str(event.get("log_format"))], ["warn"])
