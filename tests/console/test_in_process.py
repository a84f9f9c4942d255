"""The console in the process of `twistmq up`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread, Timer
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import click
from twisted.trial.unittest import SynchronousTestCase

from tests.console.case import Browser
from twistmq.broker.config.folder_checks import lock_holder
from twistmq.broker.testing.in_process_broker import ReactorThread, running_broker
from twistmq.console.in_process import ConsoleOpener, LateSite
from twistmq.console.start_token import TOKEN_VARIABLE
from twistmq.protocol.errors import BrokerError

PATIENCE_S = 60.0
#: Opens the port of a console, and prints the modules that are loaded for it.
PROBE = """
import sys
from types import SimpleNamespace
from twistmq.tools.console_option import console_companion
from twistmq.broker.edge import boot
settings = boot.up_settings(sys.argv[1], None, {})
before = set(sys.modules)
companion = console_companion(settings, 0, [], can_print=True)
port = SimpleNamespace(getHost=lambda: SimpleNamespace(port=1), stopListening=None)
reactor = SimpleNamespace(listenTCP=lambda *_, **__: port, addSystemEventTrigger=lambda *_: None)
companion(reactor, "127.0.0.1:9876")
print(sorted(name for name in sys.modules if name.startswith(
    ("twistmq.console.", "jinja2", "twisted.web", "twistmq.tools.admin"))))
"""


class OpenerTests(SynchronousTestCase):
    """A console beside a broker, on one reactor."""

    def opened(self, opener: ConsoleOpener, namesrv_address: str = "127.0.0.1:1") -> str:
        """Open a console on a reactor of its own; the line that it gives."""
        thread = ReactorThread()
        self.addCleanup(thread.stop)
        line: str = thread.call(opener, thread.reactor, namesrv_address)
        return line

    def opener(self, port: int | None = 0) -> ConsoleOpener:
        """A console without TLS."""
        return ConsoleOpener(port, lambda: None, can_print=True)

    def test_the_printed_address_leads_to_the_pages(self) -> None:
        """The first browsers wait until the console is loaded, and all get their pages."""
        with running_broker({"brokerName": "broker-a"}) as running:
            line = self.opened(self.opener(), running.namesrv_address)
            match = re.fullmatch(
                r"The console answers at http://127\.0\.0\.1:(\d+)(/login\?token=\S{32})", line)
            assert match is not None, line
            browsers = [Browser(int(match[1])) for _ in range(3)]
            threads = [Thread(target=browser.get, args=(match[2],)) for browser in browsers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            for browser in browsers:
                self.assertIn("twistmq_console=", browser.cookie)
                self.assertIn("broker-a", browser.get("/brokers").text)

    def test_a_port_that_is_in_use(self) -> None:
        """The fault names the port and its option."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            error = self.assertRaises(BrokerError, self.opened, self.opener(port))
        self.assertIn(f"127.0.0.1:{port} (the console's port: --console-port): ", str(error))

    def test_servers_with_accounts(self) -> None:
        """Visitors log in with their accounts, so there is no token."""
        line = self.opened(ConsoleOpener(0, lambda: None, accounts=True, can_print=False))
        match = re.fullmatch(r"The console answers at http://127\.0\.0\.1:(\d+)", line)
        assert match is not None, line
        self.assertIn("Secret key", Browser(int(match[1])).get("/login").text)

    def test_lines_in_a_log_need_a_token_of_the_environment(self) -> None:
        """Then the address is printed without it."""
        with patch.dict("os.environ", {TOKEN_VARIABLE: ""}):
            error = self.assertRaises(click.UsageError, ConsoleOpener, 0, lambda: None,
                                      can_print=False)
        self.assertIn(TOKEN_VARIABLE, str(error))
        with patch.dict("os.environ", {TOKEN_VARIABLE: "x" * 20}):
            line = self.opened(ConsoleOpener(0, lambda: None, can_print=False))
        self.assertRegex(line, r"^The console answers at http://127\.0\.0\.1:\d+$")

    def test_only_the_port_is_there_before_the_first_browser(self) -> None:
        """Before a browser opens it, the console loads neither pages nor templates nor a client."""
        run = subprocess.run([sys.executable, "-c", PROBE, self.mktemp()], capture_output=True,
                             text=True, check=False)
        self.assertEqual(
            (run.stdout, run.returncode),
            ("['twistmq.console.in_process', 'twistmq.console.start_token']\n", 0),
            msg=run.stderr)


class LateSiteTests(SynchronousTestCase):
    """Connections that come before the console is loaded."""

    def listen(self, load: Any) -> tuple[LateSite, int]:
        """Listen on a reactor of its own."""
        thread = ReactorThread()
        self.addCleanup(thread.stop)
        site = LateSite(thread.reactor, load)
        port = thread.call(lambda: thread.reactor.listenTCP(0, site, interface="127.0.0.1"))
        self.addCleanup(thread.call, port.stopListening)
        self.addCleanup(thread.call, site.close)
        return site, port.getHost().port

    def test_a_console_that_cannot_be_loaded_is_tried_again(self) -> None:
        """The browser's connection is closed, and the log has the reason."""
        attempts: list[int] = []

        def fail() -> Any:
            attempts.append(1)
            raise ZeroDivisionError("no site")

        _, port = self.listen(fail)
        for _ in range(2):
            # The close may come before the request is sent, or before it is read.
            with contextlib.suppress(ConnectionError), socket.create_connection(
                    ("127.0.0.1", port), PATIENCE_S) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                self.assertEqual(connection.recv(1), b"")
        self.assertEqual(len(attempts), 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_a_browser_that_leaves_early(self) -> None:
        """Its connection is dropped, and the next browser is served."""
        may_load, resource = Event(), SimpleNamespace(
            close=lambda: None, warm_up=lambda: None)

        def load() -> Any:
            from twisted.web.resource import Resource
            from twisted.web.server import Site

            may_load.wait(PATIENCE_S)
            page: Any = Resource()  # type: ignore[no-untyped-call]
            page.isLeaf = True
            page.render_GET = lambda request: b"here"
            return lambda: (Site(page), resource)  # type: ignore[no-untyped-call]

        _, port = self.listen(load)
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
            connection.sendall(b"GET /x HTTP/1.0\r\n\r\n")
            may_load.set()
            self.assertIn(b" 200 ", connection.makefile("rb").readline())


class ProcessTests(SynchronousTestCase):
    """The command as an operator types it."""

    def test_up_with_a_console(self) -> None:
        """The address with the token is printed and not logged; SIGTERM ends all of it."""
        data = Path(self.mktemp()).absolute()
        process = subprocess.Popen(
            [sys.executable, "-c", "from twistmq.tools.entry import main; import sys; "
             "sys.exit(main())", "up", "--console-port", "0", "--data", str(data),
             "--namesrv-port", "0", "--broker-port", "0", "mappedFileSizeCommitLog=65536"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, TOKEN_VARIABLE: ""})
        watchdog = Timer(PATIENCE_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                match = re.match(r"The console answers at http://127\.0\.0\.1:(\d+)"
                                 r"(/login\?token=(\S+))$", line)
                if match is not None:
                    break
            else:
                raise self.failureException("no line with the address")
            browser = Browser(int(match[1]))
            browser.get(match[2])
            self.assertIn("1 of 1", browser.get("/").text)
            answer = browser.json("/doctor")
            self.assertEqual(answer.status, 200, msg=answer.text)
            self.assertIn(("ok", f"{data}/store is used by process {process.pid}"), [
                (row["level"], row["found"]) for row in answer.rows["findings"]])
            # A look at the lock from within the process would have released it.
            self.assertEqual(lock_holder(data / "store" / "lock"), process.pid)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE_S), 0)
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
        log = (data / "logs" / "up.log").read_text()
        self.assertIn(f"the console answers at http://127.0.0.1:{match[1]}", log)
        self.assertNotIn(match[3], log)
