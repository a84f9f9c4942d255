"""Host names in settings."""

from __future__ import annotations

import socket
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.host_address import resolved
from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing.kernel import KernelBox
from twistmq.protocol.record import host_bytes

V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1%eth0", 0, 0, 2))
V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 0))


class ResolvedTests(SynchronousTestCase):
    """The address of a host name."""

    def resolve(self, text: str, answer: Any) -> str:
        """Resolve it where the system answers this, or raises it."""
        def getaddrinfo(host: str, *_: object, **__: object) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        self.patch(socket, "getaddrinfo", getaddrinfo)
        return resolved(Settings.load(broker_rows(), None, {"brokerIP1": text}), "brokerIP1")

    def test_ipv4_is_taken_where_there_is_one(self) -> None:
        """An IPv4 address is preferred, even after others; an IPv6 address has no zone."""
        self.assertEqual(self.resolve("b.example", [V6, V4]), "10.1.2.3")
        self.assertEqual(self.resolve("b.example", [V6]), "fe80::1")

    def test_an_invalid_host_names_its_setting(self) -> None:
        """The error names the setting and the reason."""
        for text, answer, why in [
            ("256.1.1.1", socket.gaierror(-2, "Name or service not known"),
             "cannot be resolved: Name or service not known"),
            ("a..b", UnicodeError("label empty"), "cannot be resolved: label empty"),
            ("", AssertionError("nobody is asked"), "is not the address or name of a host"),
        ]:
            error = self.assertRaises(SettingsError, self.resolve, text, answer)
            self.assertEqual(str(error), f"brokerIP1={text} (command line): the value {why}")

    def test_clients_get_the_name_and_records_the_address(self) -> None:
        """Clients get the name, and records contain the address."""
        self.patch(socket, "getaddrinfo", lambda *_, **__: [V4])
        box = KernelBox(settings={"brokerIP1": "b.example"})
        self.addCleanup(box.stop)
        self.assertEqual(box.kernel.broker_address, "b.example:10911")
        self.assertEqual(box.kernel.store_host, host_bytes("10.1.2.3", 10911))
