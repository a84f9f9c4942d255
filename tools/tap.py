"""Runs the services, both under ``twistd -n twistmq ...`` and for the command line.

This is the only module that imports the reactor. It does so only when it runs a service, so that
``twistd --reactor`` can still choose the reactor. A process prints its boot lines once it answers.
If its start fails, it prints the reason on standard error, stops, and exits with the status that
``boot`` assigns.

Source: design of twistmq.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from twisted.application.service import IService, MultiService
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python import usage

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.clock import use_monotonic
from twistmq.broker.edge.first_signals import MEANINGLESS, hang_up, print_stacks_at_sigquit
from twistmq.broker.edge.logs import begin_logging
from twistmq.broker.edge.starter import Companion, Starter
from twistmq.broker.edge.systemd_notify import notify_stopping
from twistmq.broker.errors import SettingsError
from twistmq.broker.supervisor.child_command import ChildCommand, child_command
from twistmq.protocol.decimal_text import PORT_MAX, whole_number
from twistmq.tools.command_line import (
    parse_overrides,
    print_each,
    put_ports,
    version_text,
)
from twistmq.tools.console_option import console_companion, doctor_arguments

__all__ = ["Options", "handle_signals", "makeService", "make_starter", "process_reactor", "run"]

_log = Logger()


def make_starter(
    reactor: Any, kind: str, settings: Settings, command: ChildCommand | None, *,
    prints: bool = True, companion: Companion | None = None,
) -> Starter:
    """Make the starter for :func:`run`; :raises SettingsError: when that is not possible."""
    if command is None:
        return Starter(reactor, kind, settings, prints=prints, companion=companion)
    from twistmq.broker.supervisor.starter import SupervisorStarter

    return SupervisorStarter(reactor, kind, settings, command, prints=prints, companion=companion)


def process_reactor() -> Any:
    """Return the reactor of the process; the first access installs it."""
    from twisted.internet import reactor

    use_monotonic(reactor)
    return reactor


def run(
    kind: str, settings: Settings, command: ChildCommand | None = None,
    companion: Companion | None = None,
) -> int:
    """Run a service until a signal stops it; SIGTERM does not lose acknowledged messages.

    :param command: the command of brokers with their own processes; None: the broker runs in this
        process.
    :param companion: what starts beside the servers of ``up``.
    :returns: the exit status; it is 0 after a signal if the store could be stopped cleanly.
    :raises SettingsError: when the service cannot be created.
    """
    begin_logging(kind if command is None else "brokers", boot.log_folder(settings), settings)
    reactor = process_reactor()
    starter = make_starter(reactor, kind, settings, command, companion=companion)
    reactor.addSystemEventTrigger("before", "shutdown", notify_stopping)
    reactor.addSystemEventTrigger(
        "before", "shutdown", starter.service.stopService)
    reactor.callWhenRunning(handle_signals, reactor)
    reactor.callWhenRunning(starter.service.startService)
    reactor.run()
    return starter.end_status()


def handle_signals(reactor: Any) -> None:
    """Prevent the signals of an operator or a terminal from ending the process uncleanly.

    SIGTERM and SIGINT stop the reactor. SIGHUP, which a closed terminal sends, stops it as well, as
    in a JVM, unless ``nohup`` has made the process ignore it. SIGQUIT prints the stack of each
    thread. SIGUSR1 and SIGUSR2 have no meaning here and are only logged.
    """
    _stop_at_signals(reactor, [signal.SIGTERM, signal.SIGINT, *hang_up()])
    print_stacks_at_sigquit()
    for number in MEANINGLESS:
        signal.signal(number, _Logged(reactor))


class _Logged:
    """The handler for a signal without a meaning, which logs the signal.

    Its truth value is false, because ``twistd`` uses SIGUSR1 for its log file only if the current
    handler is false.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __bool__(self) -> bool:
        return False

    def __call__(self, number: int, frame: object) -> None:
        self._reactor.callFromThread(
            lambda: _log.info("{name} received: it has no meaning here",
                              name=signal.Signals(number).name))


def _stop_at_signals(reactor: Any, numbers: Sequence[signal.Signals]) -> None:
    """Stop the reactor at these signals; further signals during the stop have no effect.

    With Twisted's own handlers, a second signal is an unhandled error in the log. Python also
    removes its handlers before the process ends, so a second signal, or a signal without a meaning,
    could then kill the process. systemd and a supervisor may both send a signal.
    """
    def stop(name: str) -> None:
        _ignore((*numbers, *MEANINGLESS, signal.SIGQUIT))
        _log.info("{name} received, stopping", name=name)
        with contextlib.suppress(ReactorNotRunning):
            reactor.stop()

    first: list[int] = []

    def received(number: int, _: object) -> None:
        # If two signals arrive at the same moment, both are pending when Python calls this function
        # for one of them. Python complains about a pending signal that is ignored by then, so
        # `stop` ignores the signals.
        if not first:
            first.append(number)
            reactor.callFromThread(stop, signal.Signals(number).name)

    for number in numbers:
        signal.signal(number, received)


def _ignore(numbers: Sequence[signal.Signals]) -> None:
    """Ignore signals until the process ends."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


class VersionOptions(usage.Options):
    """Options with our own --version."""

    def opt_version(self) -> None:
        """Show the version and whether the hot modules are compiled."""
        print(version_text())
        raise SystemExit(boot.EXIT_OK)


class ServerOptions(VersionOptions):
    """The options of one server, the same as for its twistmq command."""

    kind: ClassVar[str]
    synopsis = "[options] [key=value...]"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["configFile", "c", None, "A Java .properties file with settings."],
    ]
    optFlags: ClassVar[list[list[str | None]]] = [
        ["printConfigItem", "p", "Print all settings and exit."],
    ]

    def parseArgs(self, *pairs: str) -> None:
        self.pairs = pairs

    def postOptions(self) -> None:
        """Read the settings, and only print them if that was requested.

        An error is printed without the long help text of twistd before it.
        """
        with _settings_errors_printed():
            overrides = parse_overrides(self.pairs, self["namesrvAddr"])
            self.settings = _load(self, overrides)
            #: The command of brokers with their own processes.
            self.command = child_command(
                self.get("brokers"), self.kind, self.settings, self["configFile"], overrides,
                self.get("group"))
            self.companion = self._companion(overrides)
            important = self.get("printImportantConfig", False)
            if self["printConfigItem"] or important:
                print_each(self.kind, self.settings, self.command,
                           important_only=not self["printConfigItem"])
                raise SystemExit(boot.EXIT_OK)

    def _companion(self, overrides: dict[str, str]) -> Companion | None:
        """Return what starts beside the servers."""
        return None


class BrokerOptions(ServerOptions):
    """``twistd twistmq broker``."""

    kind = "broker"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["namesrvAddr", "n", None, "The name servers to register with: host:port;..."],
        ["brokers", None, None,
         "Run this number of brokers, each in its own process; auto: one per core, minus one."],
    ]
    optFlags: ClassVar[list[list[str | None]]] = [
        ["printImportantConfig", "m", "Print important settings and exit."],
    ]


class UpOptions(BrokerOptions):
    """``twistd twistmq up``."""

    kind = "up"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["group", None, None,
         "Run this number of brokers of one name, which elect their master."],
        ["data", None, "~/.twistmq", "The folder of all data."],
        ["namesrv-port", None, None, "The name server's port. [default: 9876]"],
        ["broker-port", None, None, "The broker's port. [default: 10911]"],
        ["console-port", None, None,
         "The console's port, which implies --console. [default: 8082]"],
    ]
    optFlags: ClassVar[list[list[str | None]]] = [
        *BrokerOptions.optFlags,
        ["console", None, "Serve the web console on 127.0.0.1 as well; its token must be in "
                          "TWISTMQ_CONSOLE_TOKEN."],
    ]

    def _companion(self, overrides: dict[str, str]) -> Companion | None:
        text = self["console-port"]
        port = None if text is None else whole_number(text)
        if text is not None and (port is None or port > PORT_MAX):
            raise boot.StartRefused(boot.EXIT_USAGE, f"--console-port {text} is not a port")
        if not self["console"] and port is None:
            return None
        return console_companion(
            self.settings, port, doctor_arguments(
                self["data"], self["configFile"], overrides, self["brokers"]), can_print=False)


class NamesrvOptions(ServerOptions):
    """``twistd twistmq namesrv``."""

    kind = "namesrv"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["namesrvAddr", "n", None, "Accepted as by mqnamesrv; a name server has no use for it."],
    ]


def _load(options: ServerOptions, overrides: dict[str, str]) -> Settings:
    if options.kind == "broker":
        return boot.broker_settings(options["configFile"], overrides)
    if options.kind == "namesrv":
        overrides.pop("namesrvAddr", None)
        return boot.namesrv_settings(options["configFile"], overrides)
    put_ports(overrides, options["namesrv-port"], options["broker-port"])
    return boot.up_settings(options["data"], options["configFile"], overrides)


@contextlib.contextmanager
def _settings_errors_printed() -> Iterator[None]:
    """Print an error of settings and exit with its status; twistd would print a traceback."""
    try:
        yield
    except SettingsError as error:
        print(f"twistmq: {error}", file=sys.stderr, flush=True)
        raise SystemExit(boot.exit_status(error)) from None


class Options(VersionOptions):
    """``twistd twistmq``."""

    subCommands: ClassVar[list[list[object]]] = [
        ["up", None, UpOptions, "Run a name server and a broker in one process."],
        ["namesrv", None, NamesrvOptions, "Run a name server."],
        ["broker", None, BrokerOptions, "Run a broker."],
    ]

    def postOptions(self) -> None:
        if self.subCommand is None:
            raise usage.UsageError("up, namesrv or broker?")


def makeService(options: Options) -> IService:
    """Return the service that ``twistd`` runs.

    The options of twistd determine the log file and whether the process is a daemon.
    """
    server = options.subOptions
    assert isinstance(server, ServerOptions)
    # This comes first, because the following code takes a while. twistd itself handles SIGTERM and
    # SIGINT, at which it stops, and SIGUSR1 if it has a log file, which it then rotates.
    _stop_at_signals(process_reactor(), hang_up())
    print_stacks_at_sigquit()
    for number in MEANINGLESS:
        signal.signal(number, _Logged(process_reactor()))
    process_reactor().addSystemEventTrigger("before", "shutdown", _ignore, MEANINGLESS)
    with _settings_errors_printed():
        starter = make_starter(process_reactor(), server.kind, server.settings, server.command,
                               prints=False, companion=server.companion)

    def end() -> None:
        # An exit status cannot be passed to twistd; it has removed its files when this runs.
        status = starter.end_status()
        if status:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    atexit.register(end)
    parent = MultiService()
    starter.service.setServiceParent(parent)
    return parent
