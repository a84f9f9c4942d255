"""The brokers of one command as a Twisted service, with the name server of ``twistmq up``.

Source: design of twistmq.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import EXIT_FAILED, EXIT_OK, StartRefused, own_name_server
from twistmq.broker.edge.namesrv_service import NamesrvService
from twistmq.broker.edge.process_metrics import serve_http
from twistmq.broker.observe.supervisor_pages import PageAnswer
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.interfaces import OpenPort
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.supervisor.broker_process import BrokerProcess, StartFailed
from twistmq.broker.supervisor.child_command import ChildCommand
from twistmq.broker.supervisor.members import Member
from twistmq.broker.supervisor.new_stores import give_tables

__all__ = ["SupervisorService"]

T = TypeVar("T")


class SupervisorService(Service):
    """Runs brokers, each in its own process.

    A stop sends SIGTERM to each broker; no other signal is passed on.

    ``started`` fires with this service once all brokers answer, or fails with the reason why one of
    them does not.

    :param settings: the settings of the command.
    :param command: the command of each broker.
    :param hooks: the plugins of a broker; some of them provide pages for a supervisor.
    :param name_server: the name server of ``twistmq up``; it runs in this process.
    :param on_line: called with a broker's name, each line that it prints, and whether the line was
        printed on standard error.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, settings: Settings, members: Sequence[Member],
        command: ChildCommand, hooks: Hooks, name_server: NamesrvService | None,
        on_line: Callable[[str, str, bool], None],
    ) -> None:
        self._reactor = reactor
        self.settings = settings
        self.members = members
        self._command = command
        self.hooks = hooks
        self.name_server = name_server
        self.brokers = [
            BrokerProcess(reactor, member.name, self._arguments_of(member), on_line)
            for member in members]
        self._ports: list[OpenPort] = []
        self._stopping = False
        self.started: Deferred[SupervisorService] = Deferred()

    def _arguments_of(self, member: Member) -> Callable[[], list[str]]:
        """Return a function for the arguments of a start, when the name server's port is known."""
        def arguments() -> list[str]:
            values = dict(member.values)
            if self.name_server is not None:
                own = own_name_server(
                    self.name_server.settings.text("bindAddress"),
                    self.settings.text("brokerIP1"), self.name_server.port)
                named = [each for each in self.settings.addresses("namesrvAddr")
                         if each not in own]
                values["namesrvAddr"] = ";".join([own[0], *named])
            return self._command.arguments(values)

        return arguments

    @property
    def status(self) -> int:
        """The exit status after all brokers have ended: the first one that is not 0."""
        statuses = [broker.status for broker in self.brokers if broker.status]
        # A broker that was ended by a signal does not have an exit status.
        return min(statuses[0], EXIT_FAILED) if statuses else EXIT_OK

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        Deferred.fromCoroutine(self._start()).addCallbacks(
            lambda _: self.started.callback(self), self.started.errback)

    async def _start(self) -> None:
        give_tables(RealDisk(), self.settings, self.members)
        if self.name_server is not None:
            self.name_server.startService()
            await self.name_server.started
        try:
            if self._stopping:
                raise CancelledError
            await gatherResults([broker.start() for broker in self.brokers], consumeErrors=True)
        except FirstError as error:
            failure = error.subFailure.value
            if not isinstance(failure, StartFailed) or self._stopping:
                raise CancelledError from None
            # A broker that ends with status 0 before it answers has not started either.
            raise StartRefused(
                min(failure.status or EXIT_FAILED, EXIT_FAILED), str(failure)) from None
        for pages in self.hooks.supervisor_pages(self.settings, self):
            try:
                self._ports.append(serve_http(
                    self._reactor, pages.resource, pages.port, pages.interface))
            except OSError as error:
                raise self.settings.unavailable(
                    pages.port_setting, f"cannot be listened on at {pages.interface}: "
                                        f"{error.strerror or error}") from None

    def ask(self, port_setting: str, path: str) -> Deferred[dict[str, PageAnswer]]:
        """See BrokerPages."""
        from twistmq.broker.supervisor.page_requests import ask_pages  # twisted.web is large

        urls = {member.name: f"http://127.0.0.1:{member.values[port_setting]}{path}"
                for member in self.members}
        if self.name_server is not None:
            port = self.name_server.settings.int(port_setting)
            urls["name server"] = f"http://127.0.0.1:{port}{path}"
        return ask_pages(self._reactor, urls)

    @property
    def restarts(self) -> dict[str, int]:
        """See BrokerPages."""
        return {broker.name: broker.restarts for broker in self.brokers}

    def on_thread(self, call: Callable[[], T]) -> Deferred[T]:
        """See BrokerPages."""
        result: Deferred[T] = deferToThreadPool(
              self._reactor, self._reactor.getThreadPool(), call)
        return result

    def stopService(self) -> Deferred[None]:
        """Stop all brokers at the same time, then the name server, so that they can unregister."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._stopping = True
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for port in self._ports:
            await port.stop()
        await gatherResults([broker.stop() for broker in self.brokers])
        if self.name_server is not None and self.name_server.running:
            await self.name_server.stopService()
