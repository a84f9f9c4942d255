"""The name server as a Twisted service: its port and its periodic tasks.

Source: NamesrvStartup, NamesrvController @5.3.3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.clock import (
    connections_max,
    give_back_large_blocks,
    monotonic,
    monotonic_ms,
    now_ms,
    raise_open_files_limit,
)
from twistmq.broker.edge.periodic import PeriodicService
from twistmq.broker.edge.process_metrics import process_metrics, serve_http
from twistmq.broker.edge.worker_threads import WorkerThreads
from twistmq.broker.namesrv.requests import NameServer
from twistmq.broker.net.factory import RemotingFactory, StallWatch
from twistmq.broker.net.limits import ConnectionCount
from twistmq.broker.net.listener import ListenerService
from twistmq.broker.net.slow_requests import SlowRequests
from twistmq.broker.net.tls import PortSecurity, tls_client
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.scheduling.steady_clock import TICK_MS, SteadyClock
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import RemotingError
from twistmq.protocol.headers.admin import NotifyMinBrokerIdChangeRequestHeader

__all__ = ["NamesrvService"]


class NamesrvService(Service):
    """One name server.

    ``started`` fires with this service once the name server answers, or fails with the reason.

    :param hooks: the plugins in use; None: no plugins.
    :param connections: the counter of the connections of the process; None if only this name server
        has connections.
    :param port_setting: the setting that gives the port.
    :param watched_alone: whether it serves the pages of plugins itself; otherwise the broker of the
        process serves them.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, settings: Settings, hooks: Hooks | None = None,
        connections: ConnectionCount | None = None, port_setting: str = "listenPort", *,
        watched_alone: bool = True,
    ) -> None:
        self.settings = settings
        self._threads = WorkerThreads(reactor, 1, "namesrv")
        self._connections = connections or ConnectionCount(connections_max)
        self.stalls = StallWatch()
        self.slow = SlowRequests(now_ms, settings)
        self.name_server = NameServer(
            settings, in_thread=self._threads.do, now_ms=now_ms, hooks=hooks,
            steady=SteadyClock(monotonic_ms),
            serve_http=partial(serve_http, reactor) if watched_alone else None,
            figures=process_metrics(self._connections, self.stalls, self.slow))
        self.name_server.routes.notify = self._notify
        security = PortSecurity(reactor, settings, now_ms, self._threads.do)
        by_tls = tls_client(reactor, settings)
        self._client = RemotingClient(reactor, now_ms, monotonic, Dispatcher({}, Hooks()),
                                      tls=by_tls)
        self.started: Deferred[NamesrvService] = Deferred()
        self._hooks_started = False
        channels = ChannelTable()
        channels.on_lost.append(self.name_server.connection_lost)
        rows = {row.code: row for row in self.name_server.handlers()}
        self._dispatcher = Dispatcher(rows, self.name_server.hooks)
        self._factory = RemotingFactory(reactor, self._dispatcher, channels, now_ms,
                                        monotonic, stalls=self.stalls, first_bytes=security.stages,
                                        connections=self._connections, slow=self.slow,
                                        steady=self.name_server.steady)
        self._listener = ListenerService(
            reactor, settings.int("listenPort"), settings.text("bindAddress"),
            settings.int("serverSocketBacklog"), self._factory,
            f"the name server's port: {port_setting}")
        self._periodic = PeriodicService(reactor, now_ms, monotonic, [
            *self.name_server.periodic_tasks(),
            *security.tasks,
            *(by_tls.tasks if by_tls is not None else ()),
            PeriodicTask("close idle connections", 10_000, 10_000,
                         lambda _: self._factory.close_idle(
                             settings.int("serverChannelMaxIdleTimeSeconds") * 1000)),
            PeriodicTask("record that the process runs", 0, TICK_MS, self.name_server.steady.tick),
        ], self.stalls)

    @property
    def port(self) -> int:
        """The port; it is the real one once the name server answers."""
        return self._listener.port

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        Deferred.fromCoroutine(self._start()).addCallbacks(
            lambda _: self.started.callback(self), self.started.errback)

    async def _start(self) -> None:
        raise_open_files_limit()
        give_back_large_blocks()
        self.settings.check()
        self._threads.start()
        self._hooks_started = True
        hooks = self.name_server.hooks
        hooks.make_plugins(self.name_server)
        self._dispatcher.hooks_made()
        await hooks.start_namesrv()
        self.name_server.start()
        self._listener.startService()
        self.name_server.address = f"{self.settings.text('bindAddress')}:{self.port}"
        self._periodic.startService()

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._periodic.running:
            self._periodic.stopService()
        self.name_server.stop()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._listener.stopService()
        if self._hooks_started:
            self._hooks_started = False
            await self.name_server.hooks.stop_namesrv()
        if self._threads.started:
            await self.name_server.kv_config.when_saved()
            self._threads.stop()
        await self._client.close()

    def _notify(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        """Notify a broker of the current lowest broker id in its group.

        A broker that does not receive the notice learns the id when it next asks for its group.
        """
        sent = Deferred.fromCoroutine(self._client.invoke_oneway(
            address, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header))
        sent.addErrback(self._notify_failed, address)

    def _notify_failed(self, failure: Failure, address: str) -> None:
        if failure.check(RemotingError):
            self.log.warn("the broker at {address} did not get the new lowest broker id: {reason}",
                          address=address, reason=failure.getErrorMessage())
        else:
            self.log.failure("the broker at {address} did not get the new lowest broker id",
                             failure=failure, address=address)
