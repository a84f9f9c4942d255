"""The options of TLS from settings and their file."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.errors import SettingsError
from twistmq.broker.net.tls import tls_client
from twistmq.broker.net.tls_options import (
    KeyFiles,
    TlsClientOptions,
    tls_client_options,
    tls_enabled,
    tls_notices,
    tls_server_options,
)

CERT = {"tls.server.certPath": "/c.pem", "tls.server.keyPath": "/k.pem"}


class OptionsTestCase(SynchronousTestCase):
    """The settings of a broker."""

    def settings(self, file: str | None = None, **given: str) -> Settings:
        """Settings by the names after ``tls.``, with _ for a dot.

        :param file: what the file of TLS says; None: there is none.
        """
        overrides = {f"tls.{name.replace('_', '.')}": text for name, text in given.items()}
        if file is not None:
            path = Path(self.mktemp())  # type: ignore[no-untyped-call]
            path.write_text(file)
            overrides["tls.config.file"] = str(path)
        return boot.broker_settings(None, overrides)


class ServerTests(OptionsTestCase):
    """The options of a server."""

    def test_test_mode(self) -> None:
        """A side with its own files is not in the test mode, unless a setting says so."""
        for given, expected in [
            ({}, True), ({"server_certPath": "/c"}, False),
            ({"server_certPath": "/c", "test_mode_enable": "true"}, True),
            ({"client_certPath": "/c"}, True), ({"server_mode": "enforcing"}, True),
        ]:
            self.assertEqual(tls_server_options(self.settings(**given)).test_mode, expected,
                             msg=repr(given))

    def test_who_is_asked(self) -> None:
        """authClient asks for certificates, unless another setting says otherwise."""
        for given, ask, verify in [
            ({}, "none", False), ({"server_authClient": "true"}, "require", True),
            ({"server_authClient": "true", "server_need_client_auth": "optional"}, "optional",
             True),
            ({"server_authClient": "true", "server_need_client_auth": "none"}, "none", True),
            ({"server_need_client_auth": "require"}, "require", False),
        ]:
            options = tls_server_options(self.settings(server_certPath="/c", **given))
            self.assertEqual((options.ask, options.verify), (ask, verify), msg=repr(given))

    def test_when_it_is_read(self) -> None:
        """TLS is loaded at the start if a setting uses it."""
        for given, expected in [
            ({}, False), ({"server_mode": "enforcing"}, True), ({"server_certPath": "/c"}, True),
            ({"server_certPath": "/c", "server_mode": "disabled"}, False),
        ]:
            self.assertEqual(tls_server_options(self.settings(**given)).is_configured, expected,
                             msg=repr(given))


class FileTests(OptionsTestCase):
    """The setting tls.config.file."""

    def test_file_values_hold_where_nothing_else_is_set(self) -> None:
        """A value of the file is used if no other source has the setting."""
        settings = self.settings(
            "tls.server.certPath=/of-file\ntls.server.keyPath = /k\ntls.server.keyPassword=p\n"
            "tls.server.authClient=TRUE\ntls.server.mode=enforcing\ntls.enable=true\n"
            "tls.client.authServer=true\nbrokerName=other\n", server_keyPath="/set")
        options = tls_server_options(settings)
        self.assertEqual(options.files, KeyFiles("tls.server", "/of-file", "/set", "p", ""))
        self.assertEqual((options.mode, options.test_mode, options.ask),
                         ("permissive", False, "require"))
        self.assertFalse(tls_enabled(settings))
        self.assertEqual(tls_client_options(settings),
                         TlsClientOptions(True, False, KeyFiles("tls.client")))
        self.assertEqual(settings.text("brokerName"), boot.broker_settings(None, {}).text(
            "brokerName"))

    def test_a_file_that_was_named_must_be_there(self) -> None:
        """A file that was named must be there, and its values must have a meaning."""
        error = self.assertRaises(SettingsError, tls_server_options,
                                  boot.broker_settings(None, {"tls.config.file": "/not/there"}))
        self.assertIn("tls.config.file=/not/there", str(error))
        error = self.assertRaises(SettingsError, tls_server_options,
                                  self.settings("#\ntls.server.authClient=perhaps\n"))
        self.assertRegex(str(error), r"tls.server.authClient=perhaps \(.*:2\): the value is not")


class ClientTests(OptionsTestCase):
    """The options of a client."""

    def test_client_tls_follows_its_setting_then_the_servers_mode(self) -> None:
        """A setting decides, or else whether the server enforces TLS."""
        for given, expected in [
            ({}, False), ({"enable": "true"}, True), ({"server_mode": "enforcing"}, True),
            ({"server_mode": "enforcing", "enable": "false"}, False),
        ]:
            settings = self.settings(**given)
            self.assertEqual(tls_enabled(settings), expected, msg=repr(given))
            self.assertEqual(tls_client(MemoryReactorClock(), settings) is not None, expected,
                             msg=repr(given))

    def test_peers_are_not_checked_in_test_mode(self) -> None:
        """No peer is checked in the test mode; the host is checked only on request."""
        for given, verify, host in [
            ({}, False, False), ({"client_authServer": "true"}, True, False),
            ({"client_authServer": "true", "test_mode_enable": "true"}, False, False),
            ({"client_authServer": "true", "client_host_check": "true"}, True, True),
            ({"client_certPath": "/c", "client_host_check": "true"}, False, False),
        ]:
            overrides = {name.replace("host_check", "host-check"): text
                         for name, text in given.items()}
            settings = boot.broker_settings(None, {
                f"tls.{name.replace('_', '.').replace('-', '_')}": text
                for name, text in overrides.items()})
            options = tls_client_options(settings)
            self.assertEqual((options.verify, options.check_host), (verify, host),
                             msg=repr(given))


class ShownTests(OptionsTestCase):
    """The texts about the options."""

    def test_settings_without_effect_are_noticed(self) -> None:
        """A notice names settings that have no effect."""
        for given, part in [
            ({"test_mode_enable": "true"}, "tls.server.certPath, tls.server.keyPath are ignored"),
            ({"server_authClient": "true", "server_need_client_auth": "none"}, "has no effect"),
            ({"server_need_client_auth": "require"}, "accepts any certificate"),
            ({"server_authClient": "true"}, "permissive accepts clients without TLS"),
        ]:
            found = boot.notices("broker", self.settings(
                server_certPath="/c", server_keyPath="/k", **given))
            self.assertEqual(len([line for line in found if part in line]), 1, msg=repr(given))
        [line] = tls_notices(self.settings(server_mode="enforcing"))
        self.assertIn("clients cannot verify", line)
        for quiet in ({}, {"server_certPath": "/c"}, {"server_mode": "disabled"}):
            self.assertEqual(tls_notices(self.settings(**quiet)), [])

    def test_the_password_is_in_no_text_and_no_repr(self) -> None:
        """The password is in no text of the settings, and in no repr."""
        settings = self.settings(server_keyPassword="open sesame", server_certPath="/c")
        self.assertIn("tls.server.keyPassword=******\n", settings.format())
        self.assertIn("tls.client.keyPassword=\n", settings.format())
        self.assertNotIn("sesame", repr(settings.items()) + repr(tls_server_options(settings)))
        self.assertEqual(tls_server_options(settings).files.password, "open sesame")

    def test_no_tool_may_change_it(self) -> None:
        """A tool's change of one of them refuses the whole request."""
        settings = self.settings()
        error = self.assertRaises(SettingsError, settings.update,
                                  {"brokerPermission": "4", "tls.server.mode": "disabled"})
        self.assertIn("tls.server.mode: it is read at the start", str(error))
        self.assertEqual(settings.int("brokerPermission"), 6)
