"""The command, and what is loaded without it."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import patch

import click
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.command import check_loopback, checked_base, console, session_makers
from twistmq.console.start_token import TOKEN_VARIABLE, start_token
from twistmq.console.visitor import ConsoleOptions
from twistmq.protocol.signature import Credentials

#: Loads everything that `twistmq up` loads, and prints the modules of the console.
PROBE = """
import sys
from twistmq.tools import entry, command_line, tap
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import declare_plugins
declare_plugins("up", boot.up_settings(sys.argv[1], None, {}))
from twistmq.broker.edge.starter import Starter
print([name for name in sys.modules if name.startswith(("twistmq.console", "jinja2"))])
"""


class CommandTests(SynchronousTestCase):
    """Arguments."""

    def test_only_loopback_addresses(self) -> None:
        """A token must not cross a network in the clear."""
        for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
            check_loopback(host)
        for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
            self.assertRaises(click.UsageError, check_loopback, host)

    def test_the_path_of_a_proxy(self) -> None:
        """A slash at the end is dropped, and a text that is not a path is refused."""
        for text, base in (("", ""), ("/", ""), ("/ops/", "/ops"), ("/a/b-c", "/a/b-c")):
            self.assertEqual(checked_base(text), base)
        for text in ("ops", "//evil", "/a/../b", "/a b", "/a?b", "https://x"):
            self.assertRaises(click.UsageError, checked_base, text)

    def test_tokens(self) -> None:
        """A token of the environment must be long; without one, each start has its own."""
        with patch.dict("os.environ", {TOKEN_VARIABLE: "short"}):
            self.assertRaises(click.UsageError, start_token)
        with patch.dict("os.environ", {TOKEN_VARIABLE: "x" * 20}):
            self.assertEqual(start_token(), "x" * 20)
        with patch.dict("os.environ", {TOKEN_VARIABLE: ""}):
            self.assertNotEqual(start_token(), start_token())

    def test_clusters(self) -> None:
        """Name servers are the first cluster, and others follow by name."""
        makers = session_makers("a:1", ("two=b:2;c:3",), None, None)
        self.assertEqual(list(makers), ["default", "two"])
        session = makers["two"]()
        self.addCleanup(session.close)
        self.assertEqual(session.name_servers, ["b:2", "c:3"])
        for clusters in ((), ("two",), ("=b:2",), ("two=",)):
            self.assertRaises(click.UsageError, session_makers, None, clusters, None, None)

    def test_visitors_with_accounts_and_an_account_of_the_console(self) -> None:
        """A login by account excludes ``--access-key``, but not the variables of all commands."""
        started: list[ConsoleOptions] = []

        def serve(options: ConsoleOptions, host: str, port: int) -> int:
            started.append(options)
            return 0

        keys = {"ROCKETMQ_ACCESS_KEY": "root", "ROCKETMQ_SECRET_KEY": "secret-of-root"}
        with patch("twistmq.console.command._serve", serve), patch.dict("os.environ", keys):
            for words, status, credentials in (
                    ((), 0, Credentials("root", "secret-of-root")),
                    (("--login", "account"), 0, None),
                    (("--login", "account", "--access-key", "root"), 2, None)):
                result = CliRunner().invoke(console, ["-n", "127.0.0.1:1", *words])
                self.assertEqual(result.exit_code, status, msg=result.output)
                if status == 0:
                    session = started[-1].clusters["default"]()
                    self.addCleanup(session.close)
                    self.assertEqual(session._options.credentials, credentials)
                    self.assertEqual(started[-1].accounts, bool(words))
                else:
                    self.assertIn("each visitor has an account", result.output)
        self.assertEqual(len(started), 2)

    def test_a_server_loads_no_module_of_the_console(self) -> None:
        """`twistmq up` costs nothing more than before."""
        run = subprocess.run([sys.executable, "-c", PROBE, self.mktemp()], capture_output=True,
                             text=True, check=False)
        self.assertEqual((run.stdout, run.returncode), ("[]\n", 0), msg=run.stderr)
