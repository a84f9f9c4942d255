"""The observation of a start: boot lines, failures, and twistd's options."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import click
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.python import usage
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import services, starter
from twistmq.broker.edge.boot import (
    broker_settings,
    durability_notice,
    namesrv_settings,
    up_settings,
)
from twistmq.broker.plugin.hooks import Hooks
from twistmq.protocol.errors import BrokerError, StoreDamaged
from twistmq.tools import tap
from twistmq.tools.command_line import twistmq


class FakeReactor:
    """A reactor that runs calls at once, and counts its stops."""

    def __init__(self) -> None:
        self.stops = 0

    def callWhenRunning(self, call: Any) -> None:
        call()

    def stop(self) -> None:
        self.stops += 1
        if self.stops > 1:
            raise ReactorNotRunning


def fake_namesrv(settings: Settings | None = None, notices: Sequence[str] = ()) -> Any:
    """Return the parts of a name server and its service that a starter needs."""
    return SimpleNamespace(
        started=Deferred(), settings=settings, port=77,
        name_server=SimpleNamespace(hooks=SimpleNamespace(notices=list(notices))))


def fake_broker(*name_servers: str, notices: Sequence[str] = ()) -> Any:
    """Return the parts of a broker's service that the boot line needs."""
    return SimpleNamespace(
        started=Deferred(), kernel=SimpleNamespace(
            broker_name="b", broker_address="1.2.3.4:5", hooks=Hooks(notices=notices)),
        name_servers=SimpleNamespace(addresses=list(name_servers), unreached={}))


class StarterTests(SynchronousTestCase):
    """One start."""

    def setUp(self) -> None:
        """Collect events, and use a fake reactor."""
        self.events: list[LogEvent] = []
        self.patch(tap.Starter, "log", Logger(observer=self.events.append))
        self.reactor = FakeReactor()
        self.out: Any = io.StringIO()
        self.err = io.StringIO()

    def starter(self, kind: str, settings: Settings, service: Any) -> tap.Starter:
        """Return a starter of a fake service."""
        self.patch(services, f"make_{kind}_service", lambda *_: service)
        return tap.Starter(self.reactor, kind, settings)

    def fire(self, service: Any, result: object) -> None:
        """Let the start end."""
        with contextlib.redirect_stdout(self.out), contextlib.redirect_stderr(self.err):
            service.started.callback(result)

    def test_broker_line(self) -> None:
        """The broker's line names its name servers when it has any."""
        for addresses, end in [((), ""), (("a:1", "b:2"), " and name server is a:1;b:2")]:
            service = fake_broker(*addresses)
            self.starter("broker", broker_settings(None, {}), service)
            self.fire(service, service)
            self.assertEqual(
                self.out.getvalue(),
                f"The broker[b, 1.2.3.4:5] boot success. serializeType=JSON{end}\n"
                f"{durability_notice(broker_settings(None, {}))}\n")
            self.out.truncate(self.out.seek(0))

    def test_what_another_program_wrote_is_one_line_of_a_terminal(self) -> None:
        """A name server's remark has escapes, and lines that look like ours."""
        service = fake_broker("a:1")
        service.name_servers.unreached = {"a:1": "\x1b[2J no\ntwistmq: forged"}
        self.starter("broker", broker_settings(None, {}), service)
        self.fire(service, service)
        [line] = self.err.getvalue().splitlines()
        self.assertTrue(line.endswith(r"\x1b[2J no twistmq: forged"), line)

    def test_output_that_nobody_reads_stops_no_start(self) -> None:
        """The service manager is notified, and later lines are dropped."""
        told: list[str] = []
        self.patch(starter, "notify_ready", lambda: told.append("ready"))
        reader, writer = os.pipe()
        os.close(reader)
        service = fake_broker()
        self.starter("broker", broker_settings(None, {}), service)
        with open(writer, "w") as self.out:
            self.fire(service, service)
            self.out.write("later\n")
        self.assertEqual(told, ["ready"])

    def test_namesrv_line(self) -> None:
        """The line of the name server has the real port."""
        settings = namesrv_settings(None, {"listenPort": "0", "bindAddress": "::1"})
        service = fake_namesrv(settings)
        self.starter("namesrv", settings, service)
        self.fire(service, service)
        self.assertEqual(self.out.getvalue(),
                         "The Name Server boot success. serializeType=JSON, address ::1:77\n")

    def test_up_says_what_to_do_next(self) -> None:
        """After both lines it prints the acknowledgement rule, the clients' address
        and the folder.
        """
        settings = up_settings("/data", None, {})
        name_server = fake_namesrv(settings)
        service = SimpleNamespace(started=Deferred(), namesrv=name_server,
                                  broker=fake_broker("127.0.0.1:77"))
        self.starter("up", settings, service)
        self.fire(service, service)
        lines = self.out.getvalue().splitlines()
        self.assertIn("The Name Server", lines[0])
        self.assertIn("The broker[", lines[1])
        self.assertIn("acknowledged before its message is on the disk", lines[2])
        self.assertIn("flushDiskType=SYNC_FLUSH", lines[2])
        self.assertIn('setNamesrvAddr("127.0.0.1:77")', lines[4])
        self.assertIn("/data/store, logs in /data/logs", lines[5])

    def test_up_that_waits_for_the_disk(self) -> None:
        """No line about acknowledgements is printed."""
        settings = up_settings("/data", None, {"flushDiskType": "SYNC_FLUSH"})
        service = SimpleNamespace(started=Deferred(), namesrv=fake_namesrv(settings),
                                  broker=fake_broker("127.0.0.1:77"))
        self.starter("up", settings, service)
        self.fire(service, service)
        self.assertNotIn("flushDiskType", self.out.getvalue())

    def test_address_of_all_addresses(self) -> None:
        """No client can connect to 0.0.0.0, so the line has the address for clients."""
        settings = up_settings("/data", None, {"bindAddress": "0.0.0.0", "brokerIP1": "192.0.2.2"})
        service = SimpleNamespace(
            started=Deferred(), namesrv=fake_namesrv(settings),
            broker=fake_broker("127.0.0.1:77"))
        self.starter("up", settings, service)
        self.fire(service, service)
        self.assertIn('setNamesrvAddr("192.0.2.2:77")', self.out.getvalue())

    def test_what_starts_beside_the_servers(self) -> None:
        """Its line is printed and not logged, and it gets the address of the name server."""
        settings = up_settings("/data", None, {})
        service = SimpleNamespace(started=Deferred(), namesrv=fake_namesrv(settings),
                                  broker=fake_broker("127.0.0.1:77"))
        calls: list[tuple[object, str]] = []

        def companion(reactor: object, address: str) -> str:
            calls.append((reactor, address))
            return "a line with a secret"

        self.patch(services, "make_up_service", lambda *_: service)
        tap.Starter(self.reactor, "up", settings, companion=companion)
        self.fire(service, service)
        self.assertEqual(calls, [(self.reactor, "127.0.0.1:77")])
        self.assertEqual(self.out.getvalue().splitlines()[-1], "a line with a secret")
        self.assertNotIn("secret", "".join(map(str, map(formatEvent, self.events))))

    def test_a_failure_beside_the_servers_fails_the_start(self) -> None:
        """The reason is printed, the servers stop, and no line says that they answer."""
        settings = up_settings("/data", None, {})
        service = SimpleNamespace(started=Deferred(), namesrv=fake_namesrv(settings),
                                  broker=fake_broker("127.0.0.1:77"))

        def companion(reactor: object, address: str) -> str:
            raise BrokerError("the port is in use")

        self.patch(services, "make_up_service", lambda *_: service)
        starting = tap.Starter(self.reactor, "up", settings, companion=companion)
        self.fire(service, service)
        self.assertEqual((self.out.getvalue(), self.err.getvalue()),
                         ("", "twistmq: the port is in use\n"))
        self.assertEqual((starting.status, self.reactor.stops), (255, 1))

    def test_name_server_that_is_not_reached(self) -> None:
        """A broker that is not registered says so, after its line."""
        service = fake_broker("h:1", "i:2")
        service.name_servers.unreached = {"i:2": "refused"}
        self.starter("broker", broker_settings(None, {"namesrvAddr": "h:1;i:2"}), service)
        self.fire(service, service)
        self.assertIn("boot success", self.out.getvalue())
        self.assertRegex(self.err.getvalue(), "^twistmq: the name server i:2 .*: refused\n$")

    def test_a_failed_start_is_one_line_and_stops_the_reactor_once(self) -> None:
        """The process has the status of the failure."""
        service = fake_broker()
        starter = self.starter("broker", broker_settings(None, {}), service)
        self.reactor.stops = 1  # a signal came first: stopping again raises
        self.fire(service, Failure(StoreDamaged("checkpoint is short")))
        self.assertEqual(self.err.getvalue(), "twistmq: checkpoint is short\n")
        self.assertEqual(self.out.getvalue(), "")
        self.assertEqual(starter.status, 253)
        self.assertEqual(self.reactor.stops, 2)

    def test_store_that_is_not_stopped(self) -> None:
        """The process ends with a status and a line; a clean stop has neither."""
        service = fake_broker()
        service.kernel.store = SimpleNamespace(stop_fault="")
        starter = self.starter("broker", broker_settings(None, {}), service)
        self.assertEqual((starter.end_status(), self.err.getvalue()), (0, ""))
        service.kernel.store.stop_fault = "the disk is full"
        with contextlib.redirect_stderr(self.err):
            self.assertEqual(starter.end_status(), 255)
        self.assertEqual(self.err.getvalue(),
                         "twistmq: the store could not be stopped cleanly: the disk is full\n")

    def test_a_signal_during_the_start_is_not_a_failure(self) -> None:
        """It stops the start cleanly."""
        service = fake_broker()
        starter = self.starter("broker", broker_settings(None, {}), service)
        self.fire(service, Failure(CancelledError()))
        self.assertEqual((self.out.getvalue(), self.err.getvalue(), starter.status), ("", "", 0))
        self.assertEqual(self.events[-1]["log_level"].name, "info")

    def test_failures_in_the_log(self) -> None:
        """A start that could not be is an error in one line, a bug is critical, with traceback."""
        for error, level, text in [
            (StoreDamaged("checkpoint is short"), "error", "the start failed: checkpoint is short"),
            (PermissionError("no"), "error", "the start failed: PermissionError: no"),
            (ZeroDivisionError("a bug"), "critical", "the start failed"),
        ]:
            service = fake_broker()
            self.starter("broker", broker_settings(None, {}), service)
            self.reactor.stops = 0
            self.fire(service, Failure(error))
            event = self.events[-1]
            self.assertEqual((event["log_level"].name, formatEvent(event)), (level, text))
            self.assertEqual("log_failure" in event, level == "critical")

    def test_notices_go_to_the_log_and_to_the_terminal(self) -> None:
        """Notices about plugins and settings are logged and printed."""
        settings = up_settings("/data", None, {"zeta": "1", "alpha": "2"})
        broker = fake_broker(notices=["plugin bad is left out: it is bad"])
        service = SimpleNamespace(started=Deferred(), broker=broker, namesrv=fake_namesrv())
        with contextlib.redirect_stderr(self.err):
            self.starter("up", settings, service)
        texts = ["plugin bad is left out: it is bad",
                 "settings that nothing here reads are kept: alpha, zeta"]
        self.assertEqual(self.err.getvalue(), "".join(f"twistmq: {text}\n" for text in texts))
        warnings = [event for event in self.events if event["log_level"].name == "warn"]
        self.assertEqual([formatEvent(event) for event in warnings], texts)


HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class SignalTests(SynchronousTestCase):
    """The handlers of signals."""

    def setUp(self) -> None:
        for number in (*HANDLED, signal.SIGQUIT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        self.calls: list[tuple[Any, ...]] = []
        self.reactor: Any = FakeReactor()
        self.reactor.callFromThread = lambda *call: self.calls.append(call)
        tap.handle_signals(self.reactor)

    def raise_each(self, *numbers: signal.Signals) -> None:
        """Raise signals, and let the reactor run the calls of their handlers."""
        for number in numbers:
            signal.raise_signal(number)
        calls, self.calls = self.calls, []
        for call, *arguments in calls:
            call(*arguments)

    def test_a_second_signal_changes_nothing(self) -> None:
        """It is ignored until the process ends."""
        self.raise_each(signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
        self.assertEqual(self.reactor.stops, 1)

    def test_two_signals_of_the_same_moment(self) -> None:
        """Both are pending when Python calls the first handler; one of them stops the server."""
        both = [signal.SIGTERM, signal.SIGHUP]
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
        self.assertEqual(len(self.calls), 1)

    def test_a_closed_terminal_stops_as_sigterm(self) -> None:
        """SIGHUP stops the server, unless nohup lets it be ignored."""
        self.raise_each(signal.SIGHUP, signal.SIGTERM)
        self.assertEqual(self.reactor.stops, 1)
        self.assertIs(signal.getsignal(signal.SIGHUP), signal.SIG_IGN)
        tap.handle_signals(self.reactor)
        self.raise_each(signal.SIGHUP)
        self.assertEqual(self.reactor.stops, 1)

    def test_signals_without_a_meaning(self) -> None:
        """SIGUSR1 and SIGUSR2 stop nothing."""
        self.raise_each(signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1)
        self.assertEqual(self.reactor.stops, 0)

    def test_no_signal_ends_a_process_that_stops(self) -> None:
        """Before its end Python removes handlers, but a signal that is ignored stays so."""
        self.raise_each(signal.SIGTERM)
        for number in (*HANDLED, signal.SIGQUIT):
            self.assertIs(signal.getsignal(number), signal.SIG_IGN)
        signal.raise_signal(signal.SIGQUIT)

    def test_a_signal_while_the_reactor_stops_changes_nothing(self) -> None:
        """A failed start stops the reactor as well, and no error is raised."""
        self.reactor.stop()
        self.raise_each(signal.SIGINT)
        self.assertEqual(self.reactor.stops, 2)


class OptionsTests(SynchronousTestCase):
    """The options of twistd."""

    def parsed(self, *arguments: str) -> Any:
        """The settings that a command line of twistd gives."""
        options = tap.Options()
        options.parseOptions(list(arguments))
        return options.subOptions

    def test_each_servers_options_equal_its_commands(self) -> None:
        """Each server has the same settings as its command."""
        up = self.parsed("up", "--data", "/d", "--broker-port", "1", "--namesrv-port=2", "a=b")
        self.assertEqual(up.kind, "up")
        self.assertEqual(up.settings.text("storePathRootDir"), "/d/store")
        self.assertEqual((up.settings.int("listenPort"), up.settings.int("namesrv.port")), (1, 2))
        self.assertEqual(up.settings.unknown, {"a": "b"})
        self.assertIsNone(up.companion)
        broker = self.parsed("broker", "-n", "h:1", "brokerName=x")
        self.assertEqual(broker.settings.text("namesrvAddr"), "h:1")
        self.assertEqual(broker.settings.text("brokerName"), "x")
        self.assertEqual(self.parsed("namesrv", "-n", "h:1").settings.unknown, {})

    def test_options_are_those_of_the_commands(self) -> None:
        """Each server has the options of its command; mqnamesrv has no -m."""
        for name, _, options, _ in tap.Options.subCommands:
            ours: Any = options()  # type: ignore[operator]
            taken = {f"--{long.rstrip('=')}" for long in ours.longOpt}
            taken |= {f"-{short}" for short in ours.shortOpt.replace(":", "")}
            command = twistmq.commands[str(name)]
            given = {text for option in command.params if isinstance(option, click.Option)
                     for text in option.opts}
            # Every Options of Twisted has the first two, and every command of click --help.
            self.assertEqual(taken - {"--version", "--help"}, given, msg=str(name))
        self.assertRaises(usage.UsageError, self.parsed, "namesrv", "-m")

    def test_the_console_under_twistd_needs_a_token(self) -> None:
        """Its address is in the log there, and must not contain the token."""
        for option in (["--console"], ["--console-port", "0"]):
            with patch.dict("os.environ", {"TWISTMQ_CONSOLE_TOKEN": "x" * 20}):
                self.assertIsNotNone(self.parsed("up", *option).companion)
            self.assertEqual(self.refusal("up", *option),
                             ("twistmq: --console needs a token in TWISTMQ_CONSOLE_TOKEN here, "
                              "because the lines that are printed go to a log\n", 1))
        self.assertEqual(self.refusal("up", "--console-port", "70000"),
                         ("twistmq: --console-port 70000 is not a port\n", 1))

    def refusal(self, *arguments: str) -> tuple[str, object]:
        """Return the output and the status of a refused command line."""
        err = io.StringIO()
        with patch.dict("os.environ", {"TWISTMQ_CONSOLE_TOKEN": ""}), (
                contextlib.redirect_stderr(err)):
            error = self.assertRaises(SystemExit, self.parsed, *arguments)
        return err.getvalue(), error.code

    def test_a_name_servers_n_promises_nothing(self) -> None:
        """Neither help says that a name server uses -n."""
        helps = [tap.NamesrvOptions().getUsage(), twistmq.commands["namesrv"].get_help(
            click.Context(twistmq.commands["namesrv"]))]
        for text in helps:
            self.assertIn("a name server has no use for it", " ".join(text.split()))
            self.assertNotIn("register", text)

    def test_an_invalid_setting_is_one_line_without_twistds_help(self) -> None:
        """The error is one line, without twistd's help before it."""
        for arguments, status, text in [
            (["broker", "listenPort=x"], 253, "listenPort=x (command line)"),
            (["broker", "-c", "/no/such"], 255, "/no/such"),
            (["broker", "namesrvAddr=nowhere"], 253, "nowhere"),
            (["broker", "foo"], 1, "'foo' is not a setting"),
            (["up", "--broker-port", "5", "listenPort=6"], 1, "--broker-port 5 and listenPort=6"),
        ]:
            told = io.StringIO()
            with contextlib.redirect_stderr(told):
                error = self.assertRaises(SystemExit, self.parsed, *arguments)
            self.assertEqual(error.code, status, msg=repr(arguments))
            self.assertRegex(told.getvalue(), f"^twistmq: .*{re.escape(text)}.*\n$")
        missing = self.assertRaises(usage.UsageError, self.parsed)
        self.assertIn("up, namesrv or broker?", str(missing))

    def test_the_version_is_ours(self) -> None:
        """Each server has our version as well."""
        for arguments in (["--version"], ["up", "--version"]):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                error = self.assertRaises(SystemExit, self.parsed, *arguments)
            self.assertEqual(error.code, 0)
            self.assertRegex(out.getvalue(), "^twistmq [0-9]")

    def test_p_prints_the_settings_and_ends_with_0(self) -> None:
        """-p prints the settings and ends with status 0."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            error = self.assertRaises(SystemExit, self.parsed, "namesrv", "-p")
        self.assertEqual(error.code, 0)
        self.assertIn("listenPort=9876\n", out.getvalue())

    def test_p_prints_the_settings_of_plugins(self) -> None:
        """This is as in the command; each of several brokers has its own settings."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertRaises(SystemExit, self.parsed, "broker", "--brokers", "2", "-p")
            self.assertRaises(SystemExit, self.parsed, "broker", "-p")
        ports = re.findall("metricsPromExporterPort=([0-9]+)", out.getvalue())
        self.assertEqual(ports, ["5567", "5577", "5557"])
