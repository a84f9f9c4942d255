"""The broker as a service: ports, registration, failed starts and clean stops."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from twistmq.broker import hookimpl
from twistmq.broker.client import name_servers as name_servers_module
from twistmq.broker.client.name_servers import BrokerIdentity, Registered
from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import broker_service as broker_service_module
from twistmq.broker.edge.boot import broker_settings
from twistmq.broker.edge.broker_service import BrokerService
from twistmq.broker.edge.periodic import PeriodicService
from twistmq.broker.errors import SettingsError, StoreFull
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.testing import BrokerTestCase, FaultyDisk, MemoryDisk
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.protocol.bodies import (
    HeartbeatData,
    ProducerData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, StoreError
from twistmq.protocol.headers.namesrv import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)


def make_service(
    disk: MemoryDisk | None = None, plugin: object = None, **settings: str
) -> BrokerService:
    """A broker without name server, on a free port and a disk in memory."""
    values = Settings.load(broker_rows(), overrides={
        "listenPort": "0", "bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1",
        "namesrvAddr": "", "storePathRootDir": "/store", **settings})
    hooks = Hooks([("plugin", plugin)] if plugin is not None else [])
    return BrokerService(reactor, values, hooks, disk or MemoryDisk())


class ServiceTests(BrokerTestCase):
    """A broker that runs beside a name server."""

    settings: ClassVar[dict[str, str]] = {"brokerName": "a", "registerNameServerPeriod": "10000"}

    async def test_vip_port(self) -> None:
        """The port two below serves all requests but pulls."""
        vip = f"127.0.0.1:{self.service.broker.vip_port}"
        self.assertEqual(self.service.broker.vip_port, self.service.broker.port - 2)
        reply = await self.request(RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"x", vip)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        reply = await self.request(RequestCode.PULL_MESSAGE, pull_header("T"), address=vip)
        self.assertEqual(reply.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.assertEqual(len(await self.pull("T")), 1)

    async def test_vip_port_shares_the_clients(self) -> None:
        """A client of this port is known until its connection is lost."""
        vip = f"127.0.0.1:{self.service.broker.vip_port}"
        heartbeat = HeartbeatData("c@vip", (ProducerData("vip_producers"),))
        reply = await self.request(RequestCode.HEART_BEAT, None, heartbeat.encode(), vip)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertIn("vip_producers", self.kernel.clients.producers)
        await self.remoting.close()
        while "vip_producers" in self.kernel.clients.producers:
            await deferLater(reactor, 0)

    async def test_idle_connections(self) -> None:
        """They are looked for every ten seconds, with the current setting."""
        asked: list[int] = []
        self.patch(RemotingFactory, "close_idle", lambda factory, idle_ms: asked.append(idle_ms))
        task, = [each for each in self.service.broker._periodic._tasks
                 if each.name == "close idle connections"]
        self.assertEqual((task.first_ms, task.period_ms), (10_000, 10_000))
        task.run(0)
        self.service.broker.settings.put("serverChannelMaxIdleTimeSeconds", 7)
        task.run(0)
        self.assertEqual(asked, [120_000, 7_000])

    async def test_new_topics_are_registered_at_once(self) -> None:
        """A topic a send created is in the routes without waiting for the next period."""
        await self.send("T", b"x")
        header = GetRouteInfoRequestHeader(topic="T")
        reply = await self.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header,
                                   address=self.namesrv_address)
        while reply.code == ResponseCode.TOPIC_NOT_EXIST:
            await deferLater(reactor, 0)
            reply = await self.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header,
                                       address=self.namesrv_address)
        self.assertIn(self.broker_address.encode(), reply.body)

    async def test_stop_unregisters(self) -> None:
        """A broker that stops unregisters, and the name server continues."""
        tables = self.service.namesrv.name_server.routes.tables
        self.assertEqual(list(tables.brokers), ["a"])
        await self.service.broker.stopService()
        self.assertEqual(list(tables.brokers), [])

    async def test_held_polls_are_answered_at_the_stop(self) -> None:
        """A stop answers pulls that wait before it closes their connections."""
        await self.send("T", b"x")
        reply = Deferred.fromCoroutine(self.request(
            RequestCode.PULL_MESSAGE, pull_header("T", 1, hold_ms=60_000)))
        while not self.kernel.pull_hold.count:
            await deferLater(reactor, 0)
        await self.service.broker.stopService()
        self.assertEqual((await reply).code, ResponseCode.PULL_NOT_FOUND)


class MasterTests(BrokerTestCase):
    """A broker with a broker id."""

    settings: ClassVar[dict[str, str]] = {"brokerName": "a", "brokerId": "3"}

    async def test_a_master_registers_with_id_0(self) -> None:
        """It registers as a master, because clients send only to id 0."""
        brokers = self.service.namesrv.name_server.routes.tables.brokers
        self.assertEqual(brokers["a"].broker_addrs, {0: self.broker_address})


class StopTests(TestCase):
    """The data that a stop saves, even if something fails."""

    async def test_clean_stop(self) -> None:
        """The abort file is removed, tables are saved, and a second stop does nothing."""
        disk = MemoryDisk()
        service = make_service(disk)
        service.startService()
        await service.started
        self.assertTrue(disk.exists("/store/abort"))
        service.kernel.consumer_offset.commit("host", "G", "T", 0, 7)
        await service.stopService()
        await service.stopService()
        self.assertFalse(disk.exists("/store/abort"))
        self.assertIn(b'"T@G"', disk.read_file("/store/config/consumerOffset.json"))
        again = make_service(disk)
        again.startService()
        await again.started
        await again.stopService()

    async def test_tables_that_cannot_be_saved(self) -> None:
        """A full disk is logged; the store is stopped and its lock is released."""
        disk = FaultyDisk()
        service = make_service(disk)
        service.startService()
        await service.started
        service.kernel.consumer_offset.commit("host", "G", "T", 0, 7)
        disk.room_bytes = 0
        await service.stopService()
        disk.room_bytes = None
        again = make_service(disk)
        again.startService()
        await again.started
        await again.stopService()

    async def test_name_server_that_does_not_answer(self) -> None:
        """It delays a start, a stop and a new topic only up to their limits."""
        self.patch(name_servers_module, "_SILENCE_MS", 50)
        self.patch(name_servers_module, "_LAST_WORD_MS", 50)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            service = make_service(namesrvAddr=f"{address};127.0.0.1:1")
            service.startService()
            await service.started
            service.kernel.topic_config.update(TopicConfig("T"), {})
            registered = service.kernel.tables.topics_saved_and_registered()
            assert registered is not None
            await registered
            self.assertIn("no answer within", service.name_servers.unreached[address])
            await service.stopService()


class RecordedNameServers:
    """Records registrations; an answer waits until the test gives it."""

    def __init__(self) -> None:
        self.addresses = ["ns:1"]
        self.registered: list[bytes] = []
        #: Whether some name server has another version than the broker's.
        self.differ = False
        #: Who asked for the version that they have, and with which of its own.
        self.asked: list[tuple[object, object]] = []
        self.wait: Deferred[None] | None = None
        self.told_less: dict[str, str] = {}
        #: What the name servers answer, in the order of their addresses.
        self.answers: list[object] = []
        #: Who registered last, and with which arguments.
        self.told: tuple[object, dict[str, object]] = None, {}

    async def register(self, identity: object, body: bytes, **told: object) -> list[object]:
        self.registered.append(body)
        self.told = identity, told
        if self.wait is not None:
            await self.wait
        return self.answers

    async def need_register(self, identity: object, version: object, **more: object) -> bool:
        self.asked.append((identity, version))
        return self.differ

    async def unregister(self, *ignored: object, **more: object) -> None:
        pass


class RouteTests(TestCase):
    """Routes for plugins."""

    def test_name_servers(self) -> None:
        """The kernel can ask for routes as long as it has name servers."""
        service = make_service()
        self.assertEqual(service.kernel.host.has_name_servers,
                         bool(service.name_servers.addresses))
        service.settings.update({"namesrvAddr": "127.0.0.1:1"})
        self.assertTrue(service.kernel.host.has_name_servers)
        service.settings.update({"namesrvAddr": ""})
        self.assertFalse(service.kernel.host.has_name_servers)


class RegistrationTests(TestCase):
    """The times of registrations."""

    async def start(self, **settings: str) -> tuple[BrokerService, PeriodicTask]:
        """Start a broker whose periodic tasks the test runs; its task that registers."""
        kept: list[list[PeriodicTask]] = []

        def keep(*arguments: Any) -> PeriodicService:
            kept.append(arguments[3])
            return PeriodicService(*arguments[:3], [], *arguments[4:])

        self.patch(broker_service_module, "PeriodicService", keep)
        service = make_service(**settings)
        self.name_servers = RecordedNameServers()
        self.patch(service, "name_servers", self.name_servers)
        service.startService()
        await service.started
        self.addCleanup(service.stopService)
        return service, next(task for task in kept[0] if task.name.startswith("register"))

    async def test_registration_runs_at_start_after_10_s_and_each_period(self) -> None:
        """First at the start, then after 10 s, then each period, which has bounds."""
        for wanted, kept in (("0", 10_000), ("10001", 10_001), ("30000", 30_000),
                             ("60001", 60_000), ("2147483647", 60_000)):
            _, task = await self.start(registerNameServerPeriod=wanted)
            self.assertEqual(len(self.name_servers.registered), 1)
            assert callable(task.period_ms)
            self.assertEqual((task.first_ms, task.period_ms()), (10_000, kept))
            await task.run(0)  # type: ignore[misc]
            self.assertEqual(len(self.name_servers.registered), 2)

    async def test_order_topics_of_the_first_answer(self) -> None:
        """The first name server decides which topics are ordered."""
        service, task = await self.start()
        topics = service.kernel.topic_config
        for topic in ("A", "B"):
            topics.update(TopicConfig(topic), {})
        self.name_servers.answers = [Registered(None, None, {"A": "broker-a:4"}),
                                     Registered(None, None, {"B": "broker-a:4"})]
        await task.run(0)  # type: ignore[misc]
        self.assertEqual([topics.is_order_topic(topic) for topic in ("A", "B")], [True, False])

    async def test_plugins_are_told_all_answers(self) -> None:
        """Plugins get all answers, also after a failed one; without an answer they get nothing."""
        service, task = await self.start()
        kernel = service.kernel
        answers = [Registered("m:1", "h:1", {}), Registered(None, None, {})]
        told: list[Sequence[Registered]] = []
        kernel.on_registered += [lambda _: 1 / 0, told.append]  # type: ignore[list-item]
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(told, [])
        self.name_servers.answers = list(answers)
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(told, [answers])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_a_slave_takes_its_topics_from_its_master(self) -> None:
        """A table from name servers would have another version than the master's."""
        service, task = await self.start()
        kernel = service.kernel
        kernel.topic_config.update(TopicConfig("A"), {})
        kernel.set_role("SLAVE", 1)
        version = kernel.topic_config.data_version.encode()
        self.name_servers.answers = [Registered("m:1", "h:1", {"A": "broker-a:4"})]
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(kernel.topic_config.data_version.encode(), version)

    async def test_what_a_plugin_has_told_of_the_broker(self) -> None:
        """The port on which the plugin listens, and whether a slave may act for its master."""
        service, task = await self.start(haListenPort="77")
        identity = service.kernel.identity
        told = self.name_servers.told
        assert isinstance(told[0], BrokerIdentity)
        self.assertEqual(told[0].ha_address.rpartition(":")[2], "77")
        self.assertEqual((told[1]["heartbeat_timeout_ms"], told[1]["enable_acting_master"]),
                         (None, False))
        identity.ha_port, identity.heartbeat_timeout_ms = 78, 10_000
        identity.enable_acting_master = True
        await task.run(0)  # type: ignore[misc]
        told = self.name_servers.told
        assert isinstance(told[0], BrokerIdentity)
        self.assertEqual(told[0].ha_address.rpartition(":")[2], "78")
        self.assertEqual((told[1]["heartbeat_timeout_ms"], told[1]["enable_acting_master"]),
                         (10_000, True))
        registered = len(self.name_servers.registered)
        identity.registers = False
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(len(self.name_servers.registered), registered)

    async def test_registering_soon_after_it_could_not(self) -> None:
        """A broker that could not register before registers as soon as it may."""
        service, _ = await self.start()
        kernel, names = service.kernel, self.name_servers
        begun = len(names.registered)

        def change() -> int:
            kernel.topic_config.update(TopicConfig(f"T{len(names.registered)}"), {})
            kernel.tables.topics_changed()
            return len(names.registered) - begun

        kernel.identity.registers = False
        self.assertEqual([change(), change()], [0, 0])
        kernel.identity.registers = True
        self.assertEqual([change(), change()], [1, 2])
        addresses = names.addresses
        names.addresses = []
        self.assertEqual([change(), change()], [2, 2])
        names.addresses = addresses
        self.assertEqual([change(), change()], [3, 4])

    async def test_a_topic_that_comes_during_a_registration(self) -> None:
        """It is in the next registration, and those who wait for it are informed after that."""
        service, _ = await self.start()
        names = self.name_servers
        names.wait = Deferred()
        begun = len(names.registered)
        first = service.kernel.tables.topics_changed()
        others = [service.kernel.tables.topics_changed() for _ in range(3)]
        self.assertEqual(len(names.registered), begun + 1)
        waiting, names.wait = names.wait, None
        waiting.callback(None)
        for each in (first, *others):
            assert each is not None
            await each
        self.assertEqual(len(names.registered), begun + 2)

    async def test_only_what_differs(self) -> None:
        """Without forceRegister only when a name server has another version, but at the start."""
        service, task = await self.start(forceRegister="false")
        self.assertEqual(len(self.name_servers.registered), 1)
        self.assertEqual(self.name_servers.asked, [])
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(len(self.name_servers.registered), 1)
        service.kernel.topic_config.update(TopicConfig("A"), {})
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(self.name_servers.asked[-1],
                         (service.identity, service.kernel.topic_config.data_version))
        self.name_servers.differ = True
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(len(self.name_servers.registered), 2)

    async def test_the_body_is_compressed_when_the_setting_says_so(self) -> None:
        """The header says so, and the topics are the same."""
        for compressed in (False, True):
            service, task = await self.start(compressedRegister=str(compressed).lower())
            service.kernel.topic_config.update(TopicConfig("A", 3, 5), {})
            await task.run(0)  # type: ignore[misc]
            self.assertIs(self.name_servers.told[1]["compressed"], compressed)
            topics = RegisterBrokerBody.decode(
                self.name_servers.registered[-1], compressed).topic_config_serialize_wrapper
            self.assertEqual(topics.topic_config_table["A"], TopicConfig("A", 3, 5))

    async def test_what_name_servers_refuse_of_plugins(self) -> None:
        """The plain body has the topics alone; a refusal is in the health of the broker."""
        service, task = await self.start()
        kernel = service.kernel
        kernel.topic_config.update(TopicConfig("A"), {})

        def complete(tables: TopicConfigSerializeWrapper, registering: bool) -> None:
            tables.topic_queue_mapping_info_map = {"A": TopicQueueMappingInfo("A")}

        self.patch(kernel.hooks, "complete_topic_tables", complete)
        await task.run(0)  # type: ignore[misc]
        plain = self.name_servers.told[1]["plain"]
        assert callable(plain)
        whole, less = [RegisterBrokerBody.decode(body).topic_config_serialize_wrapper
                       for body in (self.name_servers.registered[-1], plain())]
        self.assertEqual(list(whole.topic_queue_mapping_info_map or {}), ["A"])
        self.assertEqual((less.topic_queue_mapping_info_map, less.topic_config_table,
                          less.data_version),
                         ({}, whole.topic_config_table, whole.data_version))
        self.assertEqual(kernel.health_checks["registration"](), "")
        self.name_servers.told_less = {"ns:1": "a number is too large"}
        self.assertEqual(kernel.health_checks["registration"](),
                         "static topics are left out at ns:1: a number is too large")

    async def test_changes_meanwhile(self) -> None:
        """Topics that change during a registration are registered once afterwards."""
        service, _ = await self.start()
        self.name_servers.wait = Deferred()
        done = service.kernel.topics_changed()
        assert done is not None
        for _ in range(3):
            service.kernel.topics_changed()
        self.assertEqual(len(self.name_servers.registered), 2)
        waited, self.name_servers.wait = self.name_servers.wait, None
        waited.callback(None)
        await done
        self.assertEqual(len(self.name_servers.registered), 3)


class ToldAddressTests(BrokerTestCase):
    """The ports of a broker that name servers report to its slave."""

    settings: ClassVar[dict[str, str]] = {"brokerName": "a"}

    async def told(self) -> RegisterBrokerResponseHeader:
        """Register as a slave of the broker."""
        header = RegisterBrokerRequestHeader("a", "127.0.0.1:1", "DefaultCluster", "127.0.0.1:2", 1)
        reply = await self.request(RequestCode.REGISTER_BROKER, header,
                                   RegisterBrokerBody().encode(), self.namesrv_address)
        return reply.header(RegisterBrokerResponseHeader)

    async def test_port_0_is_told_as_the_real_one(self) -> None:
        """The reported address accepts connections."""
        self.assertEqual(self.kernel.settings.int("listenPort"), 0)
        address = (await self.told()).master_addr
        assert address is not None
        self.assertNotEqual(address.rpartition(":")[2], "0")
        reply = await self.request(
            RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"x", address)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(len(await self.pull("T")), 1)


class ThreePortsTests(ToldAddressTests):
    """A broker on a port from the settings."""

    def setUp(self) -> Deferred[Any]:
        self.port = _free_ports()
        self.patch(type(self), "settings", {
            "brokerName": "a", "listenPort": str(self.port), "brokerIP2": "127.0.0.1"})
        return super().setUp()

    async def test_port_0_is_told_as_the_real_one(self) -> None:
        """Replicas get the port above it, which listens."""
        told = await self.told()
        self.assertEqual(told.master_addr, f"127.0.0.1:{self.port}")
        self.assertEqual(told.ha_server_addr, f"127.0.0.1:{self.port + 1}")
        for port in (self.port - 2, self.port, self.port + 1):
            socket.create_connection(("127.0.0.1", port)).close()


def _free_ports() -> int:
    """A port that is free, as are the one above it and the one two below."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first, (
                contextlib.suppress(OSError, OverflowError)):
            port: int = first.getsockname()[1]
            with socket.create_server(("127.0.0.1", port + 1)), (
                    socket.create_server(("127.0.0.1", port - 2))):
                return port


class StartOrderTests(TestCase):
    """The store is loaded before a client can connect."""

    async def test_no_port_is_open_while_the_store_is_loaded(self) -> None:
        """Otherwise a client would see no messages."""
        port, refused = _free_ports(), []
        load = MessageStore.load

        def loading(store: MessageStore, *arguments: Any) -> None:
            for each in (port, port - 2):
                try:
                    socket.create_connection(("127.0.0.1", each), 1).close()
                except ConnectionRefusedError:
                    refused.append(each)
            load(store, *arguments)

        self.patch(MessageStore, "load", loading)
        service = make_service(listenPort=str(port))
        service.startService()
        await service.started
        self.assertEqual(refused, [port, port - 2])
        socket.create_connection(("127.0.0.1", port)).close()
        await service.stopService()

    async def test_each_part_starts_after_those_that_it_needs(self) -> None:
        """The tables and the store come first, then plugins, ports and name servers."""
        steps: list[str] = []

        def note(owner: Any, name: str, step: str) -> None:
            function = getattr(owner, name)

            def noted(*arguments: Any, **options: Any) -> Any:
                steps.append(step)
                return function(*arguments, **options)

            self.patch(owner, name, noted)

        class Plugin:
            @staticmethod
            @hookimpl
            def on_start() -> None:
                steps.append("a plugin")

            @staticmethod
            @hookimpl
            def on_stop() -> None:
                steps.append("a plugin ends")

        service = make_service(plugin=Plugin)
        self.patch(service, "name_servers", RecordedNameServers())
        note(service.kernel.tables, "load", "tables")
        note(service.kernel.store, "load", "files")
        note(service.kernel.store, "start", "store")
        note(service, "_listen", "ports")
        note(PeriodicService, "startService", "periodic tasks")
        note(service.name_servers, "register", "name servers")
        service.startService()
        await service.started
        self.assertEqual(steps, ["tables", "files", "store", "a plugin", "ports", "periodic tasks",
                                 "name servers"])
        steps.clear()
        note(PeriodicService, "stopService", "periodic tasks end")
        note(service.name_servers, "unregister", "name servers")
        note(service.kernel, "persist", "tables are saved")
        note(service.kernel.store, "stop", "the store ends")
        await service.stopService()
        self.assertEqual(steps, ["periodic tasks end", "name servers", "a plugin ends",
                                 "tables are saved", "the store ends"])


class SettingsFileTests(TestCase):
    """One file has the settings of broker, connections and store."""

    async def test_each_part_gets_its_own(self) -> None:
        """As with Apache's broker.conf; missing settings have their defaults."""
        path = Path(self.mktemp())
        path.write_text("# of all three\nbrokerName=filed\nbrokerClusterName=C\nlistenPort=0\n"
                        "bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nnamesrvAddr=\n"
                        "serverChannelMaxIdleTimeSeconds=7\nserverSocketBacklog=77\n"
                        "storePathRootDir=/filed\nflushDiskType=SYNC_FLUSH\n"
                        "connectTimeoutMillis=1234\n"
                        "mappedFileSizeCommitLog=65536\nmaxMessageSize=5000\n")
        settings = broker_settings(str(path), {})
        idle: list[int] = []
        backlogs: list[int] = []
        listen = reactor.listenTCP  # type: ignore[attr-defined]

        def listening(port: int, factory: Any, backlog: int, interface: str) -> Any:
            backlogs.append(backlog)
            return listen(port, factory, backlog, interface)

        self.patch(RemotingFactory, "close_idle", lambda factory, idle_ms: idle.append(idle_ms))
        self.patch(reactor, "listenTCP", listening)
        service = BrokerService(reactor, settings, Hooks(), MemoryDisk())
        service.startService()
        await service.started
        self.addCleanup(service.stopService)
        task, = [each for each in service._periodic._tasks
                 if each.name == "close idle connections"]
        task.run(0)
        store = service.kernel.store.settings
        self.assertEqual((service.kernel.broker_name, service.kernel.cluster_name),
                         ("filed", "C"))
        self.assertEqual((idle, set(backlogs)), ([7000], {77}))
        self.assertEqual(service.client._connect_timeout_ms, 1234)
        self.assertEqual(
            (store.store_path_root_dir, store.sync_flush, store.mapped_file_size_commit_log,
             store.max_message_size, store.check_crc_on_recover),
            ("/filed", True, 65536, 5000, True))


class FailedStartTests(TestCase):
    """A failed start gives the reason and releases the disk."""

    async def fails(self, service: BrokerService, kind: type[Exception]) -> str:
        """Start a broker; :returns: the text of the error."""
        service.startService()
        error = await self.assertFailure(service.started, kind)
        # trial looks for what stays: a port, a delayed call, a thread that runs.
        await service.stopService()
        return str(error)

    async def works(self, disk: MemoryDisk) -> None:
        """Check that no process holds the store."""
        service = make_service(disk)
        service.startService()
        await service.started
        await service.stopService()

    async def test_port_in_use(self) -> None:
        """The error names the port."""
        disk = MemoryDisk()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            text = await self.fails(make_service(disk, listenPort=str(port)), BrokerError)
        self.assertIn(f"cannot listen on 127.0.0.1:{port} (the broker's port: listenPort)", text)
        self.assertFalse(disk.exists("/store/abort"))
        await self.works(disk)

    async def test_nothing_is_left_before_a_stop(self) -> None:
        """A failed start releases everything without a stop."""
        disk = MemoryDisk()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            service = make_service(disk, listenPort=str(taken.getsockname()[1]))
            service.startService()
            await self.assertFailure(service.started, BrokerError)
        await self.works(disk)
        await service.stopService()

    async def test_vip_port_in_use(self) -> None:
        """The user did not set that port, so the error explains where it comes from."""
        disk = MemoryDisk()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            vip = taken.getsockname()[1]
            text = await self.fails(make_service(disk, listenPort=str(vip + 2)), BrokerError)
        self.assertIn(f"cannot listen on 127.0.0.1:{vip}", text)
        self.assertIn(f"two below listenPort {vip + 2}", text)
        await self.works(disk)

    async def test_locked_store(self) -> None:
        """Two brokers cannot share a store; the first one continues."""
        disk = MemoryDisk()
        first = make_service(disk)
        first.startService()
        await first.started
        await self.fails(make_service(disk), StoreError)
        self.assertTrue(disk.exists("/store/abort"))
        await first.stopService()
        await self.works(disk)

    async def test_damaged_table(self) -> None:
        """The error names the file, whichever table it is."""
        for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
            disk = MemoryDisk()
            disk.make_directory("/store/config")
            disk.write_file(f"/store/config/{name}", b"{broken")
            text = await self.fails(make_service(disk), StoreError)
            self.assertIn(f"/store/config/{name}", text)

    async def test_unwritable_store(self) -> None:
        """The error names the folder that cannot be created."""
        file = Path(self.mktemp())
        file.write_text("a file where a folder should be")
        values = Settings.load(broker_rows(), overrides={
            "listenPort": "0", "bindAddress": "127.0.0.1", "namesrvAddr": "",
            "storePathRootDir": str(file / "store")})
        text = await self.fails(BrokerService(reactor, values, Hooks()), StoreError)
        self.assertIn(str(file), text)

    async def test_full_disk(self) -> None:
        """A disk without room for the first file is an error of the store."""
        disk = FaultyDisk()
        disk.room_bytes = 0
        await self.fails(make_service(disk), StoreFull)

    async def test_plugin_that_refuses_its_settings(self) -> None:
        """The SettingsError of a plugin stops the start; the plugins are stopped as well."""
        calls: list[str] = []

        class Plugin:
            @staticmethod
            @hookimpl
            def on_start() -> None:
                raise SettingsError("plugin.rate=many")

            @staticmethod
            @hookimpl
            def on_stop() -> None:
                calls.append("stop")

        disk = MemoryDisk()
        text = await self.fails(make_service(disk, Plugin), SettingsError)
        self.assertEqual((text, calls), ("plugin.rate=many", ["stop"]))
        await self.works(disk)

    async def test_stop_during_the_start(self) -> None:
        """A stop does not wait for a plugin that never becomes ready."""
        class Plugin:
            @staticmethod
            @hookimpl
            def on_start() -> Deferred[Any]:
                return Deferred()

        disk = MemoryDisk()
        service = make_service(disk, Plugin)
        service.startService()
        failed = self.assertFailure(service.started, CancelledError)
        await service.stopService()
        await failed
        await self.works(disk)
