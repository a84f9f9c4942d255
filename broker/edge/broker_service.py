"""The broker as a Twisted service: kernel, ports, registration, periodic tasks.

Source: BrokerStartup, BrokerController.start and shutdown @5.3.3.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.client.name_servers import BrokerIdentity, NameServers
from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.config.inner_credentials import inner_credentials
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import VIP_PORT_DISTANCE
from twistmq.broker.edge.clock import (
    connections_max,
    give_back_large_blocks,
    monotonic,
    monotonic_ms,
    now_ms,
    raise_open_files_limit,
)
from twistmq.broker.edge.name_server_list import NameServerList
from twistmq.broker.edge.periodic import PeriodicService
from twistmq.broker.edge.process_metrics import process_metrics
from twistmq.broker.edge.reactor_host import ReactorHost
from twistmq.broker.edge.worker_threads import QuickSync, WorkerThreads
from twistmq.broker.kernel.kernel import Kernel
from twistmq.broker.kernel.store_maker import make_store
from twistmq.broker.namesrv.requests import NameServer
from twistmq.broker.net.factory import InFlight, RemotingFactory, StallWatch
from twistmq.broker.net.idle_spin import IdleSpin
from twistmq.broker.net.limits import ConnectionCount, KeptBytes
from twistmq.broker.net.listener import ListenerService
from twistmq.broker.net.run_queue import RunQueue
from twistmq.broker.net.slow_requests import SlowRequests
from twistmq.broker.net.stream_ports import StreamPorts
from twistmq.broker.net.tls import PortSecurity, StreamTls, tls_client
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.scheduling.soon import Soon
from twistmq.broker.scheduling.steady_clock import TICK_MS
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.protocol.errors import BrokerError

__all__ = ["BrokerService"]


#: The number of attempts to find a free pair of ports if the system chooses them.
_FREE_PORT_ATTEMPTS = 20
#: One thread for flushes, and one for file allocations, which would delay the flushes.
_THREAD_COUNT = 2
#: Bounds of the registration period, ms. Source: BrokerController.start.
_REGISTER_PERIOD_MIN_MS, _REGISTER_PERIOD_MAX_MS = 10_000, 60_000
#: A registration of at most this size is encoded immediately, because that takes under a
#: millisecond.
_REGISTRATION_SMALL_SIZE = 128 * 1024
#: How long a stopping broker waits for name servers to receive the notice, ms.
_UNREGISTER_TIMEOUT_MS = 3000


class BrokerService(Service):
    """One broker.

    ``started`` fires with this service once the broker answers, or fails with the reason.

    :param io: the disk; a test passes another one.
    :param connections: the counter of the connections of the process; None if only this broker has
        connections.
    :param name_server: the name server in the same process, or None.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, settings: Settings, hooks: Hooks, io: IStoreIO | None = None,
        connections: ConnectionCount | None = None, name_server: NameServer | None = None,
    ) -> None:
        self._reactor = reactor
        self.settings = settings
        # This comes before the store, which opens as many queue files as the limit allows.
        raise_open_files_limit()
        give_back_large_blocks()
        self._threads = WorkerThreads(reactor, _THREAD_COUNT, "store")
        self.stalls = StallWatch()
        self.slow = SlowRequests(now_ms, settings)
        self._in_flight, self._kept = InFlight(), KeptBytes()
        self._connections = connections or ConnectionCount(connections_max)
        self._idle_spin = IdleSpin(reactor)
        self._run_queue = RunQueue(reactor, monotonic, self.stalls.observe)
        sync = QuickSync(reactor, self._threads, monotonic, self._idle_spin.is_lone)
        store = make_store(settings, hooks, io or RealDisk(), now_ms, self._threads.do, sync.run,
                           monotonic_ms)
        self._security = PortSecurity(reactor, settings, now_ms, self._threads.do)
        self._tls_client = tls_client(reactor, settings)
        self.client = RemotingClient(reactor, now_ms, monotonic, Dispatcher({}, Hooks()),
                                     settings.int("connectTimeoutMillis"), self._tls_client,
                                     inner_credentials(settings))
        self.name_servers = NameServers(self.client, (), reactor)
        self.name_servers.on_late = lambda answers: self.kernel.registered(answers)
        self.name_server_list = NameServerList(reactor, settings, self._name_servers_changed)
        self.name_servers.addresses = self.name_server_list.addresses
        figures = {
            **process_metrics(self._connections, self.stalls, self.slow),
            "requests_in_flight_bytes": lambda: self._in_flight.total_bytes,
            "kept_bytes": lambda: self._kept.total_bytes}
        health_checks = {
            "answers": self._answers_fault, "name servers": self._name_servers_fault,
            "registration": self._registration_fault}
        self._streams = StreamPorts(
            reactor, settings.text("bindAddress"), self._connections,
            StreamTls(reactor, settings, self._security))
        self.kernel = Kernel(settings, store, hooks, ReactorHost(
            reactor, self.client, self.name_servers, self._register_soon, name_server, figures,
            health_checks, self._streams))
        self.started: Deferred[BrokerService] = Deferred()
        self._listeners: list[ListenerService] = []
        self._periodic: PeriodicService | None = None
        self._registering = Soon(lambda: self.register(force=True), "the registration")
        self._starting: Deferred[None] | None = None
        self._kernel_started = False
        self._ready = False

    # --- start

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        self._threads.start()
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addCallbacks(self._started, self._failed)

    async def _start(self) -> None:
        try:
            self.settings.check()
            await self.kernel.start()
            self._kernel_started = True
            self._run_queue.start(self.kernel.providers.flow_control)
            await self._listen()
            self._start_periodic_tasks()
            fetched = self.name_server_list.fetch()
            if fetched is not None:
                await fetched
                self._require_running()
            self._ready = True
            await self.register(force=True)
        except Exception:
            # A broker that does not run leaves nothing open: no port, no lock and no thread.
            await self._close()
            raise

    def _require_running(self) -> None:
        """:raises CancelledError: when the service has been stopped."""
        if not self.running:
            raise CancelledError

    def _started(self, _: None) -> None:
        self._starting = None
        self.log.info("broker {name} answers on {address}, plugins: {plugins}",
                      name=self.kernel.broker_name, address=self.kernel.broker_address,
                      plugins=", ".join(self.kernel.hooks.plugin_names) or "none")
        self.started.callback(self)

    def _failed(self, failure: Failure) -> None:
        self._starting = None
        self.started.errback(failure)

    async def _listen(self) -> None:
        """Open the main port, and the VIP port, whose number is lower by two."""
        port = self.settings.int("listenPort")
        vip_rows = {code: row for code, row in self.kernel.dispatcher.handlers.items()
                    if row.on_vip_port}
        vip_dispatcher = self.kernel.dispatcher.restricted_to(vip_rows)
        for attempts_left in reversed(range(1 if port else _FREE_PORT_ATTEMPTS)):
            main = self._listener(port, self.kernel.dispatcher, "the broker's port: listenPort")
            main.startService()
            vip = self._listener(
                max(main.port - VIP_PORT_DISTANCE, 0), vip_dispatcher,
                f"the broker's VIP port: two below listenPort {main.port}")
            try:
                vip.startService()
            except BrokerError:
                # The system chose the main port; it does not guarantee that the VIP port is free.
                await main.stopService()
                if not attempts_left:
                    raise
            else:
                break
        self._listeners = [main, vip]
        self.kernel.identity.set_port(main.port)

    def _listener(self, port: int, dispatcher: Dispatcher, purpose: str) -> ListenerService:
        factory = RemotingFactory(
            self._reactor, dispatcher, self.kernel.channels, now_ms, monotonic, self._in_flight,
            self.stalls, self._security.stages, self._kept, self._connections,
            idle_spin=self._idle_spin, slow=self.slow, run_queue=self._run_queue,
            steady=self.kernel.steady)
        return ListenerService(self._reactor, port, self.settings.text("bindAddress"),
                               self.settings.int("serverSocketBacklog"), factory, purpose)

    @property
    def port(self) -> int:
        """The main port, once the broker answers."""
        return self._listeners[0].port

    @property
    def vip_port(self) -> int:
        return self._listeners[1].port

    # --- for monitoring

    def _answers_fault(self) -> str:
        return "" if self._ready else "the broker does not answer yet, or no longer"

    def _name_servers_fault(self) -> str:
        """Return why clients cannot find the broker; one name server that knows it is enough."""
        unreached = self.name_servers.unreached
        if not self.name_servers.addresses:
            return self.name_server_list.fault
        if not unreached or set(self.name_servers.addresses) - set(unreached):
            return ""
        return "; ".join(f"{address}: {why}" for address, why in sorted(unreached.items()))

    def _registration_fault(self) -> str:
        """Return why a name server lacks data that plugins add to topics."""
        return "; ".join(f"static topics are left out at {address}: {why}"
                         for address, why in sorted(self.name_servers.told_less.items()))

    # --- periodic work

    def _start_periodic_tasks(self) -> None:
        factory = self._listeners[0].factory
        tasks = [
            *self.kernel.periodic_tasks,
            *self._security.tasks,
            *(self._tls_client.tasks if self._tls_client is not None else ()),
            *self.name_server_list.tasks(),
            PeriodicTask("register with name servers", _REGISTER_PERIOD_MIN_MS,
                         self._register_period_ms, self._register_due),
            PeriodicTask("close idle connections", 10_000, 10_000,
                         lambda _: factory.close_idle(self.settings.int(
                             "serverChannelMaxIdleTimeSeconds") * 1000)),
            PeriodicTask("record that the process runs", 0, TICK_MS, self.kernel.steady.tick),
        ]
        self._periodic = PeriodicService(self._reactor, now_ms, monotonic, tasks, self.stalls)
        self._periodic.startService()

    def _register_period_ms(self) -> int:
        period_ms = self.settings.int("registerNameServerPeriod")
        return max(_REGISTER_PERIOD_MIN_MS, min(period_ms, _REGISTER_PERIOD_MAX_MS))

    def _register_due(self, _: int) -> Deferred[None]:
        return Deferred.fromCoroutine(self.register(self.settings.flag("forceRegister")))

    # --- registration

    def _name_servers_changed(self) -> None:
        """Register with the new list of name servers; removed servers forget this broker later."""
        self.name_servers.addresses = self.name_server_list.addresses
        self._register_soon()

    @property
    def identity(self) -> BrokerIdentity:
        kernel = self.kernel
        return BrokerIdentity(kernel.cluster_name, kernel.broker_name, kernel.broker_id,
                              kernel.broker_address, kernel.identity.ha_address)

    async def register(self, force: bool) -> None:
        """Register the topics of this broker with all name servers.

        :param force: whether to register even if all of them know the topics already.
        """
        if not self.name_servers.addresses or not self.kernel.identity.registers:
            return
        identity = self.identity
        topics = self.kernel.topic_config
        timeout_ms = self.settings.int("registerBrokerTimeoutMills")
        if not force and not await self.name_servers.need_register(
            identity, topics.data_version, timeout_ms=timeout_ms
        ):
            return
        compressed = self.settings.flag("compressedRegister")
        encode = self.kernel.tables.registration(compressed)
        small = topics.rows_size <= _REGISTRATION_SMALL_SIZE
        body = encode() if small else await self._threads.do(encode)
        kernel_identity = self.kernel.identity
        answers = await self.name_servers.register(
            identity, body, timeout_ms=timeout_ms, compressed=compressed,
            heartbeat_timeout_ms=kernel_identity.heartbeat_timeout_ms,
            enable_acting_master=kernel_identity.enable_acting_master,
            plain=lambda: self.kernel.tables.plain_registration(compressed)())
        if answers:
            self.kernel.registered(answers)

    def _register_soon(self) -> Deferred[None] | None:
        """Register after topics changed; a change during a registration starts another one."""
        if not self._ready or not self.running:
            # The start registers everything that exists by then.
            return None
        return self._registering.ask()

    # --- stop

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._starting is not None:
            given_up: Deferred[None] = Deferred()
            self._starting.addBoth(given_up.callback)
            self._starting.cancel()
            await given_up
        await self._close()

    async def _close(self) -> None:
        """Unregister from the name servers, close the ports, then save and flush everything."""
        if self._periodic is not None:
            self._periodic.stopService()
            self._periodic = None
        self.name_server_list.stop()
        for listener in self._listeners:
            await listener.stop_listening()
        if self._ready:
            self._ready = False
            await self.name_servers.unregister(self.identity, timeout_ms=_UNREGISTER_TIMEOUT_MS)
        if self._kernel_started:
            self._kernel_started = False
            await self.kernel.stop()
        await self._streams.stop()
        for listener in self._listeners:
            await listener.stopService()
        self._run_queue.stop()
        await self.client.close()
        if self._threads.started:
            # The threads are idle once the store is stopped.
            self._threads.stop()

