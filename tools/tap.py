"""Runs the services: under ``twistd -n twistmq ...``, and for the command line.

This is the only module that imports the reactor, and it does so when it runs one, so that
``twistd --reactor`` still chooses. A process prints its boot lines once it answers; one whose start
fails says why on standard error, stops and ends with the status ``boot`` gives it.

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
from twistmq.broker.edge.readiness import notify_stopping
from twistmq.broker.edge.starter import Starter
from twistmq.broker.errors import SettingsError
from twistmq.broker.supervisor.child_command import ChildCommand, child_command
from twistmq.tools.command_line import (
    parse_overrides,
    print_each,
    put_ports,
    version_text,
)

__all__ = ["Options", "handle_signals", "makeService", "make_starter", "process_reactor", "run"]

_log = Logger()


def make_starter(
    reactor: Any, kind: str, settings: Settings, command: ChildCommand | None, *,
    prints: bool = True,
) -> Starter:
    """See :func:`run`; :raises SettingsError: when the service cannot be made."""
    if command is None:
        return Starter(reactor, kind, settings, prints=prints)
    from twistmq.broker.supervisor.starter import SupervisorStarter

    return SupervisorStarter(reactor, kind, settings, command, prints=prints)


def process_reactor() -> Any:
    """The process's reactor; the first access installs it."""
    from twisted.internet import reactor

    use_monotonic(reactor)
    return reactor


def run(kind: str, settings: Settings, command: ChildCommand | None = None) -> int:
    """Run a service until a signal stops it: no acknowledged message is lost by SIGTERM.

    :param command: that of brokers with processes of their own; None: the broker is in this one.
    :returns: the exit status; after a signal 0, if the store could be stopped cleanly.
    :raises SettingsError: when it cannot even be made.
    """
    begin_logging(kind if command is None else "brokers", boot.log_folder(settings), settings)
    reactor = process_reactor()
    starter = make_starter(reactor, kind, settings, command)
    reactor.addSystemEventTrigger("before", "shutdown", notify_stopping)
    reactor.addSystemEventTrigger(
        "before", "shutdown", starter.service.stopService)
    reactor.callWhenRunning(handle_signals, reactor)
    reactor.callWhenRunning(starter.service.startService)
    reactor.run()
    return starter.end_status()


def handle_signals(reactor: Any) -> None:
    """Let no signal that an operator or a terminal sends end the process uncleanly.

    The reactor is stopped at SIGTERM and SIGINT, and, as a JVM is, at SIGHUP, which a terminal that
    is closed sends; ``nohup`` has it ignored, and it stays so. SIGQUIT prints what each thread
    does. SIGUSR1 and SIGUSR2 have no meaning here and are logged.
    """
    _stop_at_signals(reactor, [signal.SIGTERM, signal.SIGINT, *hang_up()])
    print_stacks_at_sigquit()
    for number in MEANINGLESS:
        signal.signal(number, _Logged(reactor))


class _Logged:
    """The handler of a signal that has no meaning: it logs the signal.

    It is false, because ``twistd`` takes SIGUSR1 for its log file only if the present handler is.
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
    """Stop the reactor at these signals; further ones while it stops change nothing.

    With Twisted's own handlers the second one is an unhandled error in the log, and Python gives
    up handlers of its own before the process ends: there the second one would kill it, as would a
    signal without a meaning. systemd, and a supervisor, may both send one.
    """
    def stop(name: str) -> None:
        _ignore((*numbers, *MEANINGLESS, signal.SIGQUIT))
        _log.info("{name} received, stopping", name=name)
        with contextlib.suppress(ReactorNotRunning):
            reactor.stop()

    first: list[int] = []

    def received(number: int, _: object) -> None:
        # Two signals of the same moment are both pending when Python calls this for one of them.
        # Python complains of a pending signal that is ignored by then, so `stop` ignores them.
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
    """Options whose --version is ours."""

    def opt_version(self) -> None:
        """Show the version and whether the hot modules are compiled."""
        print(version_text())
        raise SystemExit(boot.EXIT_OK)


class ServerOptions(VersionOptions):
    """The options of one server, as its twistmq command has them."""

    kind: ClassVar[str]
    synopsis = "[options] [key=value...]"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["configFile", "c", None, "A Java .properties file with settings."],
    ]
    optFlags: ClassVar[list[list[str]]] = [
        ["printConfigItem", "p", "Print all settings and exit."],
    ]

    def parseArgs(self, *pairs: str) -> None:
        self.pairs = pairs

    def postOptions(self) -> None:
        """Read the settings; print them when that is all that was asked for.

        The fault is told without twistd's help, which is long, in front of it.
        """
        with _settings_errors_printed():
            overrides = parse_overrides(self.pairs, self["namesrvAddr"])
            self.settings = _load(self, overrides)
            #: That of brokers with processes of their own.
            self.command = child_command(
                self.get("brokers"), self.kind, self.settings, self["configFile"], overrides)
            important = self.get("printImportantConfig", False)
            if self["printConfigItem"] or important:
                print_each(self.kind, self.settings, self.command,
                           important_only=not self["printConfigItem"])
                raise SystemExit(boot.EXIT_OK)


class BrokerOptions(ServerOptions):
    """``twistd twistmq broker``."""

    kind = "broker"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["namesrvAddr", "n", None, "The name servers to register with: host:port;..."],
        ["brokers", None, None, "Run so many brokers, each in a process of its own; auto: one a "
                                "core, less one."],
    ]
    optFlags: ClassVar[list[list[str]]] = [
        ["printImportantConfig", "m", "Print important settings and exit."],
    ]


class UpOptions(BrokerOptions):
    """``twistd twistmq up``."""

    kind = "up"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["data", None, "~/.twistmq", "The folder of everything that is kept."],
        ["namesrv-port", None, None, "The name server's port. [default: 9876]"],
        ["broker-port", None, None, "The broker's port. [default: 10911]"],
    ]


class NamesrvOptions(ServerOptions):
    """``twistd twistmq namesrv``."""

    kind = "namesrv"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["namesrvAddr", "n", None, "Taken, as mqnamesrv does; a name server has no use for it."],
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
    """Print the fault of settings and exit with its status; twistd would print a traceback."""
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
    """The service that ``twistd`` runs. Its own options say where logs go and whether it is a
    daemon."""
    server = options.subOptions
    assert isinstance(server, ServerOptions)
    # First, because the rest takes a while. SIGTERM and SIGINT are twistd's, which stops at them,
    # and so is SIGUSR1 where it has a log file, of which it begins another one.
    _stop_at_signals(process_reactor(), hang_up())
    print_stacks_at_sigquit()
    for number in MEANINGLESS:
        signal.signal(number, _Logged(process_reactor()))
    process_reactor().addSystemEventTrigger("before", "shutdown", _ignore, MEANINGLESS)
    with _settings_errors_printed():
        starter = make_starter(process_reactor(), server.kind, server.settings, server.command,
                               prints=False)

    def end() -> None:
        # twistd has no way to be told a status; it has removed its files when this runs.
        status = starter.end_status()
        if status:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    atexit.register(end)
    parent = MultiService()
    starter.service.setServiceParent(parent)
    return parent
