"""Runs the services: under ``twistd -n twistmq ...``, and for the command line.

This is the only module that imports the reactor, and it does so when it runs one, so that
``twistd --reactor`` still chooses. A process prints its boot lines once it answers; one whose start
fails says why on standard error, stops and ends with the status ``boot`` gives it.

Source: BrokerStartup, NamesrvStartup @5.3.3, for the boot lines.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

from twisted.application.service import IService, MultiService
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python import usage
from twisted.python.failure import Failure

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.clock import use_monotonic
from twistmq.broker.edge.command_line import (
    parse_overrides,
    print_settings,
    put_ports,
    version_text,
)
from twistmq.broker.edge.logs import begin_logging
from twistmq.broker.errors import SettingsError

__all__ = ["Options", "Starter", "makeService", "process_reactor", "run"]


class Starter:
    """Makes a service, watches its start, and knows how the process ends.

    :param kind: "up", "namesrv" or "broker"; also the name of the log file.
    :param prints: whether the terminal is told too; twistd's log goes there already.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, kind: str, settings: Settings, *, prints: bool = True
    ) -> None:
        from twistmq.broker.edge import services

        self._reactor = reactor
        self._prints = prints
        self.kind = kind
        self.settings = settings
        #: The exit status of a start that failed.
        self.status = boot.EXIT_OK
        self.service: Any
        if kind == "up":
            self.service = services.make_up_service(
                reactor, boot.name_server_settings(settings), settings)
        elif kind == "namesrv":
            self.service = services.make_namesrv_service(reactor, settings)
        else:
            self.service = services.make_broker_service(reactor, settings)
        self._noticed = self._plugin_notices()
        for notice in boot.notices(kind, settings, self._noticed):
            self._warn(notice)
        started: Deferred[Any] = self.service.started
        started.addCallbacks(self._started, self._failed)

    def _plugin_notices(self) -> list[str]:
        """The lines to log about the plugins."""
        found: list[str] = []
        if self.kind != "broker":
            namesrv = self.service.namesrv if self.kind == "up" else self.service
            found += namesrv.name_server.hooks.notices
        if self.kind != "namesrv":
            found += self._broker().kernel.hooks.notices
        return found

    def _warn(self, text: str) -> None:
        """Say it in the log and on the terminal: a reader of a log file learns it too late."""
        self.log.warn("{text}", text=text)
        if self._prints:
            print(f"twistmq: {text}", file=sys.stderr, flush=True)

    def _started(self, _: object) -> None:
        for notice in self._plugin_notices():
            if notice not in self._noticed:
                self._warn(notice)
        for line in self.boot_lines():
            self.log.info("{line}", line=line)
            if self._prints:
                print(line, flush=True)
        if self.kind != "namesrv":
            for address, why in self._broker().name_servers.unreached.items():
                self._warn(f"the name server {address} does not know this broker yet, which tries "
                           f"again and again: {why}")

    def boot_lines(self) -> list[str]:
        """The lines that Apache's servers print, and for ``up`` the next step."""
        if self.kind == "namesrv":
            return [_namesrv_line(self.service)]
        if self.kind == "broker":
            return [_broker_line(self.service)]
        name_server = self.service.namesrv
        listens = self.settings.text("bindAddress")
        host = self.settings.text("brokerIP1") if listens in boot.WILDCARDS else listens
        address = f"{host}:{name_server.port}"
        return [
            _namesrv_line(name_server), _broker_line(self.service.broker),
            f"Clients use the name server address {address}, for example:",
            f"  producer.setNamesrvAddr(\"{address}\");",
            f"Data is in {self.settings.text('storePathRootDir')}"
            + (f", logs in {boot.log_folder(self.settings)}. Ctrl-C stops." if self._prints
               else "."),
        ]

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        assert error is not None
        if isinstance(error, CancelledError):
            self.log.info("the start is cancelled: the process was asked to stop")
            return
        self.status = boot.exit_status(error)
        if isinstance(error, boot.EXPECTED_FAILURES):
            self.log.error("the start failed: {reason}", reason=boot.failure_text(error))
        else:
            self.log.failure("the start failed", failure)
        if self._prints:
            print(f"twistmq: {boot.failure_text(error)}", file=sys.stderr, flush=True)
        # At once when the reactor runs, else when it does: a start may fail before that.
        self._reactor.callWhenRunning(self._stop)

    def end_status(self) -> int:
        """The exit status once all is stopped: not 0 where the store could not be, either."""
        if self.status or self.kind == "namesrv":
            return self.status
        fault = self._broker().kernel.store.stop_fault
        if not fault:
            return boot.EXIT_OK
        if self._prints:
            print(f"twistmq: the store could not be stopped cleanly: {fault}", file=sys.stderr,
                  flush=True)
        return boot.EXIT_FAILED

    def _broker(self) -> Any:
        return self.service.broker if self.kind == "up" else self.service

    def _stop(self) -> None:
        with contextlib.suppress(ReactorNotRunning):  # a signal came first
            self._reactor.stop()


def _namesrv_line(service: Any) -> str:
    return ("The Name Server boot success. serializeType=JSON, address "
            f"{service.settings.text('bindAddress')}:{service.port}")


def _broker_line(service: Any) -> str:
    kernel = service.kernel
    line = (f"The broker[{kernel.broker_name}, {kernel.broker_address}] boot success. "
            "serializeType=JSON")
    addresses = ";".join(service.name_servers.addresses)
    return f"{line} and name server is {addresses}" if addresses else line


def process_reactor() -> Any:
    """The process's reactor; the first access installs it."""
    from twisted.internet import reactor

    use_monotonic(reactor)
    return reactor


def run(kind: str, settings: Settings) -> int:
    """Run a service until a signal stops it: no acknowledged message is lost by SIGTERM.

    :returns: the exit status; after a signal 0, if the store could be stopped cleanly.
    :raises SettingsError: when it cannot even be made.
    """
    begin_logging(kind, boot.log_folder(settings), settings)
    reactor = process_reactor()
    starter = Starter(reactor, kind, settings)
    reactor.addSystemEventTrigger(
        "before", "shutdown", starter.service.stopService)
    reactor.callWhenRunning(starter.service.startService)
    reactor.run()
    return starter.end_status()


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
            self.settings = _load(self, parse_overrides(self.pairs, self["namesrvAddr"]))
        important = self.get("printImportantConfig", False)
        if self["printConfigItem"] or important:
            print_settings(self.settings, important_only=not self["printConfigItem"])
            raise SystemExit(boot.EXIT_OK)


class BrokerOptions(ServerOptions):
    """``twistd twistmq broker``."""

    kind = "broker"
    optParameters: ClassVar[list[list[str | None]]] = [
        ["namesrvAddr", "n", None, "The name servers to register with: host:port;..."],
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
    with _settings_errors_printed():
        starter = Starter(process_reactor(), server.kind, server.settings, prints=False)

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
