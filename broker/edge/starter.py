"""Starting a service: its creation, its start, its printed lines and its exit status.

Source: BrokerStartup, NamesrvStartup @5.3.3, for the boot lines.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO, TypeAlias

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.logs import is_log_on_stderr
from twistmq.broker.edge.systemd_notify import notify_ready
from twistmq.broker.edge.unserved_stores import unserved_notices
from twistmq.broker.store.disk import RealDisk
from twistmq.protocol.printable import one_line

__all__ = ["Companion", "Starter", "namesrv_line"]

#: Starts something beside the servers of ``up`` once they answer. It is given the reactor and the
#: address of the name server, and returns a line for the terminal. This line is not logged, because
#: it may contain a secret.
Companion: TypeAlias = Callable[[Any, str], str]


class Starter:
    """Creates a service, watches its start, and determines the exit status of the process.

    :param kind: "up", "namesrv" or "broker"; also the name of the log file.
    :param prints: whether to print lines to the terminal as well; twistd's log is printed there
        already.
    :param companion: what starts beside the servers of ``up``; a failure of it fails the start.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, kind: str, settings: Settings, *, prints: bool = True,
        companion: Companion | None = None,
    ) -> None:
        self._reactor = reactor
        self._companion = companion
        # A log on standard error contains the lines already.
        self._prints = prints and not is_log_on_stderr(settings)
        #: Whether to print the companion's line, which may contain a secret, so no log contains it.
        self._prints_companion = prints
        self.kind = kind
        self.settings = settings
        #: The exit status of a start that failed.
        self.status = boot.EXIT_OK
        self.service: Any = self._make()
        self._noticed = self._plugin_notices()
        for notice in [*boot.notices(kind, settings, self._noticed), *self._store_notices()]:
            self._warn(notice)
        started: Deferred[Any] = self.service.started
        started.addCallback(self._started).addErrback(self._failed)

    def _make(self) -> Any:
        """Make the service; :raises SettingsError: when that is not possible."""
        from twistmq.broker.edge import services

        if self.kind == "up":
            return services.make_up_service(
                self._reactor, boot.name_server_settings(self.settings), self.settings)
        if self.kind == "namesrv":
            return services.make_namesrv_service(self._reactor, self.settings)
        return services.make_broker_service(self._reactor, self.settings)

    def _store_notices(self) -> list[str]:
        """Return the lines about stores that exist and are not served."""
        if self.kind == "namesrv":
            return []
        root = self.settings.text("storePathRootDir")
        return unserved_notices(RealDisk(), root, {root})

    def _plugin_notices(self) -> list[str]:
        """Return the lines to log about the plugins."""
        notices: list[str] = []
        if self.kind != "broker":
            namesrv = self.service.namesrv if self.kind == "up" else self.service
            notices += namesrv.name_server.hooks.notices
        if self.kind != "namesrv":
            notices += self._broker().kernel.hooks.notices
        return notices

    def _warn(self, text: str) -> None:
        """Write a warning to the log and to the terminal, since a log may be read too late."""
        self.log.warn("{text}", text=text)
        # The log escapes what other programs wrote; a terminal would obey it.
        self._print(f"twistmq: {one_line(text)}", sys.stderr)

    def _print(self, line: str, stream: TextIO) -> None:
        """Print a line if printing is enabled."""
        if self._prints:
            self._print_always(line, stream)

    @staticmethod
    def _print_always(line: str, stream: TextIO) -> None:
        """Print a line; a closed output does not stop a start."""
        with contextlib.suppress(OSError):
            try:
                print(line, file=stream, flush=True)
            except BrokenPipeError:
                # Python buffers the line, and would fail to write it at the end of the process.
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)

    def _started(self, _: object) -> None:
        companion_line = ""
        if self._companion is not None:
            companion_line = self._companion(
                self._reactor, self._client_address(self._name_server()))
        for notice in self._plugin_notices():
            if notice not in self._noticed:
                self._warn(notice)
        for line in self.boot_lines():
            self.log.info("{line}", line=line)
            self._print(line, sys.stdout)
        if companion_line and self._prints_companion:
            self._print_always(companion_line, sys.stdout)
        for address, why in self._unreached().items():
            self._warn(f"the name server {address} does not know this broker yet, which tries "
                       f"again and again: {why}")
        notify_ready()

    def _unreached(self) -> dict[str, str]:
        """Return the name servers with which registration failed, and the reasons."""
        if self.kind == "namesrv":
            return {}
        unreached: dict[str, str] = self._broker().name_servers.unreached
        return unreached

    def boot_lines(self) -> list[str]:
        """Return the lines that Apache's servers print, and hints for users of the defaults."""
        if self.kind == "namesrv":
            return [namesrv_line(self.service)]
        if self.kind == "broker":
            return [_broker_line(self.service), *self.durability_lines()]
        return [namesrv_line(self.service.namesrv), _broker_line(self.service.broker),
                *self.durability_lines(), *self.next_steps(self.service.namesrv)]

    def durability_lines(self) -> list[str]:
        """Return the line that states when a send is acknowledged, unless that is after a sync."""
        notice = boot.durability_notice(self.settings)
        return [notice] if notice else []

    def next_steps(self, name_server: Any) -> list[str]:
        """Return the lines printed after ``twistmq up``: the address for clients, the folders."""
        address = self._client_address(name_server)
        return [
            f"Clients use the name server address {address}, for example:",
            f"  producer.setNamesrvAddr(\"{address}\");",
            f"Data is in {self.settings.text('storePathRootDir')}"
            + (f", logs in {boot.log_folder(self.settings)}. Ctrl-C stops." if self._prints
               else "."),
        ]

    def _client_address(self, name_server: Any) -> str:
        """Return "host:port" of the name server in this process, for clients."""
        listens = self.settings.text("bindAddress")
        host = self.settings.text("brokerIP1") if listens in boot.WILDCARDS else listens
        return f"{host}:{name_server.port}"

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
        self._print(f"twistmq: {one_line(boot.failure_text(error))}", sys.stderr)
        # If the reactor runs, stop it at once; otherwise stop it once it runs, because a start may
        # fail earlier.
        self._reactor.callWhenRunning(self._stop)

    def end_status(self) -> int:
        """Return the exit status after the stop; it is not 0 if stopping the store failed."""
        if self.status or self.kind == "namesrv":
            return self.status
        fault = self._broker().kernel.store.stop_fault
        if not fault:
            return boot.EXIT_OK
        self._print(f"twistmq: the store could not be stopped cleanly: {one_line(fault)}",
                    sys.stderr)
        return boot.EXIT_FAILED

    def _name_server(self) -> Any:
        """Return the service of the name server of ``up``."""
        return self.service.namesrv

    def _broker(self) -> Any:
        return self.service.broker if self.kind == "up" else self.service

    def _stop(self) -> None:
        with contextlib.suppress(ReactorNotRunning):  # a signal came first
            self._reactor.stop()


def namesrv_line(service: Any) -> str:
    return ("The Name Server boot success. serializeType=JSON, address "
            f"{service.settings.text('bindAddress')}:{service.port}")


def _broker_line(service: Any) -> str:
    kernel = service.kernel
    line = (f"The broker[{kernel.broker_name}, {kernel.broker_address}] boot success. "
            "serializeType=JSON")
    addresses = ";".join(service.name_servers.addresses)
    return f"{line} and name server is {addresses}" if addresses else line
