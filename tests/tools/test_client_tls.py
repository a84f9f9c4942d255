"""TLS for the client without a reactor: the files that it accepts, and its errors for others."""

from __future__ import annotations

import ssl
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.certificates import Authority
from twistmq.broker.errors import SettingsError
from twistmq.broker.net.tls_options import KeyFiles, TlsClientOptions
from twistmq.tools.client_tls import ssl_context


class ContextTests(SynchronousTestCase):
    """The function ssl_context."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.authority = Authority(self.folder)

    def context(self, verify: bool = True, host: bool = False, **files: str) -> ssl.SSLContext:
        return ssl_context(TlsClientOptions(verify, host, KeyFiles("tls.client", **files)))

    def test_verification_follows_the_options(self) -> None:
        """The context checks what the options ask for."""
        trust = str(self.authority.cert)
        for verify, host, mode in [
            (True, True, ssl.CERT_REQUIRED), (True, False, ssl.CERT_REQUIRED),
            (False, False, ssl.CERT_NONE),
        ]:
            context = self.context(verify, host, trust=trust)
            self.assertEqual((context.verify_mode, context.check_hostname), (mode, host))
        self.assertEqual(len(context.get_ca_certs()), 1)

    def test_an_encrypted_key_opens_with_its_password(self) -> None:
        """An encrypted key opens with its password; a fault names setting and file alone."""
        pair = self.authority.pair("me", password="open sesame")
        files = {"cert": str(pair.cert), "key": str(pair.key)}
        self.context(**files, password="open sesame")
        for more in ({"password": "wrong word"}, {}):
            error = self.assertRaises(SettingsError, self.context, **files, **more)
            self.assertIn(f"tls.client.certPath: {pair.cert} with its key", str(error))
            self.assertNotIn("wrong word", str(error))
        for name, setting in (("trust", "trustCertPath"), ("cert", "certPath")):
            error = self.assertRaises(SettingsError, self.context, **{name: "/not/there"})
            self.assertIn(f"tls.client.{setting}: /not/there", str(error))
