"""The URL and the transport options."""

from __future__ import annotations

import ssl
from typing import Any

import kombu
from kombu.exceptions import ChannelError
from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.celery.options import Options, client_options, options_of


class OptionTests(SynchronousTestCase):
    """The options of a program."""

    def options(self, url: str, **arguments: Any) -> tuple[Any, Any]:
        """Return the name servers and the options of the client."""
        connection = kombu.Connection(url, **arguments)
        return client_options(connection, options_of(connection.transport_options or {}))

    def test_the_url_has_the_address_the_account_and_the_namespace(self) -> None:
        """Each part is optional."""
        name_servers, options = self.options("twistmq://shop:a-long-secret@10.0.0.1:9000/team")
        self.assertEqual(name_servers, ["10.0.0.1:9000"])
        self.assertEqual((options["credentials"].access_key, options["credentials"].secret_key),
                         ("shop", "a-long-secret"))
        self.assertEqual(options["namespace"], "team")
        name_servers, options = self.options("twistmq://localhost")
        self.assertEqual(name_servers, ["localhost:9876"])
        self.assertNotIn("credentials", options)
        self.assertNotIn("namespace", options)

    def test_several_name_servers_are_an_option(self) -> None:
        """They replace the address of the URL."""
        name_servers, _ = self.options(
            "twistmq://", transport_options={"name_servers": ["a:1", "b:2"]})
        self.assertEqual(name_servers, ["a:1", "b:2"])

    def test_tls(self) -> None:
        """The value is a context, True, or the parameters that other transports accept."""
        context = ssl.create_default_context()
        self.assertIs(self.options("twistmq://a", ssl=context)[1]["tls"], context)
        made = self.options("twistmq://a", ssl=True)[1]["tls"]
        self.assertEqual(made.verify_mode, ssl.CERT_REQUIRED)
        made = self.options("twistmq://a", ssl={"cert_reqs": ssl.CERT_NONE})[1]["tls"]
        self.assertEqual(made.verify_mode, ssl.CERT_NONE)
        error = self.assertRaises(ChannelError, self.options, "twistmq://a", ssl={"ca": "x"})
        self.assertIn("unknown ca", str(error))

    def test_a_wrong_option_is_named(self) -> None:
        """The cases are unknown options, values of another type, and values out of bounds."""
        for options, text in (
            ({"visibility_timeout": 3600}, "visibility_timeout"),
            ({"invisible_s": "long"}, "invisible_s"),
            ({"topic_queues": 0}, "topic_queues is 0"),
        ):
            error = self.assertRaises(ChannelError, options_of, options)
            self.assertIn(text, str(error))
        self.assertEqual(options_of({"max_retries": 3}), Options())
