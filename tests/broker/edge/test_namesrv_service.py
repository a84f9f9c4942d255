"""The name server as a service, on the real reactor and the loopback address."""

from __future__ import annotations

import socket
import threading

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.interop.ports import free_port
from twistmq.broker import hookimpl
from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.config.setting_rows import namesrv_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.clock import monotonic, now_ms
from twistmq.broker.edge.namesrv_service import NamesrvService
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.listener import ListenerService
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.messages import Reply, Request, RequestHandler
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.bodies import (
    GetBrokerMemberGroupResponseBody,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.admin import NotifyMinBrokerIdChangeRequestHeader
from twistmq.protocol.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    RegisterBrokerRequestHeader,
)

MASTER = "10.0.0.1:10911"


def _is_open(port: int) -> bool:
    """Whether something listens at a port of this host."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class LifeTests(TestCase):
    """The start, the work and the stop of a whole name server."""

    def make(self, hooks: Hooks | None = None, **settings: str) -> NamesrvService:
        return NamesrvService(reactor, Settings.load(namesrv_rows(), None, {
            "listenPort": "0", "bindAddress": "127.0.0.1",
            "kvConfigPath": f"{self.mktemp()}/kvConfig.json", **settings}), hooks)

    async def test_plugins_start_before_the_port_opens_and_end_after_it_closed(self) -> None:
        """The stop leaves no port, no connection, no thread and no timer behind."""
        port = free_port()
        seen: list[tuple[str, bool]] = []

        class Plugin:
            @staticmethod
            @hookimpl
            def on_namesrv_start() -> None:
                seen.append(("start", _is_open(port)))

            @staticmethod
            @hookimpl
            def on_namesrv_stop() -> None:
                seen.append(("stop", _is_open(port)))

        before = set(threading.enumerate())
        service = self.make(Hooks([("plugin", Plugin)]), listenPort=str(port))
        service.startService()
        await service.started
        with RawClient(f"127.0.0.1:{port}", 5) as client:
            await deferToThread(client.request, RequestCode.GET_BROKER_CLUSTER_INFO)
            # trial finds a timer and a socket that stay.
            await service.stopService()
            self.assertEqual(client._socket.recv(1), b"")
        self.assertEqual(seen, [("start", False), ("stop", False)])
        self.assertFalse(_is_open(port))
        self.assertEqual({each.name for each in set(threading.enumerate()) - before
                          if each.name.startswith("namesrv")}, set())

    async def test_a_silent_broker_is_removed_and_its_connection_closed(self) -> None:
        """The scan is periodic, and uses the time-out that the broker asked for."""
        service = self.make(scanNotActiveBrokerInterval="20")
        service.startService()
        await service.started
        self.addCleanup(service.stopService)
        header = RegisterBrokerRequestHeader(
            broker_name="a", broker_addr=MASTER, cluster_name="C", ha_server_addr="",
            broker_id=0, heartbeat_timeout_millis=100)
        body = RegisterBrokerBody(TopicConfigSerializeWrapper({
            name: TopicConfig(name) for name in ("T", "U")}))

        def silent() -> bytes:
            with RawClient(f"127.0.0.1:{service.port}", 5) as broker:
                code = broker.request(RequestCode.REGISTER_BROKER, header, body.encode()).code
                self.assertEqual(code, ResponseCode.SUCCESS)
                broker._socket.settimeout(20)
                return broker._socket.recv(1)

        self.assertEqual(await deferToThread(silent), b"")
        tables = service.name_server.routes.tables
        self.assertEqual((tables.brokers, tables.topics, tables.live), ({}, {}, {}))


class IdleTests(TestCase):
    """Connections that are silent."""

    def test_the_setting_counts(self) -> None:
        """They are looked for every ten seconds, with the current setting."""
        settings = Settings.load(namesrv_rows(), None, {"kvConfigPath": self.mktemp()})
        service = NamesrvService(reactor, settings)
        asked: list[int] = []
        self.patch(RemotingFactory, "close_idle", lambda factory, idle_ms: asked.append(idle_ms))
        task, = [each for each in service._periodic._tasks if each.name == "close idle connections"]
        self.assertEqual((task.first_ms, task.period_ms), (10_000, 10_000))
        task.run(0)
        settings.put("serverChannelMaxIdleTimeSeconds", 7)
        task.run(0)
        self.assertEqual(asked, [120_000, 7_000])
        # Time in which the process did not run does not count as silence.
        self.assertIs(service._factory.steady, service.name_server.steady)


class TlsFilesTests(TestCase):
    """The files of TLS are looked at while the name server runs."""

    def test_both_sides_are_looked_at_twice_a_second(self) -> None:
        """Connections to its port and those that it makes itself are checked twice a second."""
        service = NamesrvService(reactor, Settings.load(namesrv_rows(), None, {
            "kvConfigPath": self.mktemp(), "tls.enable": "true"}))
        tasks = {each.name: each for each in service._periodic._tasks}
        for name, owners in (("check the TLS files", service._factory.first_bytes),
                             ("check the client's TLS files", [service._client._tls])):
            self.assertEqual((tasks[name].first_ms, tasks[name].period_ms), (500, 500))
            self.assertIn(tasks[name].run.__self__, owners)  # type: ignore[attr-defined]


class ServiceCase(TestCase):
    """A name server, and a client that speaks as a broker."""

    async def setUp(self) -> None:
        folder = self.mktemp()
        self.name_server = NamesrvService(reactor, Settings.load(namesrv_rows(), None, {
            "listenPort": "0", "bindAddress": "127.0.0.1", "notifyMinBrokerIdChanged": "true",
            "kvConfigPath": f"{folder}/kvConfig.json"}))
        self.name_server.startService()
        self.addCleanup(self.name_server.stopService)
        await self.name_server.started
        self.client = RemotingClient(reactor, now_ms, monotonic, Dispatcher({}, Hooks()))
        self.addCleanup(self.client.close)

    async def ask(self, code: int, header: CommandHeader) -> int:
        """Ask the name server; :returns: the code it answers."""
        reply = await self.client.invoke(
            f"127.0.0.1:{self.name_server.port}", code, header, timeout_ms=5000)
        return reply.code

    async def register(self, address: str, broker_id: int) -> None:
        code = await self.ask(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader(
            broker_name="a", broker_addr=address, cluster_name="C", ha_server_addr="",
            broker_id=broker_id))
        self.assertEqual(code, ResponseCode.SUCCESS)


class ConnectionTests(ServiceCase):
    """The connections of brokers."""

    async def test_a_broker_whose_connection_is_lost_is_forgotten(self) -> None:
        """It is removed immediately, without a wait; its group is then empty."""
        header = GetBrokerMemberGroupRequestHeader(cluster_name="C", broker_name="a")
        other = RemotingClient(reactor, now_ms, monotonic, Dispatcher({}, Hooks()))
        self.addCleanup(other.close)

        async def members() -> int:
            reply = await other.invoke(
                f"127.0.0.1:{self.name_server.port}", RequestCode.GET_BROKER_MEMBER_GROUP, header,
                timeout_ms=5000)
            group = GetBrokerMemberGroupResponseBody.decode(reply.body).broker_member_group
            assert group is not None
            return len(group.broker_addrs)

        await self.register(MASTER, 0)
        self.assertEqual(await members(), 1)
        await self.client.close()
        while await members():
            await deferLater(reactor, 0)


class LowestIdTests(ServiceCase):
    """Brokers get the lowest id of their group."""

    def listen(self) -> tuple[str, Deferred[NotifyMinBrokerIdChangeRequestHeader]]:
        """Start a broker that waits for a notification; :returns: its address and the
        notifications.
        """
        told: Deferred[NotifyMinBrokerIdChangeRequestHeader] = Deferred()

        def take(request: Request[NotifyMinBrokerIdChangeRequestHeader]) -> Reply:
            told.callback(request.header)
            return Reply()

        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        rows = {code: RequestHandler(code, take, NotifyMinBrokerIdChangeRequestHeader)}
        factory = RemotingFactory(
            reactor, Dispatcher(rows, Hooks()), ChannelTable(), now_ms, monotonic)
        listener = ListenerService(reactor, 0, "127.0.0.1", 50, factory, "a port")
        listener.startService()
        self.addCleanup(listener.stopService)
        return f"127.0.0.1:{listener.port}", told

    async def test_a_slave_is_told_of_its_master(self) -> None:
        """The name server connects to the slave when a master registers."""
        slave, told = self.listen()
        await self.register(slave, 1)
        await self.register(MASTER, 0)
        header = await told
        self.assertEqual((header.min_broker_id, header.min_broker_addr), (0, MASTER))

    async def test_a_slave_that_is_not_there_holds_up_nobody(self) -> None:
        """A broker that cannot be reached is logged, and requests go on."""
        events = self.patch_log()
        await self.register(f"127.0.0.1:{free_port()}", 1)
        await self.register(MASTER, 0)
        header = GetBrokerMemberGroupRequestHeader(cluster_name="C", broker_name="a")
        self.assertEqual(await self.ask(RequestCode.GET_BROKER_MEMBER_GROUP, header),
                         ResponseCode.SUCCESS)
        self.assertIn("connect to 127.0.0.1:", await events)

    def patch_log(self) -> Deferred[str]:
        """Return a Deferred that fires with the reason of the first failed notification."""
        reason: Deferred[str] = Deferred()

        class Log:
            def warn(self, text: str, **event: str) -> None:
                reason.callback(event["reason"])

        self.patch(NamesrvService, "log", Log())
        return reason
