"""The account of a broker, from its setting."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.inner_credentials import inner_credentials
from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.errors import SettingsError
from twistmq.protocol.signature import Credentials


class InnerCredentialsTests(SynchronousTestCase):
    """The setting innerClientAuthenticationCredentials."""

    def read(self, text: str) -> Credentials | None:
        return inner_credentials(Settings.load(
            broker_rows(), None, {"innerClientAuthenticationCredentials": text}))

    def test_as_apaches_brokers_have_it(self) -> None:
        """Other fields are ignored; without the setting requests are not signed."""
        self.assertEqual(self.read('{"accessKey":"a","secretKey":"s","signature":""}'),
                         Credentials("a", "s"))
        self.assertIsNone(self.read(" "))

    def test_a_fault_does_not_show_the_secret(self) -> None:
        """The value is no JSON, lacks a key, or has half a character."""
        for text in ('{"accessKey":"a","secretKey":"sesame"', '{"secretKey":"sesame"}',
                     '{"accessKey":" ","secretKey":"sesame"}', '["sesame"]',
                     '{"accessKey":"a","secretKey":"sesame\\ud800"}'):
            error = self.assertRaises(SettingsError, self.read, text)
            self.assertIn("innerClientAuthenticationCredentials must be", str(error))
            self.assertNotIn("sesame", str(error))
