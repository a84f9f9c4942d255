"""The command line: options, statuses, output, and real processes."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Timer
from types import SimpleNamespace

import click
from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import take_default_signals, wait_until
from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import services
from twistmq.broker.errors import SettingsError
from twistmq.tools import tap
from twistmq.tools.command_line import main, parse_overrides

#: As an installed ``twistmq`` and ``twistd`` would run, also from a checkout.
TWISTMQ = [sys.executable, "-c",
           "import sys; from twistmq.tools.command_line import main; sys.exit(main())"]
TWISTD = [sys.executable, "-c",
          "import sys; sys.argv[0] = 'twistd'; from twisted.scripts.twistd import run; run()"]
#: No process of these tests needs longer, s.
PATIENCE = 60


def call(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in this process: status, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


class OverridesTests(SynchronousTestCase):
    """Settings in the command line."""

    def test_the_first_equals_sign_separates(self) -> None:
        """The first equals sign separates; a later pair wins over an earlier and over -n."""
        self.assertEqual(parse_overrides(["a=1", "b=x=y", "c=", "a=2"]),
                         {"a": "2", "b": "x=y", "c": ""})
        self.assertEqual(parse_overrides([], "h:1"), {"namesrvAddr": "h:1"})
        self.assertEqual(parse_overrides(["namesrvAddr=i:2"], "h:1"), {"namesrvAddr": "i:2"})

    def test_an_argument_without_a_value_is_an_error(self) -> None:
        """The error has the argument."""
        for text in ("broker.conf", "=1", ""):
            error = self.assertRaises(SettingsError, parse_overrides, [text])
            self.assertIn(repr(text), str(error))


class PrintingTests(SynchronousTestCase):
    """Commands that print and end."""

    def setUp(self) -> None:
        # It is begun once in a process, with all that tests before these logged.
        self.patch(tap, "begin_logging", lambda name, folder, settings: None)

    def test_print_all(self) -> None:
        """-p prints every setting with its value at this start, and ends with status 0."""
        file = Path(self.mktemp())
        file.write_text("brokerName=from-file\nflushDiskType=SYNC_FLUSH\nsomething=else\n")
        status, out, err = call("broker", "-c", str(file), "-n", "h:1", "-p", "brokerName=given")
        self.assertEqual((status, err), (0, ""))
        for line in ("brokerName=given", "flushDiskType=SYNC_FLUSH", "namesrvAddr=h:1",
                     "listenPort=10911", "something=else"):
            self.assertIn(line, out.splitlines())
        names = [line.partition("=")[0] for line in out.splitlines()]
        settings = Settings(broker_rows())
        services.declare_plugins("broker", settings)
        self.assertEqual(names, [*(row.name for row in settings.rows), "something"])
        self.assertIn("haListenPort", names)
        for short, long in (("-c", "--configFile"), ("-n", "--namesrvAddr"),
                            ("-p", "--printConfigItem")):
            given = {"-c": str(file), "-n": "h:1", "-p": ""}
            words = [word for option, value in given.items()
                     for word in (long if option == short else option, value) if word]
            self.assertEqual(call("broker", *words, "brokerName=given"), (0, out, ""), msg=long)

    def test_print_important(self) -> None:
        """-m prints the important ones only, one a line, with their values of this start."""
        file = Path(self.mktemp())
        file.write_text("brokerName=from-file\nlistenPort=7\nsomething=else\n")
        given = ("-c", str(file), "-n", "h:1", "listenPort=8", "brokerIP1=127.0.0.1")
        for command in ("broker", "up"):
            for option in ("-m", "--printImportantConfig"):
                status, out, err = call(command, option, *given)
                self.assertEqual((status, err), (0, ""))
                lines = out.splitlines()
                for line in ("brokerName=from-file", "listenPort=8", "namesrvAddr=h:1",
                             "brokerIP1=127.0.0.1", "brokerRole=ASYNC_MASTER",
                             "flushDiskType=ASYNC_FLUSH", "fileReservedTime=72", "deleteWhen=04"):
                    self.assertIn(line, lines, msg=command)
                for name in ("serverSocketBacklog", "something", "haListenPort"):
                    self.assertNotIn(f"{name}=", out, msg=command)
                self.assertEqual([line.partition("=")[0] for line in lines[:4]],
                                 ["brokerName", "brokerClusterName", "brokerId", "namesrvAddr"])
        both = call("broker", "-m", "-p", *given)
        self.assertEqual(both, call("broker", "-p", *given))

    def test_up_and_namesrv(self) -> None:
        """Both print their own settings; a name server says that it read its file."""
        status, out, _ = call("up", "-p", "--namesrv-port", "0", "--broker-port", "1")
        self.assertEqual(status, 0)
        self.assertIn("namesrv.port=0\n", out)
        self.assertIn("listenPort=1\n", out)
        file = Path(self.mktemp())
        file.write_text("listenPort=7\n")
        status, out, _ = call("namesrv", "-c", str(file), "-p", "-n", "ignored:1")
        self.assertEqual(status, 0)
        self.assertTrue(out.startswith(f"load config properties file OK, {file}\n"))
        self.assertIn("listenPort=7\n", out)
        self.assertNotIn("ignored", out)
        self.assertEqual(call("namesrv", "--configFile", str(file), "--printConfigItem",
                              "--namesrvAddr", "ignored:1"), (0, out, ""))
        status, out, _ = call("namesrv", "-c", str(file), "-p", "listenPort=8", "unknown=1")
        self.assertEqual(status, 0)
        self.assertIn("listenPort=8\n", out)
        self.assertTrue(out.endswith("\nunknown=1\n"))
        self.assertIn("kvConfigPath=", out)

    def test_version_and_help(self) -> None:
        """The version tells how it runs; the help lists the commands."""
        status, out, _ = call("--version")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"^twistmq \d+\.\d+\.\d+\S* \((compiled: |pure Python)")
        for arguments in (["--help"], ["-h"]):
            status, out, _ = call(*arguments)
            self.assertEqual(status, 0)
            for name in ("up", "namesrv", "broker"):
                self.assertRegex(out, rf"(?m)^  {name} ")

    def test_a_bad_command_line_ends_with_1(self) -> None:
        """Wrong settings end with -3, and missing files with -1."""
        for arguments, status, text in [
            (["broker", "-x"], 1, "-x"),
            (["nothing"], 1, "nothing"),
            (["up", "--broker-port", "70000"], 1, "70000"),
            (["broker", "-c", "/no/such.conf"], 255, "/no/such.conf"),
            (["broker", "listenPort=x"], 253, "listenPort=x (command line)"),
            (["broker", "broker.conf"], 1, "'broker.conf' is not a setting: key=value"),
            (["broker", "=5"], 1, "'=5' is not a setting"),
            (["up", "--broker-port", "5", "listenPort=abc"], 1, "--broker-port 5 and listenPort="),
            (["up", "--namesrv-port", "5", "namesrv.port=6"], 1, "--namesrv-port 5 and namesrv.po"),
            (["broker", "brokerRole=SLAVE", "plugins.disabled=ha"], 253,
             "brokerRole=SLAVE: there is no replication"),
            (["broker", "brokerRole=SLAVE"], 253, "Slave's brokerId must be > 0"),
            (["broker", "-p", "authorizationEnabled=true", "plugins.disabled=auth"], 253,
             "the plugin auth, which checks requests, is not in use"),
            (["broker", "-p", "tls.server.mode=strict"], 253, "is not one of disabled, permissive"),
            (["namesrv", "tls.server.certPath=/not/there"], 255,
             "tls.server.certPath: /not/there: No such file"),
            (["broker", "deleteWhen=99"], 253, "deleteWhen=99 (command line): the value must be "
                                               "hours of the day, 0 to 23, separated by semicol"),
            (["broker", "-n", "x"], 253, "The Name Server Address[x] illegal"),
            (["broker", "-p", "plugins.enabled=nowhere"], 253, "nowhere"),
            (["broker", "brokerRole=MASTER"], 253, "is not one of ASYNC_MASTER, SYNC_MASTER, SLA"),
            (["up", "metricsExporterType=FILE"], 253, "is not one of DISABLE, PROM"),
        ]:
            found, out, err = call(*arguments)
            self.assertEqual((found, out), (status, ""), msg=repr(arguments))
            self.assertIn(text, err)
            self.assertNotIn("Traceback", err)

    def test_commands_of_plugins(self) -> None:
        """A plugin's command runs and is in the help, but cannot replace one of ours."""
        @click.command("hello")
        def hello() -> None:
            """Print a greeting."""
            click.echo("hello")

        @click.command("up")
        def up() -> None:
            click.echo("not ours")

        @click.command("hello")
        def late() -> None:
            click.echo("of a plugin that is called later")

        hooks = SimpleNamespace(collect_commands=lambda: [hello, up, late], notices=[])
        self.patch(services, "load_hooks", lambda settings: hooks)
        self.assertEqual(call("hello"), (0, "hello\n", ""))
        self.assertIn("Print a greeting.", call("--help")[1])
        self.assertIn("--broker-port", call("up", "--help")[1])

    def test_a_plugin_that_is_left_out_is_named_once_beside_the_commands_of_others(self) -> None:
        """A command that is missing has its reason on the terminal."""
        notice = "plugin bad is left out: it is bad"
        hooks = SimpleNamespace(collect_commands=lambda: [click.Command("hello")], notices=[notice])
        self.patch(services, "load_hooks", lambda settings: hooks)
        for arguments in (["--help"], ["bye"]):
            err = call(*arguments)[2]
            self.assertEqual(err.count(f"twistmq: {notice}\n"), 1, msg=repr(arguments))
        self.assertEqual(call("namesrv", "--help")[2], "")


class ProcessTests(SynchronousTestCase):
    """Real processes on free ports."""

    def setUp(self) -> None:
        """A home and working directory for the processes."""
        self.home = Path(self.mktemp()).absolute()
        self.home.mkdir(parents=True)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a process, which is killed after the test or a time-out."""
        process = subprocess.Popen(
            command, cwd=self.home, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "HOME": str(self.home), "PYTHONUNBUFFERED": "1"},
            preexec_fn=take_default_signals)
        watchdog = Timer(PATIENCE, process.kill)
        watchdog.start()
        self.addCleanup(self.end, process, watchdog)
        return process

    def end(self, process: subprocess.Popen[str], watchdog: Timer) -> None:
        """Kill the remaining processes."""
        watchdog.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def read_until(self, process: subprocess.Popen[str], pattern: str) -> str:
        """Return the output of the process up to a line that matches."""
        assert process.stdout is not None
        seen = ""
        for line in process.stdout:
            seen += line
            if re.search(pattern, line):
                return seen
        raise self.failureException(f"no line with {pattern!r} in {seen!r}")

    def stop(self, process: subprocess.Popen[str]) -> int:
        """Stop a process as an operator does; :returns: its status."""
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE)

    def test_both_answer_the_lines_are_apaches(self) -> None:
        """Both servers answer, the lines are Apache's, and SIGTERM ends the process cleanly."""
        process = self.start(*TWISTMQ, "up", "--data", "d", "--namesrv-port", "0",
                             "--broker-port", "0", "brokerName=b", "mappedFileSizeCommitLog=65536")
        seen = self.read_until(process, "Ctrl-C")
        name_server = re.search(
            r"^The Name Server boot success\. serializeType=JSON, address (127\.0\.0\.1):(\d+)$",
            seen, re.MULTILINE)
        broker = re.search(
            r"^The broker\[b, (127\.0\.0\.1):(\d+)\] boot success\. serializeType=JSON "
            r"and name server is 127\.0\.0\.1:(\d+)$", seen, re.MULTILINE)
        assert name_server is not None and broker is not None, seen
        self.assertEqual(broker.group(3), name_server.group(2))
        for found in (name_server, broker):
            socket.create_connection((found.group(1), int(found.group(2)))).close()
        self.assertEqual(self.stop(process), 0)
        data = self.home / "d"
        self.assertFalse((data / "store" / "abort").exists())
        self.assertIn("boot success", (data / "logs" / "up.log").read_text())

    def test_plugin_that_is_left_out(self) -> None:
        """The output names the missing plugin and the reason."""
        packages = self.home / "packages"
        metadata = packages / "bad-1.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text("[twistmq]\nbad_typo = bad_typo:Plugin\n")
        (packages / "bad_typo.py").write_text(
            "from twistmq.broker import hookimpl\n\nclass Plugin:\n"
            "    @hookimpl\n    def before_sends(self, batch): ...\n")
        self.patch(os, "environ", {**os.environ, "PYTHONPATH": str(packages)})
        process = self.start(*TWISTMQ, "up", "--data", "d", "--namesrv-port", "0",
                             "--broker-port", "0", "mappedFileSizeCommitLog=65536")
        seen = self.read_until(process, "Ctrl-C")
        self.assertIn("twistmq: plugin bad_typo is left out: unknown hook 'before_sends'\n", seen)
        self.assertEqual(self.stop(process), 0)

    def test_port_in_use(self) -> None:
        """The error names the port, and the status is 255."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            process = self.start(*TWISTMQ, "namesrv", f"listenPort={port}",
                                 "bindAddress=127.0.0.1")
            seen = self.read_until(process, "twistmq: ")
        self.assertIn(f"127.0.0.1:{port} (the name server's port: listenPort): Address", seen)
        self.assertNotIn("Traceback", seen)
        self.assertEqual(process.wait(PATIENCE), 255)

    def test_a_setting_that_a_plugin_refuses_at_its_start(self) -> None:
        """The status is 253, too, if a plugin finds the fault after the process has begun."""
        process = self.start(*TWISTMQ, "broker", "messageDelayLevel=1x", "listenPort=0",
                             "bindAddress=127.0.0.1", "storePathRootDir=store")
        seen = self.read_until(process, "messageDelayLevel: '1x' in '1x' is not a num")
        self.assertNotIn("Traceback", seen)
        self.assertEqual(process.wait(PATIENCE), 253)

    def test_ctrl_c_ends_as_cleanly_as_sigterm(self) -> None:
        """Ctrl-C ends as cleanly as SIGTERM."""
        process = self.start(*TWISTMQ, "namesrv", "listenPort=0", "bindAddress=127.0.0.1")
        self.read_until(process, "boot success")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_a_closed_terminal_ends_it_cleanly_and_other_signals_do_not_end_it(self) -> None:
        """SIGUSR1 and SIGUSR2 are ignored, SIGQUIT prints the stacks, SIGHUP stops cleanly."""
        process = self.start(*TWISTMQ, "up", "--data", "d", "--namesrv-port", "0",
                             "--broker-port", "0", "mappedFileSizeCommitLog=65536")
        self.read_until(process, "Ctrl-C")
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            process.send_signal(number)
        log = self.home / "d/logs/up.log"
        wait_until("both are logged", lambda: log.read_text().count("no meaning here") == 2,
                   PATIENCE)
        for _ in range(20):
            process.send_signal(signal.SIGQUIT)
            # The handler of faulthandler does not name the current thread of an idle reactor.
            self.read_until(process, "Current thread 0x")
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertIn("SIGHUP received, stopping", log.read_text())
        self.assertFalse((self.home / "d/store/abort").exists())

    def test_many_signals_end_it_as_cleanly_as_one(self) -> None:
        """systemd and a supervisor may both send one, at any time until the process has ended.

        So may somebody who takes the process for one that rotates its log at SIGUSR1.
        """
        process = self.start(*TWISTMQ, "up", "--data", "d", "--namesrv-port", "0",
                             "--broker-port", "0", "mappedFileSizeCommitLog=65536")
        self.read_until(process, "Ctrl-C")

        def is_ended() -> bool:
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
                process.send_signal(number)
            return process.poll() is not None

        wait_until("the process has ended", is_ended, PATIENCE)
        self.assertEqual(process.returncode, 0)
        log = (self.home / "d/logs/up.log").read_text()
        self.assertEqual(log.count("received, stopping"), 1)
        self.assertNotIn("ReactorNotRunning", log)

    def test_twistd_runs_the_same_services_and_stops_them(self) -> None:
        """twistd runs the same services and stops them."""
        process = self.start(*TWISTD, "-n", "twistmq", "up", "--data", "d", "--namesrv-port", "0",
                             "--broker-port", "0", "mappedFileSizeCommitLog=65536")
        self.read_until(process, r"The broker\[.*boot success")
        process.send_signal(signal.SIGTERM)
        self.read_until(process, "Server Shut Down")
        self.assertIn(process.wait(PATIENCE), (0, -signal.SIGTERM))

    def test_twistd_start_fails(self) -> None:
        """Under twistd a failed start has the same status."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            process = self.start(*TWISTD, "-n", "twistmq", "namesrv", f"listenPort={port}",
                                 "bindAddress=127.0.0.1")
            self.read_until(process, "cannot listen")
            self.assertEqual(process.wait(PATIENCE), 255)

    def test_twistd_prints(self) -> None:
        """-m works as well; a bad setting is one line, with the usual status."""
        process = self.start(*TWISTD, "twistmq", "broker", "-m")
        self.read_until(process, "listenPort=10911")
        self.assertEqual(process.wait(PATIENCE), 0)
        process = self.start(*TWISTD, "twistmq", "broker", "listenPort=x")
        self.assertEqual(self.read_until(process, "listenPort=x"), (
            "twistmq: listenPort=x (command line): the value is not a whole number\n"))
        self.assertEqual(process.wait(PATIENCE), 253)
        process = self.start(*TWISTD, "twistmq", "broker", "plugins.enabled=nosuch")
        self.assertRegex(self.read_until(process, "nosuch"), "^twistmq: .* nosuch not installed")
        self.assertEqual(process.wait(PATIENCE), 253)
